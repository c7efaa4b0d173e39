"""Observes a ProxmoxNodeClass: its hosts and templates, its Secrets, its claims and machines."""

from moxwell.api.capi.core import Machine
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import PROVIDER_GROUP, ProxmoxNodeClass
from moxwell.bootstrap import node_templates
from moxwell.bootstrap.network import GuestNetwork, InterfaceAddress, Nic
from moxwell.bootstrap.node_templates import InvalidNodeTemplate, NodeIdentity, NodeTemplateData
from moxwell.controllers.karpenter.proxmox.instance_record import record_of
from moxwell.controllers.karpenter.proxmox.kubelet_settings import kubelet_patch
from moxwell.controllers.karpenter.proxmox.node_bootstrap import SecretUnusable
from moxwell.controllers.karpenter.proxmox.node_class.plan import ObservedNodeClass
from moxwell.controllers.karpenter.proxmox.node_class_check import (
    NodeClassPart,
    NodeClassProblem,
    NodeClassReason,
)
from moxwell.controllers.karpenter.proxmox.provider import BY_CLUSTER, ProviderParts
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.scheduling.guest_sizes import GuestOverhead
from moxwell.scheduling.host_room import HostRoom
from moxwell.scheduling.inventory_model import GIB
from moxwell.scheduling.numa.topology import TopologySource

TEMPLATES_FIELD = "spec.metadataOptions.templatesRef"
VALUES_FIELD = "spec.metadataOptions.valuesRef"
SAMPLE_IDENTITY = NodeIdentity(
    hostname="node",
    provider_id="proxmox://region/100",
    vmid=100,
    uuid="00000000-0000-4000-8000-000000000000",
    region="region",
    host="host",
)
SAMPLE_NETWORK = GuestNetwork(
    (
        Nic(
            "net0",
            "BC:24:11:00:00:01",
            (InterfaceAddress("192.0.2.10", 24, "192.0.2.1"),),
            dns=("192.0.2.1",),
        ),
    )
)


class NodeClassObserver:
    """Observes node classes of one cluster."""

    def __init__(self, cluster: Key, parts: ProviderParts, claims: Cache[NodeClaim]) -> None:
        self._cluster, self._parts, self._claims = cluster, parts, claims

    async def see(self, obj: ProxmoxNodeClass) -> ObservedNodeClass:
        claims = tuple(sorted(c.name for c in self._claims.list() if _uses(c, obj.name)))
        if obj.deleting:
            return ObservedNodeClass(claims=claims, warm=self._parts.warm.of(obj.name))
        read = await self._parts.reader.read(obj)
        pinned = [r for h in read.hosts if (r := h.room).numa and r.numa.pins]
        return ObservedNodeClass(
            read.checked,
            await self._metadata_problem(obj),
            claims,
            machines=self._machines(obj),
            defaults=self._parts.sources.defaults(),
            pins=bool(pinned),
            unpinned=tuple(sorted(r.key for r in pinned if not self._sets_affinity(r))),
        )

    def _sets_affinity(self, room: HostRoom) -> bool:
        """Whether the login or the host agent pins vCPUs on a host."""
        region = self._parts.reader.region(room.key.region)
        by_agent = room.numa is not None and room.numa.topology.source is TopologySource.AGENT
        return by_agent or (region is not None and region.config.is_root)

    def _machines(self, obj: ProxmoxNodeClass) -> tuple[ProxmoxMachine, ...]:
        own = (
            m
            for m in self._parts.machines.by(BY_CLUSTER, str(self._cluster))
            if _made_from(m, obj.name)
        )
        cache = self._parts.sources.management.proxmox_machines
        found = (cache.find(Key(m.namespace, m.name)) for m in own)
        return tuple(m for m in found if m is not None)

    async def _metadata_problem(self, obj: ProxmoxNodeClass) -> NodeClassProblem | None:
        """The first mistake in the Secrets of the metadata options."""
        options = obj.spec.metadata_options
        if options.type != "cdrom":
            return None
        if options.templates_ref is None or not options.templates_ref.name:
            message = f"{TEMPLATES_FIELD}: type cdrom needs a Secret with templates; name it"
            return _problem(NodeClassReason.SECRET_NOT_FOUND, message)
        try:
            templates = await self._parts.bootstrap.read(options.templates_ref, TEMPLATES_FIELD)
            values = await self._parts.bootstrap.read(options.values_ref, VALUES_FIELD)
        except SecretUnusable as error:
            return _problem(NodeClassReason.SECRET_NOT_FOUND, str(error))
        return template_problem(obj, templates, values)


def template_problem(
    obj: ProxmoxNodeClass, templates: dict[str, str], values: dict[str, str]
) -> NodeClassProblem | None:
    """Render the templates for a sample node."""
    ref = obj.spec.metadata_options.templates_ref
    secret = f"{ref.namespace}/{ref.name}" if ref else ""
    if not set(templates) & set(node_templates.FILES):
        keys = ", ".join(node_templates.FILES)
        message = f"{TEMPLATES_FIELD}: Secret {secret} has none of the keys {keys}; add one"
        return _problem(NodeClassReason.SECRET_NOT_FOUND, message)
    sample = NodeTemplateData(
        templates=templates,
        values=values,
        node_class=obj.name,
        instance_type="c1.2VCPU-4GB",
        tags=obj.spec.tags,
        cpus=2,
        memory_bytes=4 * GIB,
        version="v1.34.0",
        root_ca="-----BEGIN CERTIFICATE-----",
        token="abcdef.0123456789abcdef",
        kubelet=kubelet_patch(obj.spec.kubelet_configuration, GuestOverhead()),
    )
    try:
        node_templates.render_files(sample, SAMPLE_IDENTITY, SAMPLE_NETWORK)
    except InvalidNodeTemplate as error:
        message = f"{TEMPLATES_FIELD}: Secret {secret}, key {error}; correct the template"
        return _problem(NodeClassReason.INVALID_TEMPLATE, message)
    return None


def _problem(reason: NodeClassReason, message: str) -> NodeClassProblem:
    return NodeClassProblem(NodeClassPart.METADATA, reason, message)


def _uses(claim: NodeClaim, node_class: str) -> bool:
    ref = claim.spec.node_class_ref
    return (ref.group, ref.kind, ref.name) == (PROVIDER_GROUP, "ProxmoxNodeClass", node_class)


def _made_from(machine: Machine, node_class: str) -> bool:
    record = record_of(machine)
    return record is not None and record.node_class == node_class
