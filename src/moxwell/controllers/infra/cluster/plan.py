"""
The decision for a cluster's ground, and its status. Pure.

Pools first, then the endpoint; regions are only watched. One region that is down makes the ground
not ready, but takes back nothing: what was provisioned stays so, and the other regions work on.
"""

from dataclasses import dataclass

from moxwell.api.conditions import Condition, Truth
from moxwell.api.infra.cluster import (
    ClusterStatus,
    Endpoint,
    LocalRef,
    ProxmoxCluster,
    RegionHealth,
    SecretRef,
    ZoneRef,
)
from moxwell.api.infra.machine import Initialization
from moxwell.api.infra.network import PoolRef
from moxwell.controllers.infra.cluster.see import GRACE_SECONDS, Seen
from moxwell.runtime.move import Done, Wait
from moxwell.scheduling.zone_settings import MadePool

API_PORT = 6443
UNKNOWN = frozenset({"RegionUnreachable"})


@dataclass(frozen=True, slots=True)
class PutPools:
    """Make pools, or bring them up to date; remove those that are wanted no more."""

    pools: tuple[MadePool, ...]
    unwanted: tuple[str, ...] = ()
    grace: int = GRACE_SECONDS


@dataclass(frozen=True, slots=True)
class HoldSecrets:
    """Keep the credentials as long as guests exist, and let ``clusterctl move`` take them along."""

    refs: tuple[SecretRef, ...]


@dataclass(frozen=True, slots=True)
class ReleaseSecrets:
    """The last guest is gone: the credentials may go too."""

    refs: tuple[SecretRef, ...]


@dataclass(frozen=True, slots=True)
class AskEndpoint:
    """Claim an address for the control plane."""

    pool: PoolRef


@dataclass(frozen=True, slots=True)
class PutEndpoint:
    """Write the endpoint into the spec, where Cluster API reads it."""

    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give the endpoint's address back."""

    claims: tuple[str, ...]


Move = PutPools | HoldSecrets | ReleaseSecrets | AskEndpoint | PutEndpoint | GiveBack | Wait | Done


def next_move(obj: ProxmoxCluster, seen: Seen) -> Move:
    """The one thing to do next, decided from what is true now."""
    if obj.deleting:
        return _unmake(seen)
    if seen.stuck is not None:
        return seen.stuck
    if seen.pools_missing or seen.pools_unwanted:
        return PutPools(seen.pools_missing, seen.pools_unwanted, seen.grace)
    if seen.secrets_loose:
        return HoldSecrets(seen.secrets_loose)
    if seen.problem:
        return Wait(seen.problem_reason, seen.problem)
    return _endpoint(obj, seen) or _regions(seen)


def _unmake(seen: Seen) -> Move:
    if seen.machines:
        some = ", ".join(seen.machines[:5]) + (" …" if len(seen.machines) > 5 else "")
        return Wait("WaitingForMachines", f"{len(seen.machines)} machines are left: {some}")
    if seen.owned_claims:
        return GiveBack(seen.owned_claims)
    if seen.addresses_left:
        return Wait("WaitingForAddresses", f"{seen.addresses_left} addresses are still given")
    if seen.pools_unwanted:
        return PutPools((), seen.pools_unwanted)
    if seen.secrets_held:
        return ReleaseSecrets(seen.secrets_held)
    return Done()


def _endpoint(obj: ProxmoxCluster, seen: Seen) -> Move | None:
    own = obj.spec.control_plane_endpoint
    if own and own.host:
        return None
    if seen.endpoint is not None:
        return PutEndpoint(seen.endpoint)
    pool = obj.spec.control_plane_endpoint_pool
    if pool is not None:
        if seen.endpoint_given:
            return PutEndpoint(Endpoint(host=seen.endpoint_given, port=_port(seen)))
        if seen.endpoint_claimed:
            return Wait("WaitingForEndpoint", f"no answer yet from {pool.kind} {pool.name}")
        return AskEndpoint(pool)
    if obj.spec.external_managed_control_plane:
        return Wait("MissingControlPlaneEndpoint", "the control plane has not brought one yet")
    return Wait(
        "MissingControlPlaneEndpoint",
        "set spec.controlPlaneEndpoint, a controlPlaneEndpointPool, or externalManagedControlPlane",
    )


