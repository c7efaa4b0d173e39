"""Which room of spot guests pods need: only pods that may not run as spot, within limits."""

from dataclasses import replace

from moxwell.scheduling.guest_offerings import LABELS, instance_types
from moxwell.scheduling.guest_sizes import make_size
from moxwell.scheduling.host_room import HostRoom
from moxwell.scheduling.inventory_model import GIB, HostKey
from moxwell.scheduling.packing.cluster import ClusterSnapshot, ProvisioningPool, SolverOptions
from moxwell.scheduling.packing.optimise import optimised
from moxwell.scheduling.packing.pods import PodDemand, PodShape
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.packing.spot_needs import claim_need, claims_in_spot_room
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.spot_room import FreeRoom, RoomNeed, SpotGuest
from moxwell.scheduling.well_known_labels import CAPACITY_TYPE, ON_DEMAND, SPOT

A, B = HostKey("north", "a"), HostKey("north", "b")
PAID = make_size(2, 4 * GIB, "c1")
CHEAP = replace(make_size(2, 4 * GIB, "spot"), capacity_type=SPOT)


def room(key: HostKey, cpus: int, gib: int = 64) -> HostRoom:
    return HostRoom(key, cpus, gib * GIB, 1000 * GIB)


def pool(
    rooms: list[HostRoom],
    *kinds: str,
    blocked: frozenset[tuple[str, HostKey]] = frozenset(),
    **limits: int,
) -> ProvisioningPool:
    only = LabelRequirement(CAPACITY_TYPE, False, frozenset(kinds))
    types = instance_types((PAID, CHEAP), rooms, blocked)
    return ProvisioningPool("default", types, (only,), limits=limits)


def guest(claim: str, host: HostKey = A, cpus: int = 2) -> SpotGuest:
    return SpotGuest(claim, host, cpus, 4 * GIB, 0.03)


def needs(given: ProvisioningPool, guests: list[SpotGuest], pods: int = 1) -> list[RoomNeed]:
    snapshot = ClusterSnapshot((given,), rules=LABELS)
    shape = PodShape("default", requests=(("cpu", 1500),))
    waiting = [PodDemand(f"{n}", f"pod-{n}", shape) for n in range(pods)]
    options = SolverOptions()
    result = optimised(Solver(snapshot, options), waiting)
    found = claims_in_spot_room(snapshot, options, result, waiting, guests)
    return [n for c in found if (n := claim_need(c, guests)) is not None]


def test_a_pod_that_must_run_on_demand_needs_the_room_of_a_spot_guest() -> None:
    (found,) = needs(pool([room(A, 0), room(B, 1)], ON_DEMAND), [guest("1"), guest("2", B)])
    free = {A: FreeRoom(0, 64 * GIB), B: FreeRoom(1, 64 * GIB)}
    assert found == RoomNeed("a node for default/pod-0", 2, 4 * GIB, free)


def test_hosts_without_enough_spot_room_are_not_part_of_the_need() -> None:
    (found,) = needs(pool([room(A, 0), room(B, 0)], ON_DEMAND), [guest("1"), guest("2", B, 1)])
    assert set(found.free) == {A}


def test_there_is_no_need_if_a_host_has_room_or_no_spot_guest_is_there() -> None:
    assert needs(pool([room(A, 2)], ON_DEMAND), [guest("1")]) == []
    assert needs(pool([room(A, 0)], ON_DEMAND), []) == []
    assert needs(pool([room(A, 0)], ON_DEMAND), [guest("1", cpus=1)]) == []


def test_pods_that_may_run_as_spot_need_no_room_of_others() -> None:
    assert needs(pool([room(A, 0)], SPOT), [guest("1")]) == []
    assert needs(pool([room(A, 0)], SPOT, ON_DEMAND), [guest("1")]) == []
    held_back = frozenset({(CHEAP.name, A)})
    assert needs(pool([room(A, 0)], SPOT, ON_DEMAND, blocked=held_back), [guest("1")]) == []


def test_a_type_that_failed_on_a_host_a_short_time_ago_is_no_need_there() -> None:
    failed = frozenset({(PAID.name, A)})
    assert needs(pool([room(A, 2)], ON_DEMAND, blocked=failed), [guest("1")]) == []


def test_limits_of_the_pool_hold_with_the_claims_of_the_same_pass() -> None:
    given = pool([room(A, 2)], ON_DEMAND)
    guests = [guest("1"), guest("2")]
    assert len(needs(given, guests, pods=3)) == 2
    assert len(needs(replace(given, limits={"cpu": 4000}), guests, pods=3)) == 1
    assert len(needs(replace(given, limits={"cpu": 2000}), guests, pods=3)) == 0


def test_pods_of_one_pass_share_the_room_of_spot_guests() -> None:
    assert len(needs(pool([room(A, 0)], ON_DEMAND), [guest("1")], pods=3)) == 1
