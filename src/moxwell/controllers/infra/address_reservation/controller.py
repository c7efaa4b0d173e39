"""
``infra.addressreservation``: IPAddressClaims that keep addresses of other users from being given.

A machine leaves such a claim behind when somebody else uses the address. It is deleted when nobody
does any more, or with the ProxmoxCluster, which owns it.
"""

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.ipam import IPAddressClaim
from moxwell.controllers.infra.address_conflicts import AddressConflicts, AddressUse
from moxwell.controllers.infra.address_reservation.plan import (
    ObservedReservation,
    ReservationMove,
    plan,
)
from moxwell.controllers.infra.address_users import NETWORK, REGION, TAKEN, Network
from moxwell.controllers.infra.owners import cluster_key
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.pve.regions import Region, Regions
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.writes import Writes

NAME = "infra.addressreservation"


class AddressReservationReconciler(
    Reconciler[IPAddressClaim, ObservedReservation, ReservationMove, None]
):
    """Looks at each reservation every ten minutes."""

    kind = IPAddressClaim

    def __init__(self, kube: Kube, regions: Regions, conflicts: AddressConflicts) -> None:
        self._kube, self._regions, self._conflicts = kube, regions, conflicts

    async def see(self, claim: IPAddressClaim, reader: Reader) -> ObservedReservation:
        """Whether somebody uses the address."""
        key, region = Key(claim.namespace, claim.name), self._region(claim)
        address = self._conflicts.address_of(key)
        if region is None or not region.inventory.health.reachable or not address:
            return ObservedReservation(known=False)
        notes = claim.metadata.annotations
        use = AddressUse(key, address, Network.parse(notes.get(NETWORK, "")), cluster_key(claim))
        user = await self._conflicts.find(use, region)
        return ObservedReservation(user.name if user else "")

    def _region(self, claim: IPAddressClaim) -> Region | None:
        """The region of the network, as the ProxmoxCluster that owns the claim sees it."""
        kind = ProxmoxCluster.resource.kind
        names = [o.name for o in claim.metadata.owner_references if o.kind == kind]
        scope = str(Key(claim.namespace, names[0])) if names else ""
        return self._regions.scope(scope).find(claim.metadata.annotations.get(REGION, ""))

    def plan(self, claim: IPAddressClaim, seen: ObservedReservation) -> ReservationMove:
        """Decide; see :mod:`.plan`."""
        return plan(claim, seen)

    async def act(self, move: ReservationMove) -> None:
        """Delete the claim."""
        if isinstance(move, Writes):
            await move.perform(self._kube)

    def describe(
        self, claim: IPAddressClaim, seen: ObservedReservation, move: ReservationMove
    ) -> None:
        """Return nothing: the status of a claim is that of the IPAM provider."""


def needs(claim: IPAddressClaim) -> bool:
    """Whether a claim is a reservation."""
    return TAKEN in claim.metadata.labels
