"""Packing by price: never dearer than the exact packing, and cheaper where sizes waste."""

from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.scheduling.packing.optimise import attempts, is_better, optimised
from moxwell.scheduling.packing.results import SchedulingResult
from moxwell.scheduling.packing.run import PlacementPolicy
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.well_known_labels import ZONE
from unit.scheduling.packing_scenes import cluster, instance_type, node, pod, pool


def test_a_small_machine_beside_a_full_one_beats_a_larger_one() -> None:
    demand = [pod("big", "8"), pod("small", "1")]
    solver = Solver(cluster())
    assert solver.solve(demand).price == 1.6
    found = optimised(solver, demand)
    assert sorted(c.instance_types[0].name for c in found.claims) == ["t2", "t8"]
    assert found.price == 1.0


def test_prices_and_other_domains_are_tried_in_moderate_batches_only() -> None:
    plain = [pod(f"p{i}") for i in range(501)]
    assert attempts(plain) == ((PlacementPolicy.FULLEST, 0),)
    assert attempts(plain[:500]) == (
        (PlacementPolicy.FULLEST, 0),
        (PlacementPolicy.LEAST_INCREASE, 0),
    )
    spread = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    assert {turn for _, turn in attempts([pod("p", topologySpreadConstraints=[spread])])} == {
        0, 1, 2,
    }  # fmt: skip
    many = [pod(f"p{i}", topologySpreadConstraints=[spread]) for i in range(151)]
    again = {policy for policy, turn in attempts(many) if turn}
    assert again == {PlacementPolicy.FEWEST_PODS, PlacementPolicy.FULLEST}
    assert (PlacementPolicy.LEAST_INCREASE, 2) in attempts(many[:150])


def test_the_cheapest_of_several_equal_domains_is_taken() -> None:
    types = (instance_type(4, zones=("a",)), instance_type(2, zones=("b",)))
    rule = {
        "topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }  # fmt: skip
    demand = [pod("p", labels={"app": "web"}, topologySpreadConstraints=[rule])]
    solver = Solver(cluster(pool(instance_types=types)))
    assert solver.solve(demand).price == 0.4
    assert optimised(solver, demand).price == 0.2


def test_an_equal_price_on_as_many_nodes_is_not_better() -> None:
    empty = SchedulingResult()
    assert not is_better(empty, empty)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["300m", "1", "1900m", "3", "5", "9", "20"]), max_size=40))
def test_it_is_never_dearer_and_leaves_out_no_more_pods(sizes: list[str]) -> None:
    pods = [pod(f"p{n:02}", cpu) for n, cpu in enumerate(sizes)]
    solver = Solver(cluster(pool(limits={"cpu": 120_000}), nodes=(node("n1"),)))
    exact, found = solver.solve(pods), optimised(solver, pods)
    assert found.price <= exact.price + 1e-9
    assert found.failures.keys() <= exact.failures.keys()
    placed = [p.uid for c in found.claims for p in c.pods]
    placed += [p.uid for group in found.existing.values() for p in group]
    assert sorted([*placed, *found.failures]) == sorted(p.uid for p in pods)
    for claim in found.claims:
        room = claim.instance_types[0].allocatable
        assert all(room[n] >= a for n, a in claim.requests.items())
