"""Drift, expiration, validation of commands, and the search over all nodes."""

import random
from dataclasses import replace
from typing import Any

import pytest

from moxwell.api.karpenter.nodepools import DisruptionBudget
from moxwell.scheduling.disruption.cluster_state import DisruptionNode, DisruptionSnapshot
from moxwell.scheduling.disruption.commands import DisruptionCommand, DisruptionDecision
from moxwell.scheduling.disruption.drift import expired
from moxwell.scheduling.disruption.methods import ConsolidationMethod, ConsolidationPass
from moxwell.scheduling.disruption.search import ConsolidationForecast, SearchOptions
from moxwell.scheduling.disruption.simulation import DisruptionSimulator
from moxwell.scheduling.disruption.validation import (
    CommandRejected,
    ValidationFailure,
    validated,
)
from moxwell.scheduling.packing.pods import PodDemand, PodSelector
from moxwell.scheduling.packing.rescheduling import DisruptionLimit
from moxwell.scheduling.resource_lists import CPU
from moxwell.scheduling.well_known_labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE
from unit.scheduling.disruption_scenes import NOW, bound, on_node, own_pool, scene
from unit.scheduling.packing_scenes import pod

SINGLE, EMPTINESS = ConsolidationMethod.SINGLE, ConsolidationMethod.EMPTINESS


def drifted(name: str, ago: float, cpu: int = 4, **state: Any) -> DisruptionNode:
    return on_node(name, cpu, state={"drifted_since": NOW - ago, **state})


def names(command: DisruptionCommand | None) -> list[str]:
    return [] if command is None else sorted(c.name for c in command.candidates)


def test_an_empty_drifted_node_goes_first_then_the_one_that_drifted_longest() -> None:
    nodes = [drifted("a", 10), drifted("b", 20), drifted("c", 5), on_node("d")]
    pods = [bound("p", "a", "4"), bound("q", "b", "4"), bound("r", "d", "4")]
    assert names(ConsolidationPass(scene(nodes, pods)).drift()) == ["c"]
    found = ConsolidationPass(scene([*nodes[:2], nodes[3]], pods)).drift()
    assert found is not None
    assert (names(found), found.decision) == (["b"], DisruptionDecision.REPLACE)
    assert [t.name for t in found.replacements[0].instance_types] == ["t4", "t8", "t16"]


def test_drift_is_blocked_by_budgets_and_by_pods_without_a_place() -> None:
    nodes, pods = [drifted("a", 10)], [bound("p", "a")]
    closed = (own_pool(budgets=(DisruptionBudget(nodes="0", reasons=("Drifted",)),)),)
    assert ConsolidationPass(scene(nodes, pods, pools=closed)).drift() is None
    homeless = bound("p", "a", spec={"nodeSelector": {"disk": "none"}})
    assert ConsolidationPass(scene(nodes, [homeless])).drift() is None


def test_a_grace_period_lets_drift_disrupt_what_a_budget_of_pods_blocks() -> None:
    limits = (DisruptionLimit("default", "limit", PodSelector(), allowed=0),)
    for period, expected in ((None, []), (60.0, ["a"])):
        node = drifted("a", 10, termination_grace_period=period)
        snapshot = scene([node], [bound("p", "a")], limits=limits)
        assert names(ConsolidationPass(snapshot).drift()) == expected


@pytest.mark.parametrize(
    ("replicas", "limit", "budget", "expected"),
    [
        (3, None, "2", ["a", "b"]),
        (3, 4, "3", ["a"]),
        (3, 3, "3", []),
        (2, None, "3", []),  # scaling down comes first
        (3, None, "0", []),
    ],
)
def test_static_pools_replace_drifted_nodes_within_budget_and_limit(
    replicas: int, limit: int | None, budget: str, expected: list[str]
) -> None:
    nodes = [drifted("a", 1), drifted("b", 2), on_node("c")]
    pools = (
        own_pool(replicas=replicas, node_limit=limit, budgets=(DisruptionBudget(nodes=budget),)),
    )
    found = ConsolidationPass(scene(nodes, [], pools=pools)).static_drift()
    assert [names(c) for c in found] == [[n] for n in expected]
    assert all(c.decision is DisruptionDecision.REPLACE for c in found)


def test_nodes_expire_by_age() -> None:
    nodes = [
        on_node("a", state={"expire_after": 3600.0}),
        on_node("b", state={"expire_after": 3601.0}),
        on_node("c"),
        on_node("d", state={"expire_after": 1.0}, deleting=True),
    ]
    assert [n.name for n in expired(nodes, NOW)] == ["a"]


def validate(
    method: ConsolidationMethod, before: DisruptionSnapshot, after: DisruptionSnapshot
) -> DisruptionCommand | CommandRejected:
    command = ConsolidationPass(before).outcome(method).command
    assert command is not None
    return validated(DisruptionSimulator(after), method, command)


def rejected(found: DisruptionCommand | CommandRejected) -> ValidationFailure:
    assert isinstance(found, CommandRejected)
    assert found.message
    return found.failure


def test_a_command_holds_if_nothing_changed() -> None:
    given = scene([on_node("a", 8)], [bound("p", "a")])
    assert isinstance(validate(SINGLE, given, given), DisruptionCommand)


def test_a_command_is_rejected_if_a_candidate_changed() -> None:
    before = scene([on_node("a", 8)], [bound("p", "a")])
    nominated = scene([on_node("a", 8, state={"nominated": True})], [bound("p", "a")])
    assert rejected(validate(SINGLE, before, nominated)) is ValidationFailure.CHURN
    closed = scene([on_node("a", 8)], [bound("p", "a")],
                   pools=(own_pool(budgets=(DisruptionBudget(nodes="0"),)),))  # fmt: skip
    assert rejected(validate(SINGLE, before, closed)) is ValidationFailure.BUDGET


