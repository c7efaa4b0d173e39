"""Decides whether the reservation of an address is still needed. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from moxwell.api.ipam import IPAddressClaim
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Delete, Writes

CHECK_SECONDS = 600.0
ReservationMove = Writes | Wait | Done


class ReservationReason(StrEnum):
    """Reasons why a reservation stays."""

    ADDRESS_TAKEN = "AddressTaken"
    REGION_UNREACHABLE = "RegionUnreachable"


@dataclass(frozen=True, slots=True)
class ObservedReservation:
    """``user`` has the address; ``known`` is false if the region could not be asked."""

    user: str = ""
    known: bool = True


def plan(claim: IPAddressClaim, seen: ObservedReservation) -> ReservationMove:
    """Delete the claim when its address is free: the IPAM provider gives it out again."""
    if claim.deleting:
        return Done()
    if not seen.known:
        message = "the region of the address does not answer"
        return Wait(ReservationReason.REGION_UNREACHABLE, message, CHECK_SECONDS)
    if seen.user:
        message = f"the address is used by {seen.user}"
        return Wait(ReservationReason.ADDRESS_TAKEN, message, CHECK_SECONDS)
    return Writes((Delete(IPAddressClaim, claim.name, claim.namespace, uid=claim.uid),))
