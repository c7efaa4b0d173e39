"""
Computes the status of a ProxmoxCluster from what was observed and decided. Pure.

``initialization`` is written only when the cluster is provisioned: Cluster API's contract demands
that it never changes back. The failure domains are left out while the regions cannot be resolved,
so that they stay as they are.
"""

from typing import Any

import msgspec

from moxwell.api.conditions import Condition, ConditionStatus
from moxwell.api.infra.cluster import LocalRef, ProxmoxCluster, ProxmoxClusterStatus, ZoneRef
from moxwell.api.infra.machine import Initialization
from moxwell.api.infra.zone_settings import GeneratedPool, generated_pools
from moxwell.controllers.infra.cluster.plan import (
    Move,
    ObservedProxmoxCluster,
    ProxmoxClusterReason,
    name_of,
    unreachable_regions,
)
from moxwell.controllers.infra.zone_defaults import cluster_name
from moxwell.runtime.move import Done, Wait

READY, AVAILABLE = "Ready", "ProxmoxAvailable"


def describe(obj: ProxmoxCluster, seen: ObservedProxmoxCluster, move: Move) -> dict[str, Any]:
    """The status fields that this pass observed; unset ones are explicit nulls."""
    pools = generated_pools(cluster_name(obj), obj.spec)
    status = ProxmoxClusterStatus(
        conditions=(
            _condition(obj, READY, _ready(obj, move)),
            _condition(obj, AVAILABLE, _available(seen)),
        ),
        initialization=Initialization(provisioned=True),
        failure_domains=seen.failure_domains,
        regions=seen.regions,
        in_cluster_ip_pool_ref=tuple(LocalRef(name=p.name) for p in pools),
        in_cluster_zone_ref=_zone_refs(pools),
        next_move=name_of(move),
        observed_generation=obj.metadata.generation,
    )
    fields: dict[str, Any] = dict.fromkeys(status.__struct_encode_fields__) | msgspec.to_builtins(
        status
    )
    if not _is_provisioned(seen, move):
        del fields["initialization"]
    if seen.problem and not seen.failure_domains:
        del fields["failureDomains"]
    return fields


def _is_provisioned(seen: ObservedProxmoxCluster, move: Move) -> bool:
    usable = any(r.available for r in seen.regions) and not seen.problem
    return usable and (isinstance(move, Done) or _only_unreachable(move))


def _only_unreachable(move: Move) -> bool:
    return isinstance(move, Wait) and move.reason == ProxmoxClusterReason.REGION_UNREACHABLE


def _condition(
    obj: ProxmoxCluster, type_: str, state: tuple[ConditionStatus, str, str]
) -> Condition:
    status, reason, message = state
    return Condition(
        type=type_,
        status=status,
        reason=str(reason),
        message=message,
        observed_generation=obj.metadata.generation,
    )


def _ready(obj: ProxmoxCluster, move: Move) -> tuple[ConditionStatus, str, str]:
    if isinstance(move, Wait):
        return ("Unknown" if _only_unreachable(move) else "False"), move.reason, move.message
    if obj.deleting:
        return "False", ProxmoxClusterReason.DELETING, f"next: {name_of(move)}"
    if isinstance(move, Done):
        return "True", ProxmoxClusterReason.PROVISIONED, ""
    return "False", name_of(move), f"next: {name_of(move)}"


def _available(seen: ObservedProxmoxCluster) -> tuple[ConditionStatus, str, str]:
    if seen.problem:
        return "False", seen.problem_reason, seen.problem
    if not seen.regions:
        return "Unknown", ProxmoxClusterReason.NOT_OBSERVED, ""
    message = unreachable_regions(seen)
    if not message:
        return "True", ProxmoxClusterReason.PROVISIONED, ""
    some = any(r.available for r in seen.regions)
    reason = (
        ProxmoxClusterReason.SOME_REGIONS_UNREACHABLE
        if some
        else ProxmoxClusterReason.PROXMOX_UNREACHABLE
    )
    return "False", reason, message


def _zone_refs(pools: tuple[GeneratedPool, ...]) -> tuple[ZoneRef, ...]:
    zones: dict[str, dict[int, str]] = {}
    for pool in pools:
        zones.setdefault(pool.zone, {})[pool.family] = pool.name
    return tuple(
        ZoneRef(
            zone=zone,
            v4=LocalRef(name=names[4]) if 4 in names else None,
            v6=LocalRef(name=names[6]) if 6 in names else None,
        )
        for zone, names in sorted(zones.items())
    )