@pytest.mark.parametrize(
    "pods",
    [
        [bound("p", "a"), bound("q", "a", "5")],  # the cheap types do not fit any more
        [bound("p", "a"), bound("q", "a", spec={"nodeSelector": {"disk": "none"}})],
    ],
)
def test_a_command_is_rejected_if_pods_need_something_else(pods: list[PodDemand]) -> None:
    before = scene([on_node("a", 8)], [bound("p", "a")])
    after = scene([on_node("a", 8)], pods)
    assert rejected(validate(SINGLE, before, after)) is ValidationFailure.SCHEDULING


def test_emptiness_keeps_the_nodes_that_are_still_empty() -> None:
    nodes = [on_node("a"), on_node("b")]
    found = validate(EMPTINESS, scene(nodes, []), scene(nodes, [bound("p", "a")]))
    assert isinstance(found, DisruptionCommand)
    assert names(found) == ["b"]


def search(snapshot: DisruptionSnapshot, **options: Any) -> ConsolidationForecast | None:
    return ConsolidationPass(snapshot).optimised(SearchOptions(**options))


def three_of_four() -> DisruptionSnapshot:
    return scene([on_node(n) for n in "abc"], [bound(f"p{n}", n, "2500m") for n in "abc"])


def test_the_search_finds_what_a_binary_search_over_rows_does_not() -> None:
    assert ConsolidationPass(three_of_four()).outcome(ConsolidationMethod.MULTI).command is None
    found = search(three_of_four())
    assert found is not None
    assert names(found.command) == ["a", "b", "c"]
    assert found.savings == pytest.approx(0.4)
    assert "would save 0.4000 per hour and move 3 pods" in str(found)


def test_the_search_makes_several_nodes_of_many() -> None:
    """Six nodes of 8 vCPU, each with a pod of 2.5, fit two of 8 vCPU at a third of the price."""
    nodes = [on_node(f"n{i}", 8) for i in range(6)]
    far = {"topologySpreadConstraints": [{
        "maxSkew": 3, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]}  # fmt: skip
    pods = [bound(f"p{i}", f"n{i}", "2500m", spec=far) for i in range(6)]
    found = search(scene(nodes, pods))
    assert found is not None
    assert 4.8 - found.savings == pytest.approx(1.6)


def test_a_saving_below_the_price_of_disruption_does_not_pay() -> None:
    assert search(three_of_four(), price_per_cost=0.1) is None
    assert search(three_of_four(), price_per_cost=0.06) is not None


def test_the_search_respects_budgets() -> None:
    pools = (own_pool(budgets=(DisruptionBudget(nodes="2"),)),)
    assert search(replace(three_of_four(), pools=pools)) is None


def test_nothing_is_consolidated_while_pods_wait_for_a_new_node() -> None:
    waiting = replace(three_of_four(), pending=(pod("w", "16"),))
    assert search(waiting) is None


def random_scene(seed: int) -> DisruptionSnapshot:
    rng = random.Random(seed)
    nodes = [on_node(f"n{i}", rng.choice([2, 4, 8, 16]), zone=rng.choice("abc")) for i in range(9)]
    pods: list[PodDemand] = []
    for each in nodes:
        free = each.node.allocatable[CPU]
        while free > 1000 and rng.random() < 0.6:
            cpu = rng.randrange(100, min(free, 3000), 50)
            pods.append(bound(f"p{len(pods)}", each.name, f"{cpu}m"))
            free -= cpu
    return scene(nodes, pods)


@pytest.mark.parametrize("seed", range(25))
def test_the_search_never_does_worse_never_overcommits_and_never_churns(seed: int) -> None:
    snapshot = random_scene(seed)
    run = ConsolidationPass(snapshot)
    found = run.optimised()
    assert str(found) == str(ConsolidationPass(random_scene(seed)).optimised())
    price = SearchOptions().price_per_cost
    for method in (ConsolidationMethod.MULTI, SINGLE):
        command = run.outcome(method).command
        if command is not None and command.savings > price * command.cost:
            assert found is not None
            assert found.value >= command.savings - price * command.cost - 1e-9
    if found is not None:
        check(snapshot, found.command)


def check(snapshot: DisruptionSnapshot, command: DisruptionCommand) -> None:
    """Every pod has one place with room, and no node is replaced by an equal one."""
    gone = set(names(command))
    moved = [p.uid for c in command.candidates for p in c.pods]
    placed = [p for pods in command.placement.existing.values() for p in pods]
    placed += [p for r in command.replacements for p in r.claim.pods]
    assert sorted(p.uid for p in placed) == sorted(moved)
    for node in snapshot.nodes:
        added = command.placement.existing.get(node.name, ())
        assert not (added and node.name in gone)
        used = sum(dict(p.shape.requests)[CPU] for p in (*snapshot.pods_on(node.name), *added))
        assert used <= node.node.allocatable[CPU]
    equal = {
        (c.labels[INSTANCE_TYPE], c.labels[ZONE], c.labels[CAPACITY_TYPE])
        for c in command.candidates
    }
    for each in command.replacements:
        request = each.claim.requests[CPU]
        assert all(t.allocatable[CPU] >= request for t in each.instance_types)
        for number in each.options:
            name = each.claim.table.types[number].name
            offered = tuple(each.claim.table.launchable(number, each.requirements))
            assert not equal & {(name, o.zone, o.capacity_type) for o in offered}
            assert all(o.capacity_type != SPOT for o in offered)
