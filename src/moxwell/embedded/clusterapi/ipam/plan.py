"""
Which address an IPAddressClaim gets, and the status of claims and pools. Pure.

The choice of the address is :mod:`moxwell.scheduling.ip_pools`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from moxwell.api.conditions import Condition
from moxwell.api.ipam import (
    GROUP,
    GlobalInClusterIPPool,
    InClusterIPPool,
    IPAddress,
    IPAddressClaim,
    IPAddressClaimStatus,
    IPAddressSpec,
    NameRef,
    PoolSpec,
)
from moxwell.api.kinds import owner_reference
from moxwell.api.meta import ObjectMeta
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Create, Delete, Merge, Writes
from moxwell.scheduling import ip_pools

IPPool = InClusterIPPool | GlobalInClusterIPPool
POOL_KINDS: dict[str, Any] = {
    "InClusterIPPool": InClusterIPPool,
    "GlobalInClusterIPPool": GlobalInClusterIPPool,
}
PROTECT_ADDRESS = "ipam.cluster.x-k8s.io/ProtectAddress"
RETRY_SECONDS = 10.0


class IPAddressClaimReason(StrEnum):
    """Reasons of the Ready condition of an IPAddressClaim."""

    ALLOCATED = "AddressAllocated"
    POOL_EXHAUSTED = "PoolExhausted"
    POOL_NOT_FOUND = "PoolNotFound"


@dataclass(frozen=True, slots=True)
class ObservedIPAddressClaim:
    """``unavailable`` are the addresses of the pool that are allocated or in their grace period."""

    pool: IPPool | None = None
    address: IPAddress | None = None
    unavailable: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ReleaseAddress:
    """Delete the IPAddress and keep its address unused for the grace period of the pool."""

    writes: Writes
    pool: str
    address: str
    grace_seconds: int | None
    final = True  # the claim may go at once; the IPAddress follows when others release it


ClaimMove = Writes | ReleaseAddress | Wait | Done


def is_ours(claim: IPAddressClaim) -> bool:
    """Whether the claim is for a pool of the in-cluster provider."""
    ref = claim.spec.pool_ref
    return ref.api_group == GROUP and ref.kind in POOL_KINDS


def pool_name(pool: IPPool) -> str:
    """A name that is unique among the pools of both kinds."""
    return f"{pool.resource.kind}/{pool.key}"


def next_move(claim: IPAddressClaim, seen: ObservedIPAddressClaim) -> ClaimMove:
    """Allocate the first free address, or release the one that is allocated."""
    if not is_ours(claim):
        return Done()
    if claim.deleting:
        return Done() if seen.address is None else _release(seen.address, seen.pool)
    if seen.address is not None:
        return Done()
    ref = claim.spec.pool_ref
    if seen.pool is None:
        reason = IPAddressClaimReason.POOL_NOT_FOUND
        return Wait(reason, f"{ref.kind} {ref.name} does not exist")
    address = ip_pools.choose_address(seen.pool.spec, seen.unavailable)
    if address is None:
        message = f"{ref.kind} {ref.name} has no free address: add addresses to it"
        return Wait(IPAddressClaimReason.POOL_EXHAUSTED, message, RETRY_SECONDS)
    return Writes((Create(new_address(claim, seen.pool.spec, address)),))


def _release(address: IPAddress, pool: IPPool | None) -> ReleaseAddress:
    name, namespace = address.name, address.namespace
    kept = [f for f in address.metadata.finalizers if f != PROTECT_ADDRESS]
    unprotect = Merge(
        IPAddress, name, {"metadata": {"finalizers": kept}}, namespace, missing_ok=True
    )
    return ReleaseAddress(
        Writes((unprotect, Delete(IPAddress, name, namespace, uid=address.uid))),
        pool_name(pool) if pool else "",
        address.spec.address,
        pool.spec.address_reuse_grace_period_seconds if pool else None,
    )


def new_address(claim: IPAddressClaim, pool: PoolSpec, address: str) -> IPAddress:
    """The IPAddress that answers a claim."""
    return IPAddress(
        metadata=ObjectMeta(
            name=claim.name,
            namespace=claim.namespace,
            labels=claim.metadata.labels,
            owner_references=(owner_reference(claim),),
            finalizers=(PROTECT_ADDRESS,),
        ),
        spec=IPAddressSpec(
            claim_ref=NameRef(name=claim.name),
            pool_ref=claim.spec.pool_ref,
            address=address,
            prefix=pool.prefix,
            gateway=pool.gateway,
        ),
    )


def describe(claim: IPAddressClaim, move: ClaimMove) -> IPAddressClaimStatus | None:
    """The status of a claim; the IPAddress has the name of the claim."""
    if not is_ours(claim) or claim.deleting:
        return None
    if isinstance(move, Wait):
        failed = Condition(type="Ready", status="False", reason=move.reason, message=move.message)
        return IPAddressClaimStatus(conditions=(failed,))
    ready = Condition(type="Ready", status="True", reason=IPAddressClaimReason.ALLOCATED)
    return IPAddressClaimStatus(address_ref=NameRef(name=claim.name), conditions=(ready,))
