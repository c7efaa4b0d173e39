"""What is written for a Service: reservations in the IPAM, annotations, releases. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from moxwell.controllers.cloud.features import LoadBalancerFeatures
from moxwell.controllers.cloud.service import allocation
from moxwell.controllers.cloud.service.allocation import AddressAllocation
from moxwell.controllers.cloud.service.ipam import AvailableAddresses
from moxwell.pve.steps import ReleaseVnetAddress, ReserveVnetAddress
from moxwell.runtime.move import Done, Wait

Json = dict[str, Any]
RETRY_SECONDS = 30.0
NODE_SYNC_SECONDS = 100.0
NEXT_SECONDS = 0.1  # a release is verified at once


class CloudServiceReason(StrEnum):
    """Reasons of events, as the upstream service controller names them."""

    SYNC_FAILED = "SyncLoadBalancerFailed"
    ENSURED = "EnsuredLoadBalancer"
    DELETED = "DeletedLoadBalancer"
    NO_NODES = "UnAvailableLoadBalancer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedService:
    """
    The addresses of a Service and its surroundings.

    ``owned`` are addresses of its annotation that belong to it. ``available`` is None and
    ``others`` is empty if all its addresses were verified in an earlier pass.
    """

    owned: tuple[AddressAllocation, ...] = ()
    others: tuple[Json, ...] = ()
    available: AvailableAddresses | None = None
    has_nodes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignAddresses:
    """Reserve new addresses, write the annotations, then release addresses not wanted any more."""

    namespace: str
    name: str
    allocated: tuple[AddressAllocation, ...]
    change: Mapping[str, Any]
    reserve: tuple[ReserveVnetAddress, ...] = ()
    release: tuple[ReleaseVnetAddress, ...] = ()
    failures: tuple[str, ...] = ()  # IP families without an address
    requeue_after: float = NODE_SYNC_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAddresses:
    """The Service has its addresses; reservations that are missing in the IPAM are made again."""

    allocated: tuple[AddressAllocation, ...]
    reserve: tuple[ReserveVnetAddress, ...] = ()
    failures: tuple[str, ...] = ()
    requeue_after: float = NODE_SYNC_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseServiceAddresses:
    """Release the addresses of a deleted Service."""

    release: tuple[ReleaseVnetAddress, ...]
    requeue_after: float = NEXT_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class StopManaging:
    """The Service is no longer of our class: release, remove annotations, status and finalizer."""

    namespace: str
    name: str
    change: Mapping[str, Any]
    clear_status: bool
    release: tuple[ReleaseVnetAddress, ...] = field(default=())
    requeue_after: float | None = None


CloudServiceMove = (
    AssignAddresses | KeepAddresses | ReleaseServiceAddresses | StopManaging | Wait | Done
)


def plan_service(
    service: Json, seen: ObservedService, settings: LoadBalancerFeatures
) -> CloudServiceMove:
    """The next move for a Service."""
    if "deletionTimestamp" in service["metadata"]:
        release = _releases(_all_allocations(service, seen), seen, settings)
        return ReleaseServiceAddresses(release=release) if release else Done()
    if not allocation.has_our_class(service, settings):
        return _stop(service, seen, settings)
    return _assign(service, seen, settings)


def is_complete(service: Json, owned: Sequence[AddressAllocation]) -> bool:
    """Whether a Service has exactly one address for each of its IP families."""
    asked = allocation.families(service)
    covered = {a.version for a in owned}
    listed = allocation.allocated_addresses(service)
    return covered == set(asked) and len(listed) == len(covered)


def _assign(
    service: Json, seen: ObservedService, settings: LoadBalancerFeatures
) -> CloudServiceMove:
    asked, listed = allocation.families(service), set(allocation.allocated_addresses(service))
    wanted = {a.version: a for a in seen.owned if a.version in asked}
    failures = _choose_missing(service, seen, wanted)
    if not wanted or (failures and allocation.requires_dual_stack(service) and not seen.owned):
        text = "; ".join(failures) or "the pool has no address of its IP families"
        return Wait(CloudServiceReason.SYNC_FAILED, text, RETRY_SECONDS)
    allocated = tuple(wanted[version] for version in asked if version in wanted)
    reserve = _reservations(allocated, seen, settings)
    if {a.address for a in allocated} == listed:
        return KeepAddresses(allocated=allocated, reserve=reserve, failures=failures)
    dropped = [a for a in seen.owned if a not in allocated]
    return AssignAddresses(
        namespace=service["metadata"]["namespace"],
        name=service["metadata"]["name"],
        allocated=allocated,
        change=allocation.annotation_patch(service, allocated, settings),
        reserve=reserve,
        release=_releases(dropped, seen, settings),
        failures=failures,
    )


def _choose_missing(
    service: Json, seen: ObservedService, wanted: dict[int, AddressAllocation]
) -> tuple[str, ...]:
    """Add an address for each missing family; returns why some families have none."""
    failures = []
    for version in allocation.families(service):
        if version in wanted or seen.available is None:
            continue
        found, why = allocation.choose_address(service, version, seen.others, seen.available)
        if found is not None:
            wanted[version] = found
        elif allocation.is_required(service, version, seen.available):
            failures.append(why)
    return tuple(failures)


def _stop(service: Json, seen: ObservedService, settings: LoadBalancerFeatures) -> CloudServiceMove:
    return StopManaging(
        namespace=service["metadata"]["namespace"],
        name=service["metadata"]["name"],
        change=allocation.removal_patch(service),
        clear_status=service["spec"].get("type") == "LoadBalancer",
        release=_releases(_all_allocations(service, seen), seen, settings),
    )


def _all_allocations(service: Json, seen: ObservedService) -> list[AddressAllocation]:
    """The addresses of the annotation, and those that an interrupted pass has reserved."""
    own, available = allocation.mac_of(service["metadata"]["uid"]), seen.available
    reserved = [available.reserved_for(own, version) for version in (4, 6)] if available else []
    interrupted = [AddressAllocation(address, own) for address in reserved if address]
    return [*dict.fromkeys((*allocation.allocations(service), *interrupted))]


def _reservations(
    allocated: Sequence[AddressAllocation], seen: ObservedService, settings: LoadBalancerFeatures
) -> tuple[ReserveVnetAddress, ...]:
    """Steps for addresses that are not reserved yet; none where there is no IPAM."""
    available = seen.available
    if available is None or not available.region:
        return ()
    return tuple(
        ReserveVnetAddress(
            region_name=available.region,
            vnet=settings.vnet,
            zone=settings.zone,
            ip=a.address,
            mac=a.mac,
        )
        for a in allocated
        if not available.is_reserved_for(a.mac, a.address)
    )


def _releases(
    dropped: Sequence[AddressAllocation], seen: ObservedService, settings: LoadBalancerFeatures
) -> tuple[ReleaseVnetAddress, ...]:
    """Steps for reserved addresses that no other Service shares."""
    available = seen.available
    if available is None or not available.region:
        return ()
    shared = {address for o in seen.others for address in allocation.allocated_addresses(o)}
    return tuple(
        ReleaseVnetAddress(
            region_name=available.region,
            vnet=settings.vnet,
            zone=settings.zone,
            ipam=settings.ipam,
            ip=a.address,
            mac=a.mac,
        )
        for a in dropped
        if a.address not in shared and available.is_reserved_for(a.mac, a.address)
    )
