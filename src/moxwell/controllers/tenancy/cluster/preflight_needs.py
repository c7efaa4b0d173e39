"""What a tenant cluster needs of its regions and which addresses its nodes get. Pure."""

from collections.abc import Iterable, Mapping

from moxwell.api.cozystack import Kubernetes, NodeGroup
from moxwell.api.ipam import GlobalInClusterIPPool
from moxwell.controllers.tenancy.cluster.defaults import (
    ClusterZone,
    Defaults,
    groups_of,
    version_of,
    zones_of,
)
from moxwell.controllers.tenancy.cluster.instance_types import size_of
from moxwell.preflight.addresses import AddressPlan
from moxwell.preflight.outcome import GuestNeed, NetworkNeed, RegionNeeds
from moxwell.scheduling.inventory_model import GIB, MIB
from moxwell.scheduling.templates import TemplateQuery

SERVICES, PODS = "10.96.0.0/16", "10.244.0.0/16"


def needs_of(
    app: Kubernetes, defaults: Defaults, existing: Mapping[str, int]
) -> dict[str, RegionNeeds]:
    """The needs by region; ``existing`` machines by group need no more room."""
    found: dict[str, list[tuple[NodeGroup, int, tuple[ClusterZone, ...]]]] = {}
    for group in groups_of(app):
        zones = zones_of(app, group, defaults)
        names = sorted({zone.region.name for zone in zones})
        missing = max(0, _wanted(group) - existing.get(group.name, 0))
        for name in names:
            rows = tuple(zone for zone in zones if zone.region.name == name)
            found.setdefault(name, []).append((group, -(-missing // len(names)), rows))
    return {name: _region(app, defaults, rows) for name, rows in sorted(found.items())}


def _region(
    app: Kubernetes,
    defaults: Defaults,
    rows: list[tuple[NodeGroup, int, tuple[ClusterZone, ...]]],
) -> RegionNeeds:
    region = rows[0][2][0].region
    hosts = [set(zone.hosts) for _, _, zones in rows for zone in zones]
    storages = {group.storage for group, _, _ in rows}
    return RegionNeeds(
        pool=region.resource_pool,
        networks=tuple(
            NetworkNeed(
                group.bridge or defaults.bridge or region.bridge,
                group.vlan or defaults.vlan or 0,
            )
            for group, _, _ in rows
        ),
        storage=storages.pop() if len(storages) == 1 else "",
        templates=tuple({_template(app, group, defaults): None for group, _, _ in rows}),
        guests=tuple(_guests(group, count) for group, count, _ in rows if count),
        hosts=frozenset().union(*hosts) if all(hosts) else frozenset(),
    )


def _wanted(group: NodeGroup) -> int:
    return (group.min_replicas or 0) if group.autoscaled else (group.replicas or 0)


def _guests(group: NodeGroup, count: int) -> GuestNeed:
    size = size_of(group)
    return GuestNeed(count, size.cores, size.memory_mib * MIB, size.disk_gib * GIB)


def _template(app: Kubernetes, group: NodeGroup, defaults: Defaults) -> TemplateQuery:
    if group.template_tags:
        return TemplateQuery(tags=frozenset(group.template_tags))
    if isinstance(group.template, int):
        return TemplateQuery(vmid=group.template)
    if group.template:
        return TemplateQuery(name=group.template)
    return TemplateQuery(kubernetes=group.version or version_of(app, defaults))


def address_plan(app: Kubernetes) -> AddressPlan | None:
    """The addresses that the cluster names itself."""
    given = app.spec.network
    if not given.addresses:
        return None
    name = f"cluster {app.namespace}/{app.name}"
    return AddressPlan(name, given.addresses, given.prefix or 24, given.gateway)


def pool_plan(pool: GlobalInClusterIPPool) -> AddressPlan:
    """The addresses of a pool that clusters share."""
    spec = pool.spec
    return AddressPlan(f"pool {pool.name}", spec.addresses, spec.prefix, spec.gateway)


def reserved_networks(control_planes: Iterable[str]) -> dict[str, str]:
    """Networks and addresses that no node may get."""
    found = {"the services of clusters": SERVICES, "the pods of clusters": PODS}
    return found | {f"the control plane address {a}": a for a in control_planes}
