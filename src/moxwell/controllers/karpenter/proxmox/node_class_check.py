"""
Which hosts and templates a node class selects, and what is wrong with it. Pure.

The status of templates in the scaled cluster is not an input: its users could write it. Templates
are found in the inventory of the regions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate, ProxmoxUnmanagedTemplate
from moxwell.controllers.karpenter.proxmox.scope import NodeClassScope
from moxwell.pve.ownership import is_reserved_tag
from moxwell.scheduling.inventory_model import HostKey, Template

InstanceTemplate = ProxmoxTemplate | ProxmoxUnmanagedTemplate


class NodeClassReason(StrEnum):
    """Reasons of the conditions of a ProxmoxNodeClass."""

    READY = "Ready"
    REGION_NOT_FOUND = "RegionNotFound"
    REGION_UNREACHABLE = "RegionUnreachable"
    POOL_NOT_FOUND = "PoolNotFound"
    POOL_NOT_ALLOWED = "PoolNotAllowed"
    STORAGE_NOT_FOUND = "StorageNotFound"
    STORAGE_NOT_ALLOWED = "StorageNotAllowed"
    SECURITY_GROUP_NOT_FOUND = "SecurityGroupNotFound"
    SECURITY_GROUP_NOT_ALLOWED = "SecurityGroupNotAllowed"
    TAG_NOT_ALLOWED = "TagNotAllowed"
    NODE_POLICY_NOT_ALLOWED = "NodePolicyNotAllowed"
    TEMPLATE_NOT_FOUND = "TemplateNotFound"
    SECRET_NOT_FOUND = "SecretNotFound"
    INVALID_TEMPLATE = "InvalidTemplate"
    CLUSTER_NOT_FOUND = "ClusterNotFound"
    IN_USE = "InUse"
    HOST_AGENT_MISSING = "HostAgentMissing"


class NodeClassPart(StrEnum):
    """The part of a node class that a mistake is in: the condition that reports it."""

    TEMPLATE = "InstanceTemplateReady"
    METADATA = "InstanceMetadataOptionsReady"
    INFRASTRUCTURE = "InfrastructureReady"


@dataclass(frozen=True, slots=True)
class NodeClassProblem:
    """A mistake in a node class, with the field and what to do."""

    part: NodeClassPart
    reason: NodeClassReason
    message: str


@dataclass(frozen=True, slots=True)
class ZoneContents:
    """What a zone of the cluster has, from the inventory of its region."""

    region: str
    failure_domain: str = ""  # empty: the cluster has no zones
    hosts: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    stores: Mapping[str, frozenset[str]] = field(default_factory=dict)  # with images, by host
    templates: tuple[Template, ...] = ()
    security_groups: frozenset[str] | None = None  # None: unknown
    architectures: Mapping[str, str] = field(default_factory=dict)  # by host; empty: unknown


@dataclass(frozen=True, slots=True)
class SelectedZone:
    """A host on which guests can be made, and the template that they are cloned from."""

    key: HostKey
    template: Template
    failure_domain: str = ""

    def __str__(self) -> str:
        return f"{self.key}/{self.template.vmid}"


@dataclass(frozen=True, slots=True)
class CheckedNodeClass:
    """The hosts that a node class selects, and its mistakes."""

    zones: tuple[SelectedZone, ...] = ()
    problems: tuple[NodeClassProblem, ...] = ()


def check(
    node_class: ProxmoxNodeClass,
    template: InstanceTemplate | None,
    zones: Iterable[ZoneContents],
    scope: NodeClassScope,
    unreachable: str = "",
    tags: Iterable[str] = (),
) -> CheckedNodeClass:
    """
    Check a node class against the contents of the cluster's zones.

    ``tags`` are those of the templates that were built from ``template`` (see :func:`matching`).
    """
    known = tuple(zones)
    wanted = tuple(z for z in known if node_class.spec.region in (None, z.region))
    problems = [*_region(node_class, known, wanted, unreachable)]
    if not problems:
        problems += [
            *_pool(node_class, wanted, scope),
            *_storage(node_class, wanted, scope),
            *_security_groups(node_class, wanted, scope),
        ]
    problems += _tags(node_class)
    selected: tuple[SelectedZone, ...] = ()
    if wanted:
        selected, wrong = _templates(node_class, template, wanted, scope, tuple(tags))
        problems += wrong
    return CheckedNodeClass(() if problems else selected, tuple(problems))


def _infrastructure(reason: NodeClassReason, message: str) -> NodeClassProblem:
    return NodeClassProblem(NodeClassPart.INFRASTRUCTURE, reason, message)


def _region(
    node_class: ProxmoxNodeClass,
    known: tuple[ZoneContents, ...],
    wanted: tuple[ZoneContents, ...],
    unreachable: str,
) -> Iterable[NodeClassProblem]:
    if wanted:
        return
    if unreachable:
        yield _infrastructure(NodeClassReason.REGION_UNREACHABLE, unreachable)
        return
    names = ", ".join(sorted({z.region for z in known})) or "none"
    yield _infrastructure(
        NodeClassReason.REGION_NOT_FOUND,
        f"spec.region: the cluster has no region {node_class.spec.region!r} (it has {names}); "
        "set one of them or omit the field",
    )


def _pool(
    node_class: ProxmoxNodeClass, zones: tuple[ZoneContents, ...], scope: NodeClassScope
) -> Iterable[NodeClassProblem]:
    pool = node_class.spec.resource_pool
    if not pool:
        return
    if not scope.allows_pool(pool):
        yield _infrastructure(
            NodeClassReason.POOL_NOT_ALLOWED,
            f"spec.resourcePool: the cluster may not use pool {pool!r}; "
            "omit the field or ask the operator to allow the pool",
        )
    elif missing := sorted({z.region for z in zones if pool not in z.pools}):
        yield _infrastructure(
            NodeClassReason.POOL_NOT_FOUND,
            f"spec.resourcePool: no pool {pool!r} in region {', '.join(missing)}; "
            "create it in Proxmox or set spec.region to a region that has it",
        )


def _storage(
    node_class: ProxmoxNodeClass, zones: tuple[ZoneContents, ...], scope: NodeClassScope
) -> Iterable[NodeClassProblem]:
    storage = node_class.spec.boot_device.storage
    if not storage:
        return
    if not scope.allows_storage(storage):
        yield _infrastructure(
            NodeClassReason.STORAGE_NOT_ALLOWED,
            f"spec.bootDevice.storage: the cluster may not use storage {storage!r}; "
            "omit the field or ask the operator to allow the storage",
        )
    elif not any(_has_storage(zone, host, storage) for zone in zones for host in zone.hosts):
        yield _infrastructure(
            NodeClassReason.STORAGE_NOT_FOUND,
            f"spec.bootDevice.storage: no host has an active storage {storage!r} "
            "with content type images; name another one or omit the field",
        )


def _has_storage(zone: ZoneContents, host: str, storage: str) -> bool:
    return not storage or storage in zone.stores.get(host, frozenset())


def _security_groups(
    node_class: ProxmoxNodeClass, zones: tuple[ZoneContents, ...], scope: NodeClassScope
) -> Iterable[NodeClassProblem]:
    for number, group in enumerate(node_class.spec.security_groups):
        field_name = f"spec.securityGroups[{number}].name"
        if not scope.allows_group(group.name):
            yield _infrastructure(
                NodeClassReason.SECURITY_GROUP_NOT_ALLOWED,
                f"{field_name}: the cluster may not use security group {group.name!r}; "
                "remove it or ask the operator to allow it",
            )
            continue
        groups = {z.region: z.security_groups for z in zones if z.security_groups is not None}
        if missing := sorted(r for r, found in groups.items() if group.name not in found):
            yield _infrastructure(
                NodeClassReason.SECURITY_GROUP_NOT_FOUND,
                f"{field_name}: no security group {group.name!r} in region {', '.join(missing)}; "
                "create it in the datacenter's firewall or remove it",
            )


def _tags(node_class: ProxmoxNodeClass) -> Iterable[NodeClassProblem]:
    for number, tag in enumerate(node_class.spec.tags):
        if is_reserved_tag(tag):
            yield _infrastructure(
                NodeClassReason.TAG_NOT_ALLOWED,
                f"spec.tags[{number}]: tag {tag!r} has a meaning for Moxwell; use another one",
            )


def _templates(
    node_class: ProxmoxNodeClass,
    template: InstanceTemplate | None,
    zones: tuple[ZoneContents, ...],
    scope: NodeClassScope,
    tags: tuple[str, ...],
) -> tuple[tuple[SelectedZone, ...], tuple[NodeClassProblem, ...]]:
    ref = node_class.spec.instance_template_ref
    if template is None:
        message = f"spec.instanceTemplateRef: no {ref.kind} {ref.name!r}; create it"
        return (), (_no_template(NodeClassReason.TEMPLATE_NOT_FOUND, message),)
    regional = [z for z in zones if template.spec.region in (None, z.region)]
    found = matching(template, (t for z in regional for t in z.templates), tags)
    allowed = frozenset(t for t in found if scope.allows_template(t))
    if not allowed:
        return (), (_unusable(ref.kind, ref.name),)
    storage = node_class.spec.boot_device.storage
    selected = tuple(
        SelectedZone(HostKey(zone.region, host), nearest, zone.failure_domain)
        for zone in regional
        for host in sorted(zone.hosts)
        if _has_storage(zone, host, storage)
        if (nearest := _nearest(zone, host, allowed)) is not None
    )
    return selected, ()


def _no_template(reason: NodeClassReason, message: str) -> NodeClassProblem:
    return NodeClassProblem(NodeClassPart.TEMPLATE, reason, message)


def _unusable(kind: str, name: str) -> NodeClassProblem:
    """One message for templates that do not exist and for those that may not be used."""
    advice = (
        "correct its name, tags or region, tag a template with a Kubernetes version, "
        "or ask the operator to allow the template"
    )
    if kind == "ProxmoxTemplate":
        advice = f"its condition Ready says why it is not made; else {advice}"
    return _no_template(
        NodeClassReason.TEMPLATE_NOT_FOUND,
        f"spec.instanceTemplateRef: {kind} {name!r} matches no template that the cluster may use; "
        f"{advice}",
    )


def matching(
    template: InstanceTemplate, found: Iterable[Template], tags: Iterable[str] = ()
) -> tuple[Template, ...]:
    """
    The templates of the inventory that are meant, region by region.

    ``tags`` are those of the templates that were built from a ProxmoxTemplate, and from its present
    revision. Templates with these tags come first; while a new revision is built, the old one is
    used.
    """
    named = [each for each in found if _matches(template, each)]
    for tag in tags:
        marked = {t.key.region for t in named if tag in t.tags}
        named = [t for t in named if tag in t.tags or t.key.region not in marked]
    return tuple(named)


def _matches(template: InstanceTemplate, found: Template) -> bool:
    """Whether the name and tags are right; a ProxmoxTemplate gives a template its own name."""
    if isinstance(template, ProxmoxTemplate):
        return found.name == template.name
    spec = template.spec
    tags = {tag.lower() for tag in spec.tags or ()}
    named = spec.template_name in (None, found.name)
    return named and tags <= {tag.lower() for tag in found.tags}


def _nearest(zone: ZoneContents, name: str, templates: frozenset[Template]) -> Template | None:
    """The template on the host, else the first on a host of its region and architecture."""
    host, arch = HostKey(zone.region, name), zone.architectures.get(name, "")
    usable = [
        t
        for t in templates
        if t.key.region == host.region
        and (t.key == host or zone.architectures.get(t.key.name, "") == arch)
    ]
    return min(usable, key=lambda t: (t.key != host, t.key, t.vmid), default=None)
