"""Which spot guests end for a need: the fewest, then the cheapest, and none in vain."""

from collections.abc import Mapping
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.scheduling.inventory_model import GIB, CandidateHost, HostKey, Template
from moxwell.scheduling.placement_model import OvercommitLimits, PlacementRequest
from moxwell.scheduling.simulate import PlacementInput
from moxwell.scheduling.spot_room import (
    FreeRoom,
    RoomNeed,
    SpotGuest,
    interruptions,
    placement_need,
)

A, B = HostKey("north", "a"), HostKey("north", "b")


def guest(
    claim: str,
    cpus: int = 2,
    gib: int = 4,
    price: float = 1.0,
    host: HostKey = A,
    leaving: bool = False,
) -> SpotGuest:
    return SpotGuest(claim, host, cpus, gib * GIB, price, leaving)


def need(cpus: int, gib: int = 0, name: str = "x", **free: tuple[int, int]) -> RoomNeed:
    """A need with the CPUs and GiB that the hosts ``a`` and ``b`` have free."""
    rooms = free or {"a": (0, 0)}
    found = {HostKey("north", h): FreeRoom(c, m * GIB) for h, (c, m) in rooms.items()}
    return RoomNeed(name, cpus, gib * GIB, found)


def ended(
    needs: list[RoomNeed], guests: list[SpotGuest], emptied: Mapping[HostKey, str] | None = None
) -> set[str]:
    return {i.guest.claim for i in interruptions(needs, guests, emptied)}


@pytest.mark.parametrize(
    ("needs", "guests", "expected"),
    [
        pytest.param([], [guest("1")], set(), id="nothing is needed"),
        pytest.param([need(2)], [], set(), id="there is no spot guest"),
        pytest.param([need(2, a=(2, 0))], [guest("1")], set(), id="the host has room"),
        pytest.param(
            [need(2, a=(0, 0), b=(2, 0))], [guest("1")], set(), id="another host has room"
        ),
        pytest.param([need(2)], [guest("1"), guest("2", price=0.5)], {"2"}, id="the cheaper one"),
        pytest.param(
            [need(4)],
            [guest("1"), guest("2"), guest("3", cpus=4, price=9)],
            {"3"},
            id="one guest rather than two cheaper ones",
        ),
        pytest.param(
            [need(4)],
            [guest("1"), guest("2", price=0.5), guest("3", price=0.7)],
            {"2", "3"},
            id="the cheapest two",
        ),
        pytest.param([need(5)], [guest("1"), guest("2")], set(), id="in vain: all are too few"),
        pytest.param(
            [need(2, 8)], [guest("1", gib=4), guest("2", cpus=1, gib=8)], {"1", "2"}, id="memory"
        ),
        pytest.param(
            [need(4, a=(0, 0), b=(0, 0))],
            [guest("1"), guest("2"), guest("3", cpus=4, price=5, host=B)],
            {"3"},
            id="the host where fewer end",
        ),
        pytest.param(
            [need(2), need(2, name="y")], [guest("1"), guest("2")], {"1", "2"}, id="two needs"
        ),
        pytest.param(
            [need(2), need(2, name="y")],
            [guest("1", cpus=4), guest("2")],
            {"1"},
            id="what is left of a guest's room meets the next need",
        ),
        pytest.param(
            [need(2)], [guest("1", leaving=True), guest("2")], set(), id="one leaves already"
        ),
        pytest.param(
            [need(2), need(2, name="y")],
            [guest("1", leaving=True), guest("2")],
            {"2"},
            id="one that leaves is enough for one need",
        ),
        pytest.param(
            [need(0, a=(0, -4))], [guest("1", gib=2), guest("2")], {"2"}, id="an overcommitted host"
        ),
        pytest.param([need(2, a=(-2, 0))], [guest("1")], set(), id="overcommitted: not enough"),
    ],
)
def test_the_guests_that_end(
    needs: list[RoomNeed], guests: list[SpotGuest], expected: set[str]
) -> None:
    assert ended(needs, guests) == expected


def test_every_guest_leaves_a_host_that_is_emptied_and_no_need_is_met_there() -> None:
    guests = [guest("1"), guest("2"), guest("3", host=B), guest("4", host=A, leaving=True)]
    found = interruptions([need(2, a=(0, 0), b=(0, 0))], guests, {A: "maintenance"})
    assert [(i.guest.claim, i.why) for i in found] == [
        ("1", "maintenance"),
        ("2", "maintenance"),
        ("3", "x needs its capacity"),
    ]


def test_many_guests_of_a_host_are_chosen_in_short_time() -> None:
    guests = [guest(f"{n:02}", cpus=1 + n % 3, gib=1) for n in range(60)]
    found = interruptions([need(50, 3)], guests)
    sizes = sorted(i.guest.cpus for i in found)
    assert sum(sizes) >= 50
    assert sum(sizes) - sizes[0] < 50  # none is unneeded


rooms = st.tuples(st.integers(-4, 8), st.integers(-4, 16))
guests_ = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 16), st.sampled_from((A, B)), st.booleans()),
    max_size=9,
)
needs_ = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 24), rooms, rooms), min_size=1, max_size=4
)


@given(guests_, needs_)
def test_no_guest_ends_in_vain_and_the_order_does_not_matter(
    guests: list[tuple[int, int, HostKey, bool]],
    needs: list[tuple[int, int, tuple[int, int], tuple[int, int]]],
) -> None:
    made = [guest(f"{n}", c, m, 1 + n / 10, h, x) for n, (c, m, h, x) in enumerate(guests)]
    asked = [need(c, m, f"{n}", a=a, b=b) for n, (c, m, a, b) in enumerate(needs)]
    found = ended(asked, made)
    assert found == ended(asked[::-1], made[::-1])
    assert found <= {g.claim for g in made if not g.leaving}
    # Once they are leaving, the same needs end no other one.
    leaving = [guest(g.claim, g.cpus, g.memory_bytes // GIB, g.price, g.host, True)
               if g.claim in found else g for g in made]  # fmt: skip
    if len(asked) == 1:
        assert ended(asked, leaving) == set()


def given_placement(**hosts: tuple[int, int]) -> PlacementInput:
    """Hosts of 8 CPUs and 16 GiB with what is taken of them, and a machine of 4 and 8."""
    known = tuple(
        CandidateHost(HostKey("north", h), 8, 16 * GIB, cpus_taken=c, memory_taken=m * GIB)
        for h, (c, m) in hosts.items()
    )
    request = PlacementRequest(4, 8 * GIB, limits=OvercommitLimits(cpu_percent=100))
    return PlacementInput(request, known, (Template(A, 100), Template(B, 100)))


def test_the_need_of_a_machine_is_on_hosts_that_only_spot_guests_keep_it_off() -> None:
    here = [guest("1", cpus=4, gib=8)]
    assert placement_need("m", given_placement(a=(8, 16), b=(0, 0)), here) is None  # b has room
    assert placement_need("m", given_placement(a=(10, 16), b=(8, 16)), here) is None  # in vain
    found = placement_need("m", given_placement(a=(8, 16), b=(8, 16)), here)
    assert found == RoomNeed("m", 4, 8 * GIB, {A: FreeRoom(0, 0)})
    unchecked = given_placement(a=(8, 16))
    limits = OvercommitLimits(cpu_percent=0)
    request = PlacementRequest(4, 8 * GIB, limits=limits)
    found = placement_need("m", PlacementInput(request, unchecked.hosts, unchecked.templates), here)
    assert found is not None
    assert found.free == {A: FreeRoom(inf, 0)}
