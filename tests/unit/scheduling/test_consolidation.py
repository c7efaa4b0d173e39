"""Consolidation in small clusters; the recorded decisions of Karpenter are in tests/conformance."""

from collections.abc import Callable
from typing import Any

import pytest

from moxwell.api.karpenter.nodepools import DisruptionBudget
from moxwell.scheduling.disruption.balanced import MoveScore
from moxwell.scheduling.disruption.candidates import (
    DisruptionBlocked,
    DisruptionCandidate,
    candidate_of,
    consolidation_block,
    emptiness_block,
)
from moxwell.scheduling.disruption.cluster_state import DisruptionNode, DisruptionSnapshot
from moxwell.scheduling.disruption.commands import DisruptionCommand, DisruptionDecision
from moxwell.scheduling.disruption.consolidation import in_turns
from moxwell.scheduling.disruption.costs import eviction_cost
from moxwell.scheduling.disruption.methods import ConsolidationMethod, ConsolidationPass
from moxwell.scheduling.packing.pods import PodSelector, pairs
from moxwell.scheduling.packing.rescheduling import DisruptionLimit
from moxwell.scheduling.well_known_labels import DO_NOT_DISRUPT
from unit.scheduling.disruption_scenes import NOW, bound, on_node, own_pool, scene
from unit.scheduling.packing_scenes import pod

COST = "controller.kubernetes.io/pod-deletion-cost"


def command(snapshot: DisruptionSnapshot, method: ConsolidationMethod) -> DisruptionCommand:
    found = ConsolidationPass(snapshot).outcome(method).command
    assert found is not None
    return found


def nothing(snapshot: DisruptionSnapshot, method: ConsolidationMethod) -> bool:
    return ConsolidationPass(snapshot).outcome(method).command is None


def names(found: DisruptionCommand) -> list[str]:
    return sorted(c.name for c in found.candidates)


@pytest.mark.parametrize(
    ("annotations", "priority", "expected"),
    [
        ({}, None, 1.0),
        ({COST: str(2**27)}, None, 2.0),
        ({COST: "none"}, None, 1.0),
        ({COST: "nan"}, None, 1.0),
        ({}, 2**25, 2.0),
        ({}, -(2**31), -10.0),
        ({COST: "2147483647"}, 1_000_000_000, 10.0),
    ],
)
def test_the_eviction_cost_of_a_pod(
    annotations: dict[str, str], priority: int | None, expected: float
) -> None:
    found = eviction_cost(bound("p", "a", annotations=pairs(annotations), priority=priority))
    assert found == pytest.approx(expected)


LIMIT = DisruptionLimit("default", "limit", PodSelector(), allowed=0)


