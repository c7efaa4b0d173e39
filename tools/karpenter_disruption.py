"""Recorded consolidation cases of Karpenter: their input, and decisions in the recorded format."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from karpenter_input import case_input, options_of, requests_json, requirements_json
from moxwell.api.karpenter.nodepools import DisruptionBudget
from moxwell.scheduling.disruption.budgets import DisruptionReason, disruption_allowances
from moxwell.scheduling.disruption.candidates import (
    DisruptionCandidate,
    all_candidates,
    drift_block,
    eligible,
)
from moxwell.scheduling.disruption.cluster_state import (
    DisruptionNode,
    DisruptionPool,
    DisruptionSnapshot,
)
from moxwell.scheduling.disruption.commands import DisruptionCommand, NodeReplacement
from moxwell.scheduling.disruption.methods import (
    ConsolidationMethod,
    ConsolidationPass,
    MethodOutcome,
)
from moxwell.scheduling.packing.cluster import ClusterSnapshot
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.nodes import ClusterNode
from moxwell.scheduling.packing.pods import pairs
from moxwell.scheduling.packing.rescheduling import duration_seconds

Json = Mapping[str, Any]
NOW = 1767268800.0  # 2026-01-01T12:00:00Z
AGE = 3600


def disruption_pool(each: Json, types: tuple[InstanceType, ...]) -> DisruptionPool:
    given = each["spec"].get("disruption") or {}
    budgets = given.get("budgets")
    if budgets is None:
        budgets = [{"nodes": "100%"}]
    default = None if given.get("consolidationPolicy") else "0s"
    return DisruptionPool(
        each["name"],
        types,
        given.get("consolidationPolicy") or "WhenEmptyOrUnderutilized",
        duration_seconds(given.get("consolidateAfter") or default or "Never"),
        msgspec.convert(budgets, tuple[DisruptionBudget, ...]),
    )


def disruption_node(
    each: Json, node: ClusterNode, grace: Mapping[str, float | None]
) -> DisruptionNode:
    created = NOW - (each.get("age") or AGE)
    return DisruptionNode(
        node,
        created,
        pairs(each.get("annotations")),
        not each.get("notReady"),
        node.managed and node.initialized and each.get("consolidatable", True),
        created if node.initialized else None,
        _before_now(each.get("lastPodEventAgo")),
        _before_now(each.get("driftedAgo")) if node.managed else None,
        termination_grace_period=grace.get(node.pool),
    )


def _before_now(seconds: int | None) -> float | None:
    return None if seconds is None else NOW - seconds


def grace_period(pool: Json) -> float | None:
    """The termination grace period of the nodes of a pool, in seconds."""
    text = (pool["spec"]["template"].get("spec") or {}).get("terminationGracePeriod")
    return None if text is None else duration_seconds(text)


def disruption_snapshot(
    case: Json, catalogues: Mapping[str, tuple[InstanceType, ...]]
) -> DisruptionSnapshot:
    """Read a consolidation case."""
    given = case_input(case, catalogues)
    cluster: ClusterSnapshot = given.snapshot
    types = {p.name: p.instance_types for p in cluster.pools}
    pools = case.get("nodePools") or ()
    grace = {p["name"]: grace_period(p) for p in pools}
    return DisruptionSnapshot(
        cluster,
        tuple(disruption_pool(p, types[p["name"]]) for p in pools),
        tuple(
            disruption_node(n, node, grace)
            for n, node in zip(case.get("nodes") or (), cluster.nodes, strict=True)
        ),
        tuple(p for p in given.pods if not p.node_name),
        given.limits,
        NOW,
        bool((case.get("options") or {}).get("spotToSpotConsolidation")),
    )


def consolidation_answer(
    case: Json, catalogues: Mapping[str, tuple[InstanceType, ...]], mode: str = "exact"
) -> Json:
    """
    The decisions of the three methods, and that about drift if a node of the case has drifted.

    In mode ``optimise`` the best command of multi-node, single-node and n to m consolidation stands
    in the place of the multi-node one.
    """
    snapshot = disruption_snapshot(case, catalogues)
    run = ConsolidationPass(snapshot, options_of(case.get("options")))
    answer = {str(o.method): outcome_json(o) for o in run.outcomes()}
    if any("driftedAgo" in n for n in case.get("nodes") or ()):
        answer["drift"] = drift_json(snapshot, run)
    if mode == "optimise":
        best = run.optimised()
        commands = [] if best is None else [command_json(best.command)]
        answer[str(ConsolidationMethod.MULTI)]["commands"] = commands
    return answer


def drift_json(snapshot: DisruptionSnapshot, run: ConsolidationPass) -> dict[str, Any]:
    command = run.drift()
    found = eligible(all_candidates(snapshot, eventual=True), drift_block)
    return {
        "candidates": candidates_json(found),
        "budget": disruption_allowances(snapshot, DisruptionReason.DRIFTED),
        "commands": [] if command is None else [command_json(command)],
    }


def candidates_json(candidates: Iterable[DisruptionCandidate]) -> list[Json]:
    return [{"name": c.name, "price": c.price, "disruptionCost": c.cost} for c in candidates]


def outcome_json(outcome: MethodOutcome) -> dict[str, Any]:
    return {
        "candidates": candidates_json(outcome.candidates),
        "budget": dict(outcome.allowances),
        "commands": [] if outcome.command is None else [command_json(outcome.command)],
    }


def command_json(command: DisruptionCommand) -> Json:
    placed = command.placement.existing
    return {
        "decision": str(command.decision),
        "candidates": sorted(c.name for c in command.candidates),
        "replacements": [replacement_json(r) for r in command.replacements],
        "existing": {n: sorted(p.name for p in pods) for n, pods in placed.items() if pods},
        "savings": command.savings,
    }


def replacement_json(given: NodeReplacement) -> Json:
    return {
        "nodePool": given.claim.pool,
        "instanceTypes": [t.name for t in given.instance_types],
        "requirements": requirements_json(given),
        "requests": requests_json(given.claim.requests),
        "pods": sorted(p.name for p in given.claim.pods),
    }
