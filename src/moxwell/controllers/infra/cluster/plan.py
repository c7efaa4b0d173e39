"""
Decides the next move of a ProxmoxCluster. Pure.

The order: connect the regions of its credentials, apply the IP pools, add finalizers to the
Secrets, set the control plane endpoint. A region that does not answer makes the cluster not ready;
what was provisioned stays so, and the other regions continue.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import CLUSTER_NAME, FailureDomain
from moxwell.api.infra.cluster import (
    ControlPlaneEndpoint,
    ProxmoxCluster,
    RegionHealth,
    SecretRef,
)
from moxwell.api.infra.network import PoolRef
from moxwell.api.infra.zone_settings import GeneratedPool, generated_pools
from moxwell.api.ipam import (
    InClusterIPPool,
    IPAddressClaim,
    IPAddressClaimSpec,
    IPPoolReference,
    PoolSpec,
)
from moxwell.api.kinds import owner_reference
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.zone_defaults import cluster_name
from moxwell.pve.config import RegionConfig
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait

API_PORT = 6443
ZONE_LABEL = "topology.kubernetes.io/proxmox-zone"
REUSE_GRACE_SECONDS = 60  # before a released address is given again
POOL_DELETED = "moxwell.dev/pool-deleted"  # annotation of claims that wait for their pool's grace


class ProxmoxClusterReason(StrEnum):
    """Reasons of the conditions of a ProxmoxCluster and of ``Wait`` moves."""

    PROVISIONED = "Provisioned"
    WAITING_FOR_CLUSTER = "WaitingForCluster"
    WAITING_FOR_MACHINES = "WaitingForMachines"
    WAITING_FOR_ADDRESSES = "WaitingForAddresses"
    WAITING_FOR_ENDPOINT = "WaitingForEndpoint"
    MISSING_ENDPOINT = "MissingControlPlaneEndpoint"
    REGION_UNREACHABLE = "RegionUnreachable"
    SOME_REGIONS_UNREACHABLE = "SomeRegionsUnreachable"
    PROXMOX_UNREACHABLE = "ProxmoxUnreachable"
    NOT_OBSERVED = "NotObserved"
    DELETING = "Deleting"


@dataclass(frozen=True, slots=True)
class ObservedProxmoxCluster:
    """Everything one pass observed of a ProxmoxCluster."""

    cluster: Cluster | None = None
    regions: tuple[RegionHealth, ...] = ()
    problem: str = ""  # why the regions cannot be resolved
    problem_reason: str = ""
    own_regions: tuple[RegionConfig, ...] = field(default=(), repr=False)  # from its Secrets
    connected_regions: tuple[RegionConfig, ...] = field(default=(), repr=False)
    failure_domains: tuple[FailureDomain, ...] = ()
    pools: Mapping[str, InClusterIPPool] = field(default_factory=dict)  # owned or wanted, by name
    owned_pools: frozenset[str] = frozenset()
    endpoint_claimed: bool = False
    endpoint_address: str = ""  # given for the claim
    unprotected_secrets: tuple[SecretRef, ...] = ()  # without our finalizer or the move label
    protected_secrets: tuple[SecretRef, ...] = ()  # with our finalizer, used by no other cluster
    machines: tuple[str, ...] = ()
    owned_claims: tuple[str, ...] = ()
    addresses_in_use: Mapping[str, int] = field(default_factory=dict)  # by pool
    waiting_claims: tuple[tuple[str, str], ...] = ()  # (pool, deleted claim) not annotated yet


@dataclass(frozen=True, slots=True)
class ConnectRegions:
    """Connect the regions of the cluster's Secrets, or reconnect them with new credentials."""

    owner: Key
    regions: tuple[RegionConfig, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ApplyPools:
    """Create or update the cluster's IP pools, and delete those no longer wanted."""

    namespace: str
    pools: tuple[InClusterIPPool, ...]
    unwanted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtectSecrets:
    """Add a finalizer to the Secrets, and the label that lets ``clusterctl move`` include them."""

    namespace: str  # of the cluster: only Secrets there are moved
    refs: tuple[SecretRef, ...]


@dataclass(frozen=True, slots=True)
class ReleaseSecrets:
    """Remove the finalizer from the Secrets after the last guest is gone."""

    refs: tuple[SecretRef, ...]


@dataclass(frozen=True, slots=True)
class ClaimEndpoint:
    """Claim an address for the control plane endpoint."""

    claim: IPAddressClaim


@dataclass(frozen=True, slots=True)
class SetEndpoint:
    """Write the control plane endpoint to the spec, where Cluster API reads it."""

    key: Key
    resource_version: str
    endpoint: ControlPlaneEndpoint


@dataclass(frozen=True, slots=True)
class ReleaseEndpoint:
    """Delete the IPAddressClaim of the endpoint."""

    namespace: str
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnnotateClaims:
    """Annotate deleted claims: the IPAM provider reads a pool again only if its claim changes."""

    namespace: str
    claims: tuple[str, ...]


Move = (
    ConnectRegions
    | ApplyPools
    | ProtectSecrets
    | ReleaseSecrets
    | ClaimEndpoint
    | SetEndpoint
    | ReleaseEndpoint
    | AnnotateClaims
    | Wait
    | Done
)


def plan(obj: ProxmoxCluster, seen: ObservedProxmoxCluster) -> Move:
    """The one next move."""
    if _must_connect(obj, seen):
        return ConnectRegions(Key(obj.namespace, obj.name), seen.own_regions)
    if obj.deleting:
        return _delete(obj, seen)
    if seen.cluster is None:
        return Wait(ProxmoxClusterReason.WAITING_FOR_CLUSTER, "no Cluster owns this object yet")
    missing, unwanted = missing_pools(obj, seen), unwanted_pools(obj, seen)
    if missing or unwanted:
        pools = tuple(_pool(obj, pool, _grace(obj, seen)) for pool in missing)
        return ApplyPools(obj.namespace, pools, unwanted)
    if seen.unprotected_secrets:
        return ProtectSecrets(obj.namespace, seen.unprotected_secrets)
    if seen.problem:
        return Wait(seen.problem_reason, seen.problem)
    return _endpoint(obj, seen, seen.cluster) or _regions(seen)


def name_of(move: Move) -> str:
    """The value of ``status.nextMove``."""
    if isinstance(move, Done):
        return ""
    return f"wait: {move.reason}" if isinstance(move, Wait) else type(move).__name__


def _must_connect(obj: ProxmoxCluster, seen: ObservedProxmoxCluster) -> bool:
    if seen.problem or (obj.deleting and not seen.machines):
        return False
    return seen.own_regions != seen.connected_regions


def _delete(obj: ProxmoxCluster, seen: ObservedProxmoxCluster) -> Move:
    if seen.machines:
        some = ", ".join(seen.machines[:5]) + (" …" if len(seen.machines) > 5 else "")
        message = f"{len(seen.machines)} machines remain: {some}"
        return Wait(ProxmoxClusterReason.WAITING_FOR_MACHINES, message)
    if seen.owned_claims:
        return ReleaseEndpoint(obj.namespace, seen.owned_claims)
    unwanted = unwanted_pools(obj, seen)
    in_use = sum(seen.addresses_in_use.get(name, 0) for name in unwanted)
    if in_use:  # the IPAM provider does not delete a pool with addresses in use
        return _release_addresses(obj, seen, in_use)
    if unwanted:
        return ApplyPools(obj.namespace, (), unwanted)
    if seen.protected_secrets:
        return ReleaseSecrets(seen.protected_secrets)
    return Done()


def _release_addresses(obj: ProxmoxCluster, seen: ObservedProxmoxCluster, in_use: int) -> Move:
    """Addresses that were released before the cluster was deleted need not wait any longer."""
    unwanted = unwanted_pools(obj, seen)
    waiting = [(pool, claim) for pool, claim in seen.waiting_claims if pool in unwanted]
    wanted = {pool.name: pool for pool in generated_pools(cluster_name(obj), obj.spec)}
    slow = tuple(
        _pool(obj, wanted[name], 0)
        for name in unwanted
        if name in wanted and seen.pools[name].spec.address_reuse_grace_period_seconds
    )
    if slow:
        return ApplyPools(obj.namespace, slow)
    if waiting:
        return AnnotateClaims(obj.namespace, tuple(claim for _, claim in waiting))
    message = f"{in_use} addresses are still in use"
    return Wait(ProxmoxClusterReason.WAITING_FOR_ADDRESSES, message)


# ---- pools


def _is_leaving(obj: ProxmoxCluster, seen: ObservedProxmoxCluster) -> bool:
    return obj.deleting or (seen.cluster is not None and seen.cluster.deleting)


def _grace(obj: ProxmoxCluster, seen: ObservedProxmoxCluster) -> int:
    """No address of a pool that is about to be deleted is given again, so none has to wait."""
    return 0 if _is_leaving(obj, seen) else REUSE_GRACE_SECONDS


def missing_pools(obj: ProxmoxCluster, seen: ObservedProxmoxCluster) -> tuple[GeneratedPool, ...]:
    """The pools that do not exist or differ from the spec."""
    wanted = generated_pools(cluster_name(obj), obj.spec)
    leaving = _is_leaving(obj, seen)
    return tuple(p for p in wanted if not _is_applied(p, seen.pools.get(p.name), leaving=leaving))


def unwanted_pools(obj: ProxmoxCluster, seen: ObservedProxmoxCluster) -> tuple[str, ...]:
    """The owned pools that the spec does not contain; all of them while deleting."""
    wanted = {p.name for p in generated_pools(cluster_name(obj), obj.spec)}
    return tuple(
        name
        for name, pool in sorted(seen.pools.items())
        if name in seen.owned_pools and not pool.deleting and (name not in wanted or obj.deleting)
    )


def _is_applied(wanted: GeneratedPool, found: InClusterIPPool | None, *, leaving: bool) -> bool:
    if found is None or (leaving and found.spec.address_reuse_grace_period_seconds):
        return False
    spec, config = found.spec, wanted.config
    have = (tuple(spec.addresses), spec.prefix, spec.gateway)
    return have == (tuple(config.addresses), config.prefix, config.gateway)


def _pool(obj: ProxmoxCluster, pool: GeneratedPool, grace: int) -> InClusterIPPool:
    config = pool.config
    return InClusterIPPool(
        metadata=_owned(obj, pool.name, {ZONE_LABEL: pool.zone}),
        spec=PoolSpec(
            addresses=config.addresses,
            prefix=config.prefix,
            gateway=config.gateway,
            address_reuse_grace_period_seconds=grace,
        ),
    )


def _owned(obj: ProxmoxCluster, name: str, labels: Mapping[str, Any]) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace=obj.namespace,
        labels={CLUSTER_NAME: cluster_name(obj), **labels},
        owner_references=(owner_reference(obj),),
    )


