"""Simulated placements of a rollout."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.scheduling.inventory_model import (
    GIB,
    CandidateHost,
    HostKey,
    HostStorage,
    PlacedReplica,
    Template,
)
from moxwell.scheduling.placement_model import Placement, PlacementRequest
from moxwell.scheduling.rollout import RolloutPolicy
from moxwell.scheduling.simulate import (
    LeavingMachine,
    PlacementInput,
    SimulatedEvent,
    simulate_rollout,
)

STORES = {"s": HostStorage("s", 900 * GIB, shared=True)}
SIZE = 4 * GIB


def placement_input(hosts: int = 2, old: int = 0, memory: int = 64) -> PlacementInput:
    keys = [HostKey("r", f"pve{n}") for n in range(hosts)]
    taken = [sum(i % hosts == n for i in range(old)) for n in range(hosts)]
    return PlacementInput(
        PlacementRequest(2, SIZE),
        tuple(
            CandidateHost(
                k, 32, memory * GIB, k.name, memory_taken=t * SIZE, cpus_taken=2 * t, stores=STORES
            )
            for k, t in zip(keys, taken, strict=True)
        ),
        (Template(keys[0], 9000, storages=frozenset({"s"}), shared=True),),
        tuple(PlacedReplica(keys[i % hosts]) for i in range(old)),
    )


def olds(count: int, hosts: int = 2) -> list[LeavingMachine]:
    return [
        LeavingMachine(f"m{i}", HostKey("r", f"pve{i % hosts}"), "", 2, SIZE) for i in range(count)
    ]


def places(events: tuple[SimulatedEvent, ...]) -> list[str]:
    return [
        e.name if isinstance(e, LeavingMachine) else e.chosen.key.name if e.chosen else "nowhere"
        for e in events
    ]


def test_replicas_spread() -> None:
    assert places(simulate_rollout(placement_input(), RolloutPolicy(4))) == [
        "pve0",
        "pve1",
        "pve0",
        "pve1",
    ]


def test_a_rollout_comes_before_it_goes() -> None:
    events = simulate_rollout(placement_input(old=2), RolloutPolicy(2), old=olds(2))
    assert places(events) == ["pve0", "m0", "pve1", "m1"]


@pytest.mark.parametrize(
    ("old", "surge"), [(2, 1), (3, 1), (4, 1), (4, 2), (5, 3), (6, 6)], ids=str
)
@pytest.mark.parametrize("loaded", [0, 1], ids=["first host loaded", "second host loaded"])
def test_a_rollout_ends_as_evenly_spread_over_regions_as_it_began(
    old: int, surge: int, loaded: int
) -> None:
    keys = [HostKey("amsterdam", "a"), HostKey("frankfurt", "f")]
    hosts = tuple(
        CandidateHost(k, 64, 256 * GIB, "", cpus_taken=30 * (n == loaded), stores=STORES)
        for n, k in enumerate(keys)
    )
    templates = tuple(Template(k, 9000, storages=frozenset({"s"}), shared=True) for k in keys)
    placed = tuple(PlacedReplica(keys[i % 2]) for i in range(old))
    before = PlacementInput(PlacementRequest(2, SIZE), hosts, templates, placed)
    leaving = [LeavingMachine(f"m{i}", keys[i % 2], "", 2, SIZE) for i in range(old)]
    names = places(simulate_rollout(before, RolloutPolicy(old, surge), old=leaving))
    assert abs(names.count("a") - names.count("f")) <= old % 2


def test_what_is_there_of_the_new_template_counts() -> None:
    assert len(simulate_rollout(placement_input(old=3), RolloutPolicy(5), new=3)) == 2


def test_insufficient_resources_are_reported() -> None:
    events = simulate_rollout(placement_input(hosts=1, memory=5), RolloutPolicy(2))
    assert places(events) == ["pve0", "nowhere"]


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 3), st.integers(0, 2))
def test_as_many_come_and_go_as_must(want: int, old: int, surge: int, fewer: int) -> None:
    policy = RolloutPolicy(want, surge, fewer if surge or fewer else 1)
    events = simulate_rollout(placement_input(old=old), policy, old=olds(old))
    came = [e for e in events if isinstance(e, Placement)]
    assert (len(came), len(events) - len(came)) == (want, old)


@pytest.mark.parametrize("surge", [1, 2])
def test_never_more_than_the_surge(surge: int) -> None:
    there, most = 3, 0
    for event in simulate_rollout(placement_input(old=3), RolloutPolicy(3, surge), old=olds(3)):
        there += 1 if isinstance(event, Placement) else -1
        most = max(most, there)
    assert (there, most) == (3, 3 + surge)