def _port(seen: Seen) -> int:
    network = seen.cluster.spec.cluster_network if seen.cluster else None
    return (network.api_server_port if network else None) or API_PORT


def _regions(seen: Seen) -> Move:
    down = [r for r in seen.regions if not r.available]
    if down:
        said = "; ".join(_told(r) for r in down)
        return Wait("RegionUnreachable", said)
    return Done()


def describe(obj: ProxmoxCluster, seen: Seen, move: Move) -> ClusterStatus:
    """What is true of the ground."""
    usable = any(r.available for r in seen.regions) and not seen.problem
    made = bool(obj.status.initialization.provisioned) or (
        usable and (isinstance(move, Done) or _only_down(move))
    )
    known = obj.status.failure_domains if seen.problem else ()
    return ClusterStatus(
        conditions=(
            _condition(obj, "Ready", _verdict(obj, move)),
            _condition(obj, "ProxmoxAvailable", _available(seen)),
        ),
        initialization=Initialization(provisioned=made or None),
        failure_domains=seen.domains or known,
        regions=seen.regions,
        in_cluster_ip_pool_ref=tuple(LocalRef(name=p.name) for p in seen.pools),
        in_cluster_zone_ref=_zone_refs(seen),
        next_move=_next(move),
        observed_generation=obj.metadata.generation,
    )


def _condition(obj: ProxmoxCluster, type_: str, said: tuple[Truth, str, str]) -> Condition:
    truth, reason, message = said
    return Condition(
        type=type_,
        status=truth,
        reason=reason,
        message=message,
        observed_generation=obj.metadata.generation,
    )


def _only_down(move: Move) -> bool:
    return isinstance(move, Wait) and move.reason in UNKNOWN


def _verdict(obj: ProxmoxCluster, move: Move) -> tuple[Truth, str, str]:
    if isinstance(move, Wait):
        return ("Unknown" if move.reason in UNKNOWN else "False"), move.reason, move.message
    if obj.deleting:
        return "False", "Deleting", f"next: {_next(move)}"
    if isinstance(move, Done):
        return "True", "Provisioned", ""
    return "False", type(move).__name__, f"next: {_next(move)}"


def _available(seen: Seen) -> tuple[Truth, str, str]:
    if seen.problem:
        return "False", seen.problem_reason, seen.problem
    if not seen.regions:
        return "Unknown", "NotLooked", ""
    down = [r for r in seen.regions if not r.available]
    if not down:
        return "True", "Provisioned", ""
    said = "; ".join(_told(r) for r in down)
    some = "SomeRegionsUnreachable" if len(down) < len(seen.regions) else "ProxmoxUnreachable"
    return "False", some, said


def _told(health: RegionHealth) -> str:
    named = health.message.startswith("region ")
    return health.message if named else f"region {health.name}: {health.message}"


def _zone_refs(seen: Seen) -> tuple[ZoneRef, ...]:
    zones: dict[str, dict[int, str]] = {}
    for pool in seen.pools:
        zones.setdefault(pool.zone, {})[pool.family] = pool.name
    return tuple(
        ZoneRef(
            zone=zone,
            v4=LocalRef(name=found[4]) if 4 in found else None,
            v6=LocalRef(name=found[6]) if 6 in found else None,
        )
        for zone, found in sorted(zones.items())
    )


def _next(move: Move) -> str:
    if isinstance(move, Done):
        return ""
    return f"wait: {move.reason}" if isinstance(move, Wait) else type(move).__name__
