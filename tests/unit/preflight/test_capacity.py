"""The room for guests: CPUs, memory and disks of the same host, shared storages for all."""

import pytest

from moxwell.preflight.capacity_checks import check_capacity
from moxwell.preflight.facts import RegionFacts
from moxwell.preflight.outcome import GuestNeed, RegionNeeds
from moxwell.pve.endpoints.nodes import HostStorageStatus
from moxwell.scheduling.inventory_model import GIB


def storage(free: int, name: str = "lvm", *, shared: bool = False) -> HostStorageStatus:
    return HostStorageStatus(
        storage=name, type="lvmthin", content="images", active=True, enabled=True,
        shared=shared, total=1000 * GIB, avail=free * GIB,
    )  # fmt: skip


def facts(**storages: tuple[HostStorageStatus, ...]) -> RegionFacts:
    room = dict.fromkeys(storages, (8, 64 * GIB))
    return RegionFacts("north", (), "", storages=storages, free=room)


def guests(count: int, *, disk: int = 40, memory: int = 8) -> RegionNeeds:
    return RegionNeeds(guests=(GuestNeed(count, 2, memory * GIB, disk * GIB),))


SHARED = storage(100, "ceph", shared=True)
TABLE = {
    "disks fit on both hosts": (facts(a=(storage(100),), b=(storage(100),)), guests(4), ""),
    "one host has the memory, the other the disk": (
        facts(a=(storage(50),), b=(storage(10),)),
        guests(2),
        "there is room for 1 of 2 guests with 2 CPUs and 8 GiB of memory and a disk of 40 GiB",
    ),
    "a shared storage counts once": (
        facts(a=(SHARED,), b=(SHARED,)),
        guests(3),
        "room for 2 of 3",
    ),
    "a second storage of the host is used": (
        facts(a=(storage(50), storage(50, "other"))),
        guests(2),
        "",
    ),
    "memory ends first": (facts(a=(storage(999),)), guests(9), "8 of 9 guests with 2 CPUs and 8"),
    "disks of no size need no storage": (facts(a=()), guests(2, disk=0), ""),
    "no storage for disks": (facts(a=()), guests(1), "room for 0 of 1"),
}


@pytest.mark.parametrize(("facts", "needs", "expected"), TABLE.values(), ids=TABLE)
def test_room_for_guests(facts: RegionFacts, needs: RegionNeeds, expected: str) -> None:
    (check,) = check_capacity(facts, needs)
    assert expected in check.what
    assert (check.do == "") == (expected == "")


def test_only_the_named_storage_counts() -> None:
    region = facts(a=(storage(500), storage(10, "small")))
    needs = RegionNeeds(guests=(GuestNeed(1, 2, GIB, 40 * GIB),), storage="small")
    (check,) = check_capacity(region, needs)
    assert "room for 0 of 1" in check.what