@pytest.mark.parametrize(
    ("state", "pods", "changes", "expected"),
    [
        ({"in_progress": True}, {}, {}, "already being disrupted"),
        ({"nominated": True}, {}, {}, "nominated"),
        ({"annotations": ((DO_NOT_DISRUPT, "true"),)}, {}, {}, "blocked through the"),
        ({}, {"annotations": ((DO_NOT_DISRUPT, "true"),)}, {}, "pod has"),
        ({}, {"annotations": ((DO_NOT_DISRUPT, "1h"),), "started": NOW - 60}, {}, "pod has"),
        ({}, {}, {"limits": (LIMIT,)}, "pdb prevents pod evictions"),
        ({}, {}, {"limits": (LIMIT, LIMIT)}, "multiple PDBs"),
        ({}, {}, {"pools": ()}, "NodePool not found"),
    ],
)
def test_what_blocks_the_disruption_of_a_node(
    state: dict[str, Any], pods: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    node = on_node("a", state=state)
    snapshot = scene([node], [bound("p", "a", **pods)], **changes)
    found = candidate_of(snapshot, node)
    assert isinstance(found, DisruptionBlocked)
    assert expected in str(found)


def test_a_duration_that_has_passed_and_a_grace_period_do_not_block() -> None:
    node = on_node("a", state={"termination_grace_period": 60.0})
    over = bound("p", "a", annotations=((DO_NOT_DISRUPT, "1h"),), started=NOW - 3600)
    assert isinstance(candidate_of(scene([node], [over]), node), DisruptionCandidate)
    snapshot = scene([node], [bound("p", "a")], limits=(LIMIT,))
    assert isinstance(candidate_of(snapshot, node), DisruptionBlocked)
    assert isinstance(candidate_of(snapshot, node, eventual=True), DisruptionCandidate)


@pytest.mark.parametrize(
    ("nodes", "pools", "block", "expected"),
    [
        (on_node("a"), own_pool(), consolidation_block, None),
        (on_node("a"), own_pool(), emptiness_block, "not empty"),
        (on_node("b"), own_pool(), emptiness_block, None),
        (on_node("b"), own_pool(), consolidation_block, "is empty"),
        (on_node("a"), own_pool(policy="WhenEmpty"), consolidation_block, "WhenEmpty"),
        (on_node("a"), own_pool(consolidate_after=None), consolidation_block, "disabled"),
        (on_node("b"), own_pool(consolidate_after=None), emptiness_block, "disabled"),
        (on_node("a"), own_pool(replicas=1), consolidation_block, "static"),
        (on_node("a", 5), own_pool(), consolidation_block, 'Instance Type "t5" not found'),
        (on_node("b", state={"has_buffer": True}), own_pool(), emptiness_block, "buffer"),
        (on_node("b", state={"consolidatable": False}), own_pool(), emptiness_block, "not passed"),
    ],
)
def test_which_candidates_a_method_takes(
    nodes: DisruptionNode,
    pools: Any,
    block: Callable[[DisruptionCandidate], DisruptionBlocked | None],
    expected: str | None,
) -> None:
    snapshot = scene([nodes], [bound("p", "a")], pools=(pools,))
    found = candidate_of(snapshot, nodes)
    assert isinstance(found, DisruptionCandidate)
    reason = block(found)
    assert reason is None if expected is None else expected in str(reason)


def test_empty_nodes_are_deleted_as_far_as_the_budget_allows_dearest_first() -> None:
    nodes = [on_node("a", 2), on_node("b", 8), on_node("c", 4), on_node("d")]
    pools = (own_pool(budgets=(DisruptionBudget(nodes="2"),)),)
    snapshot = scene(nodes, [bound("p", "d")], pools=pools)
    found = command(snapshot, ConsolidationMethod.EMPTINESS)
    assert names(found) == ["b", "c"]
    assert found.savings == pytest.approx(1.2)


def test_a_node_is_deleted_if_its_pods_fit_elsewhere() -> None:
    snapshot = scene([on_node("a"), on_node("b")], [bound("p", "a"), bound("q", "b", "2")])
    found = command(snapshot, ConsolidationMethod.SINGLE)
    assert (names(found), found.decision) == (["a"], DisruptionDecision.DELETE)
    assert {n: [p.name for p in pods] for n, pods in found.placement.existing.items()} == {
        "b": ["p"]
    }


def test_a_node_is_replaced_by_a_cheaper_one() -> None:
    found = command(scene([on_node("a", 8)], [bound("p", "a")]), ConsolidationMethod.SINGLE)
    assert found.decision is DisruptionDecision.REPLACE
    assert [t.name for t in found.replacements[0].instance_types] == ["t2", "t4"]
    assert found.savings == pytest.approx(0.6)


def test_a_node_of_the_cheapest_type_that_fits_stays() -> None:
    snapshot = scene([on_node("a", 2)], [bound("p", "a")])
    assert nothing(snapshot, ConsolidationMethod.SINGLE)


def test_several_nodes_become_one_but_not_one_of_their_own_kind() -> None:
    four = [on_node(n, 4) for n in "abcd"]
    pods = [bound(f"p{n}", n, "2500m") for n in "abcd"]
    found = command(scene(four, pods), ConsolidationMethod.MULTI)
    assert names(found) == ["a", "b", "c"]
    assert [t.name for t in found.replacements[0].instance_types] == ["t8"]
    # two of 4 and one of 8 vCPU: the node of 8 would only be replaced by an equal one
    mixed = [on_node("a", 4), on_node("b", 4), on_node("c", 8)]
    large = [bound("pa", "a", "2500m"), bound("pb", "b", "2500m"), bound("pc", "c", "5500m")]
    assert nothing(scene(mixed, large), ConsolidationMethod.MULTI)


def test_pods_do_not_move_to_nodes_whose_consolidate_after_has_not_passed() -> None:
    busy = on_node("b", state={"last_pod_event": NOW - 30, "consolidatable": False})
    pods = [bound("p", "a"), bound("q", "b", "2")]
    pools = (own_pool(consolidate_after=60.0),)
    found = command(scene([on_node("a"), busy], pods, pools=pools), ConsolidationMethod.SINGLE)
    assert found.decision is DisruptionDecision.REPLACE
    calm = on_node("b", state={"last_pod_event": NOW - 60, "consolidatable": False})
    found = command(scene([on_node("a"), calm], pods, pools=pools), ConsolidationMethod.SINGLE)
    assert found.decision is DisruptionDecision.DELETE


def test_nodes_that_are_not_initialized_are_no_certain_place() -> None:
    young = on_node("b", initialized=False)
    snapshot = scene([on_node("a", 2), young], [bound("p", "a")])
    assert nothing(snapshot, ConsolidationMethod.SINGLE)


def test_a_pending_pod_that_fits_nowhere_does_not_block() -> None:
    pending = (pod("huge", "400"),)
    snapshot = scene([on_node("a"), on_node("b")], [bound("p", "a"), bound("q", "b", "2")],
                     pending=pending)  # fmt: skip
    assert names(command(snapshot, ConsolidationMethod.SINGLE)) == ["a"]


@pytest.mark.parametrize(
    ("savings", "disruption", "score", "approved"),
    [(0.3, 0.6, 0.5, True), (0.2, 0.6, 1 / 3, False), (-0.1, 0.1, 0.0, False)],
)
def test_the_score_of_the_balanced_policy(
    savings: float, disruption: float, score: float, approved: bool
) -> None:
    found = MoveScore(savings, disruption)
    assert found.score == pytest.approx(score)
    assert found.is_approved is approved


def test_balanced_refuses_to_disturb_many_pods_for_a_small_saving() -> None:
    nodes = [on_node("a", 8), on_node("b", 16)]
    pods = [bound(f"p{n}", "a", "450m") for n in range(8)] + [bound("q", "b", "13")]
    assert names(command(scene(nodes, pods), ConsolidationMethod.SINGLE)) == ["a"]
    balanced = scene(nodes, pods, pools=(own_pool(policy="Balanced"),))
    assert nothing(balanced, ConsolidationMethod.SINGLE)


def test_pools_take_turns() -> None:
    def candidate(name: str, pool: str) -> DisruptionCandidate:
        state = on_node(name)
        own = scene([state], [bound("p", name)])
        found = candidate_of(own, state)
        assert isinstance(found, DisruptionCandidate)
        named = type(found.pool)(pool, found.pool.instance_types)
        return DisruptionCandidate(state, named, None, 0.0, 1.0, ())

    given = [candidate("a", "x"), candidate("b", "x"), candidate("c", "x"), candidate("d", "w")]
    assert [c.name for c in in_turns(given)] == ["a", "d", "b", "c"]


@pytest.mark.parametrize(
    ("nodes", "pods", "pool_changes", "expected"),
    [
        pytest.param(
            [on_node("n1", 4)], [bound("p", "n1", "3")], {},
            {"n1": "Can't replace with a cheaper node"}, id="as cheap as possible",
        ),
        pytest.param(
            [on_node("n1", 4)], [bound("p", "n1", spec={"nodeSelector": {"team": "red"}})], {},
            {"n1": "Not all pods would schedule, default/p => incompatible requirements, label "
                   '"team" does not have known values'}, id="a pod fits nowhere else",
        ),
        pytest.param(
            [on_node("n1", 16)], [bound("p", "n1", "9"), bound("q", "n1", "9")], {},
            {"n1": "Can't remove without creating 2 candidates"}, id="several new nodes",
        ),
        pytest.param(
            [on_node("n1", 4)], [bound("p", "n1", "3")], {"consolidate_after": None},
            {"n1": 'NodePool "default" has consolidation disabled'}, id="disabled",
        ),
        pytest.param(
            [on_node("n1", 4)], [bound("p", "n1", "3")], {"policy": "WhenEmpty"},
            {"n1": 'NodePool "default" has consolidation policy WhenEmpty, but node is not empty'},
            id="only empty nodes",
        ),
        pytest.param(
            [on_node("n1", 4, state={"has_buffer": True})], [], {},
            {"n1": 'Node "n1" has buffer pods'}, id="headroom",
        ),
        pytest.param(
            [on_node("n1", 4, state={"consolidatable": False})], [bound("p", "n1", "3")], {}, {},
            id="consolidateAfter has not passed",
        ),
        pytest.param([on_node("n1", 4)], [], {}, {}, id="empty"),
        pytest.param(
            [on_node("n1", 16), on_node("n2", 4)],
            [bound("p", "n1", "1"), bound("q", "n2", "3")], {},
            {}, id="both can go",
        ),
    ],
)  # fmt: skip
def test_nodes_say_why_they_are_not_consolidated(
    nodes: list[DisruptionNode], pods: list[Any], pool_changes: dict[str, Any],
    expected: dict[str, str],
) -> None:  # fmt: skip
    snapshot = scene(nodes, pods, pools=(own_pool(**pool_changes),))
    assert ConsolidationPass(snapshot).unconsolidatable().reasons == expected
