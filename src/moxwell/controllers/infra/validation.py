"""
Validates ProxmoxCluster, ProxmoxMachine and their templates against the known regions. Pure.

What Cluster API or Moxwell itself creates is not validated here: it was validated as part of the
object that it is made from, and its conditions tell what is missing.
"""

from collections.abc import Iterator
from typing import Any

from moxwell.api.field_errors import FieldError
from moxwell.api.infra.cluster import ProxmoxCluster, ProxmoxClusterSpec, ProxmoxClusterTemplate
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec, ProxmoxMachineTemplate
from moxwell.api.kinds import Object
from moxwell.scheduling import known_infrastructure as infrastructure
from moxwell.scheduling.known_infrastructure import KnownInfrastructure, KnownRegion
from moxwell.scheduling.templates import TemplateQuery

MANAGED_BY = "app.kubernetes.io/managed-by"
Regions = tuple[KnownRegion, ...] | None


def infrastructure_errors(
    obj: Object, old: Object | None, known: KnownInfrastructure
) -> tuple[FieldError, ...]:
    """Names that are known not to exist; what the previous state has too is not reported."""
    if obj.metadata.owner_references or obj.metadata.labels.get(MANAGED_BY) == "moxwell":
        return ()
    before = set(_errors(old, known)) if old is not None else set()
    return tuple(error for error in _errors(obj, known) if error not in before)


def _errors(obj: Object, known: KnownInfrastructure) -> Iterator[FieldError]:
    match obj:
        case ProxmoxCluster():
            yield from _cluster(obj.spec, "spec", known)
        case ProxmoxClusterTemplate():
            yield from _cluster(obj.spec.template.spec, "spec.template.spec", known)
        case ProxmoxMachine():
            yield from _machine(obj.spec, "spec", known)
        case ProxmoxMachineTemplate():
            yield from _machine(obj.spec.template.spec, "spec.template.spec", known)


def _present(*errors: FieldError | None) -> Iterator[FieldError]:
    yield from (error for error in errors if error is not None)


def _cluster(
    spec: ProxmoxClusterSpec, path: str, known: KnownInfrastructure
) -> Iterator[FieldError]:
    own = {region.name for region in spec.regions}  # the cluster brings their credentials
    if spec.region and spec.region not in own and spec.credentials_ref is None:
        yield from _present(known.region_error(f"{path}.region", spec.region))
    regions = _regions_of(spec, known)
    pool = spec.pool or ""
    yield from _present(infrastructure.pool_error(f"{path}.pool", pool, regions))
    for number, host in enumerate(spec.allowed_nodes):
        yield from _present(
            infrastructure.host_error(f"{path}.allowedNodes[{number}]", host, regions)
        )
    for zone in spec.zone_config:
        at = f"{path}.zoneConfig[{zone.zone}]"
        if zone.region and zone.region not in own:
            yield from _present(known.region_error(f"{at}.region", zone.region))
        here = _of_zone(zone.region or spec.region or "", own, known)
        yield from _present(
            infrastructure.storage_error(f"{at}.storage", zone.storage or "", here),
            infrastructure.bridge_error(f"{at}.bridge", zone.bridge or "", here),
            *(
                infrastructure.host_error(f"{at}.nodes[{number}]", host, here)
                for number, host in enumerate(zone.nodes)
            ),
        )


def _of_zone(name: str, own: set[str], known: KnownInfrastructure) -> Regions:
    if name in own:
        return None
    return known.of([name]) if name else _all(known)


def _regions_of(spec: ProxmoxClusterSpec, known: KnownInfrastructure) -> Regions:
    if spec.regions or spec.credentials_ref or spec.server:
        return None
    names = {zone.region for zone in spec.zone_config if zone.region}
    if spec.region or names:
        return known.of(sorted({*names, *([spec.region] if spec.region else [])}))
    return _all(known)


def _all(known: KnownInfrastructure) -> Regions:
    return tuple(known.regions.values()) if known.complete else None


def _machine(
    spec: ProxmoxMachineSpec, path: str, known: KnownInfrastructure
) -> Iterator[FieldError]:
    """A machine may be in any region: its cluster decides, and may bring regions of its own."""
    if spec.claim is not None or spec.virtual_machine_id is not None:
        return
    regions = _all(known)
    devices = spec.network.network_devices if spec.network else ()
    yield from _present(
        infrastructure.storage_error(f"{path}.storage", spec.storage or "", regions),
        infrastructure.pool_error(f"{path}.pool", spec.pool or "", regions),
        infrastructure.host_error(f"{path}.target", spec.target or "", regions),
        *(
            infrastructure.host_error(f"{path}.allowedNodes[{number}]", host, regions)
            for number, host in enumerate(spec.allowed_nodes)
        ),
        *(
            infrastructure.bridge_error(
                f"{path}.network.networkDevices[{d.name}].bridge", d.bridge or "", regions
            )
            for d in devices
        ),
    )
    query = _query(spec)
    if query is not None:
        yield from _present(infrastructure.template_error(f"{path}.{query[0]}", query[1], regions))


def _query(spec: ProxmoxMachineSpec) -> tuple[str, TemplateQuery] | None:
    if spec.template_id:
        return "templateID", TemplateQuery(vmid=spec.template_id, host=spec.source_node or "")
    if spec.template_name:
        return "templateName", TemplateQuery(name=spec.template_name)
    selector: Any = spec.template_selector
    if selector is not None:
        tags = frozenset(selector.match_tags)
        return "templateSelector", TemplateQuery(tags=tags, policy=selector.match_policy or "exact")
    return None