# ---- endpoint and regions


def endpoint_claim(obj: ProxmoxCluster) -> str:
    """The name of the IPAddressClaim of the control plane endpoint."""
    return f"{cluster_name(obj)}-endpoint"


def _endpoint(obj: ProxmoxCluster, seen: ObservedProxmoxCluster, cluster: Cluster) -> Move | None:
    own, of_cluster = obj.spec.control_plane_endpoint, cluster.spec.control_plane_endpoint
    if own and own.host:
        return None
    if of_cluster.host:
        return _set_endpoint(obj, of_cluster.host, of_cluster.port)
    pool = obj.spec.control_plane_endpoint_pool
    if pool is not None:
        return _endpoint_from_pool(obj, seen, cluster, pool)
    message = (
        "set spec.controlPlaneEndpoint, spec.controlPlaneEndpointPool or "
        "spec.externalManagedControlPlane"
    )
    if obj.spec.external_managed_control_plane:
        message = "the control plane provider has not set the endpoint yet"
    return Wait(ProxmoxClusterReason.MISSING_ENDPOINT, message)


def _endpoint_from_pool(
    obj: ProxmoxCluster, seen: ObservedProxmoxCluster, cluster: Cluster, pool: PoolRef
) -> Move:
    if seen.endpoint_address:
        network = cluster.spec.cluster_network
        port = (network.api_server_port if network else None) or API_PORT
        return _set_endpoint(obj, seen.endpoint_address, port)
    if seen.endpoint_claimed:
        message = f"no address yet from {pool.kind} {pool.name}"
        return Wait(ProxmoxClusterReason.WAITING_FOR_ENDPOINT, message)
    ref = IPPoolReference(api_group=pool.api_group, kind=pool.kind, name=pool.name)
    spec = IPAddressClaimSpec(cluster_name=cluster_name(obj), pool_ref=ref)
    metadata = _owned(obj, endpoint_claim(obj), {})
    return ClaimEndpoint(IPAddressClaim(metadata=metadata, spec=spec))


def _set_endpoint(obj: ProxmoxCluster, host: str, port: int) -> SetEndpoint:
    endpoint = ControlPlaneEndpoint(host=host, port=port)
    version = obj.metadata.resource_version
    return SetEndpoint(Key(obj.namespace, obj.name), version, endpoint)


def _regions(seen: ObservedProxmoxCluster) -> Move:
    down = unreachable_regions(seen)
    return Wait(ProxmoxClusterReason.REGION_UNREACHABLE, down) if down else Done()


def unreachable_regions(seen: ObservedProxmoxCluster) -> str:
    """A message about every region that does not answer; empty if all do."""
    return "; ".join(_message(r) for r in seen.regions if not r.available)


def _message(health: RegionHealth) -> str:
    named = health.message.startswith("region ")
    return health.message if named else f"region {health.name}: {health.message}"
