"""Reservations: what is reserved for others, and what its owner may choose again."""

from moxwell.pve.reservations import Reservation, Reservations


def reservation(owner: str, vmid: int, region: str = "north") -> Reservation:
    return Reservation(owner=owner, region=region, vmid=vmid, host="pve1")


def test_an_owner_may_choose_its_own_vmid_again() -> None:
    held = Reservations()
    held.add(reservation("a", 5000))
    held.add(reservation("b", 5001))
    held.add(reservation("c", 5002, "south"))
    assert held.vmids("north") == {5000, 5001}
    assert held.vmids("north", excluding={"a"}) == {5001}
    held.remove("b")
    assert held.vmids("north", excluding={"a"}) == frozenset()
