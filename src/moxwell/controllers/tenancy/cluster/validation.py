"""
Validates a ``Kubernetes`` object against its kind, the regions and its previous state. Pure.

An error that the previous state has too is not reported: what became impossible after it was
accepted (a bridge was removed) must not prevent other changes.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from moxwell.api import quantity
from moxwell.api.cozystack import Kubernetes, NodeGroup
from moxwell.api.field_errors import FieldError
from moxwell.api.infra import admission
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachineTemplate
from moxwell.controllers.tenancy.cluster import instance_types, upgrades
from moxwell.controllers.tenancy.cluster.defaults import Defaults, groups_of, version_of
from moxwell.controllers.tenancy.cluster.desired_objects import expand
from moxwell.controllers.tenancy.cluster.naming import seconds
from moxwell.errors import Invalid
from moxwell.scheduling import known_infrastructure as infrastructure
from moxwell.scheduling.known_infrastructure import KnownInfrastructure
from moxwell.scheduling.templates import TemplateQuery

MAX_NODES = 5000  # of a cluster, as Kubernetes documents
MAX_LABEL = 63  # characters of a label value, and of the name of a node
# A node is called CLUSTER-GROUP-TEMPLATEHASH-SUFFIX: ten and five characters.
MACHINE_SUFFIX = 1 + 10 + 1 + 5
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LETTER = re.compile(r"[a-z]")
_EXPANDED: dict[str, Any] = {
    "ProxmoxCluster": ProxmoxCluster,
    "ProxmoxMachineTemplate": ProxmoxMachineTemplate,
}


def cluster_errors(
    app: Kubernetes, old: Kubernetes | None, defaults: Defaults, known: KnownInfrastructure
) -> tuple[FieldError, ...]:
    """Why a cluster cannot work, or cannot be changed so; empty if nothing is known against it."""
    changes = tuple(_change_errors(app, old))
    if changes:
        return changes
    before = set(_state_errors(old, defaults, known)) if old is not None else set()
    return tuple(e for e in dict.fromkeys(_state_errors(app, defaults, known)) if e not in before)


def _state_errors(
    app: Kubernetes, defaults: Defaults, known: KnownInfrastructure
) -> Iterator[FieldError]:
    """The errors of one state, whatever was before."""
    try:
        groups = groups_of(app)
    except Invalid as error:
        yield FieldError("", str(error))
        return
    yield from _names(app, groups)
    shapes = [e for group in groups for e in _shape(group, _path(group))]
    yield from shapes
    version = _version(app)
    yield from version
    places = list(_places(app, groups, defaults, known))
    yield from places
    if not (shapes or version or places):
        yield from _templates(app, groups, defaults, known)
        yield from _expanded(app, defaults)


def _path(group: NodeGroup) -> str:
    return f"spec.nodeGroups[{group.name}]"


def _names(app: Kubernetes, groups: tuple[NodeGroup, ...]) -> Iterator[FieldError]:
    """Names of objects, nodes and label values that are derived from the given names."""
    if not _LABEL.fullmatch(app.name) or not _LETTER.match(app.name):
        text = "has lower-case letters, digits and dashes only, and begins with a letter"
        yield FieldError("metadata.name", f"the name of a cluster {text}, not {app.name!r}")
    for group in groups:
        if not _LABEL.fullmatch(group.name):
            text = "the name of a group has lower-case letters, digits and dashes only"
            yield FieldError(f"{_path(group)}.name", f"{text}, not {group.name!r}")
        length = len(app.name) + 1 + len(group.name) + MACHINE_SUFFIX
        if length > MAX_LABEL:
            room = MAX_LABEL - MACHINE_SUFFIX - 1
            text = f"{app.name}-{group.name} is too long by {length - MAX_LABEL} characters"
            limit = f"the names of cluster and group may have {room} together"
            yield FieldError("metadata.name", f"{text}: nodes get {MACHINE_SUFFIX} more, {limit}")


def _shape(group: NodeGroup, path: str) -> Iterator[FieldError]:
    """Numbers, sizes and durations of one group."""
    least, most = group.min_replicas, group.max_replicas
    for name, value in (
        ("replicas", group.replicas),
        ("minReplicas", least),
        ("maxReplicas", most),
    ):
        if value is not None and value < 0:
            yield FieldError(f"{path}.{name}", f"{value} is negative")
        if value is not None and value > MAX_NODES:
            text = f"{value} is more than {MAX_NODES}, the nodes that Kubernetes supports"
            yield FieldError(f"{path}.{name}", text)
    if least is not None and most is not None and least > most:
        yield FieldError(f"{path}.minReplicas", f"{least} is more than maxReplicas, {most}")
    checks: dict[str, Callable[[], object]] = {
        "instanceType": lambda: instance_types.size_of(
            NodeGroup(instance_type=group.instance_type)
        ),
        "resources.cpu": lambda: _parse(group.resources.cpu),
        "resources.memory": lambda: _parse(group.resources.memory),
        "diskSize": lambda: _parse(group.disk_size),
        "nodeStartupTimeout": lambda: seconds(group.node_startup_timeout),
    }
    for name, check in checks.items():
        try:
            check()
        except Invalid as error:
            yield FieldError(f"{path}.{name}", str(error))


def _parse(text: str | int | None) -> None:
    if text is not None and quantity.Quantity.parse(text).nano <= 0:
        raise Invalid(f"{text} must be more than 0")


def _version(app: Kubernetes) -> list[FieldError]:
    try:
        if app.spec.version:
            upgrades.check_upgrade("", app.spec.version)
    except Invalid as error:
        return [FieldError("spec.version", str(error))]
    return []


# Regions


def _places(
    app: Kubernetes,
    groups: tuple[NodeGroup, ...],
    defaults: Defaults,
    known: KnownInfrastructure,
) -> Iterator[FieldError]:
    for number, name in enumerate(app.spec.regions):
        yield from _present(known.region_error(f"spec.regions[{number}]", name))
    for group in groups:
        path = _path(group)
        for number, name in enumerate(group.regions):
            yield from _present(known.region_error(f"{path}.regions[{number}]", name))
        regions = known.of(_region_names(app, group, defaults))
        for number, zone in enumerate(group.zones):
            error = infrastructure.zone_error(f"{path}.zones[{number}]", zone, regions)
            yield from _present(error)
        yield from _present(infrastructure.storage_error(f"{path}.storage", group.storage, regions))
        yield from _present(infrastructure.bridge_error(f"{path}.bridge", group.bridge, regions))


def _present(error: FieldError | None) -> Iterator[FieldError]:
    if error is not None:
        yield error


def _region_names(app: Kubernetes, group: NodeGroup, defaults: Defaults) -> tuple[str, ...]:
    return group.regions or app.spec.regions or tuple(r.name for r in defaults.regions)


def _templates(
    app: Kubernetes,
    groups: tuple[NodeGroup, ...],
    defaults: Defaults,
    known: KnownInfrastructure,
) -> Iterator[FieldError]:
    for group in groups:
        path, query = _query(app, group, defaults)
        regions = known.of(_region_names(app, group, defaults))
        yield from _present(infrastructure.template_error(path, query, regions))


def _query(app: Kubernetes, group: NodeGroup, defaults: Defaults) -> tuple[str, TemplateQuery]:
    path = _path(group)
    if group.template_tags:
        return f"{path}.templateTags", TemplateQuery(tags=frozenset(group.template_tags))
    if isinstance(group.template, int):
        return f"{path}.template", TemplateQuery(vmid=group.template)
    if group.template:
        return f"{path}.template", TemplateQuery(name=group.template)
    if group.version:
        return f"{path}.version", TemplateQuery(kubernetes=group.version)
    return "spec.version", TemplateQuery(kubernetes=version_of(app, defaults))


def _expanded(app: Kubernetes, defaults: Defaults) -> Iterator[FieldError]:
    """What the admission of the objects that the controller writes would refuse later."""
    try:
        objects = expand(app, defaults)
    except Invalid as error:
        yield FieldError("", str(error))
        return
    for tree in objects:
        kind = _EXPANDED.get(tree["kind"])
        if kind is None:
            continue
        for message in admission.validation_errors(msgspec.convert(tree, kind, strict=False)):
            yield FieldError("", f"{tree['kind']} {tree['metadata']['name']}: {message}")


# Changes


def _change_errors(app: Kubernetes, old: Kubernetes | None) -> Iterator[FieldError]:
    if old is None or app.spec.version == old.spec.version or not app.spec.version:
        return
    try:
        nodes = old.status.node_versions
        upgrades.check_upgrade(old.status.version, app.spec.version, nodes=nodes)
    except Invalid as error:
        yield FieldError("spec.version", str(error))


def with_running(defaults: Defaults, app: Kubernetes | None) -> Defaults:
    """The defaults with the version that the control plane of a cluster runs."""
    running = app.status.version if app is not None else ""
    return replace(defaults, running_version=running) if running else defaults
