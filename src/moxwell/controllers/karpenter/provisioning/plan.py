"""Which node claims are created for pending pods, and the events of those pods. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.claim_template import claim_name, planned_claim
from moxwell.controllers.karpenter.state.intentions import recorded
from moxwell.controllers.karpenter.state.snapshots import ScaledClusterView
from moxwell.runtime.reconciler import Note
from moxwell.scheduling.packing.cluster import SolverOptions
from moxwell.scheduling.packing.explain import PodExplanation, explain_pod, nearest_type
from moxwell.scheduling.packing.failures import NoInstanceType, PodFailure
from moxwell.scheduling.packing.optimise import optimised
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.results import PlannedClaim, SchedulingResult
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.resource_lists import MILLI, NODES, offered


class PackingMode(StrEnum):
    """``exact`` decides as Karpenter does; ``optimise`` never costs more and often less."""

    EXACT = "exact"
    OPTIMISE = "optimise"


class ProvisioningEvent(StrEnum):
    """Events of pods, with Karpenter's names."""

    NOMINATED = "Nominated"
    FAILED_SCHEDULING = "FailedScheduling"


@dataclass(frozen=True, slots=True)
class PodNote:
    """An event for a pod."""

    pod: PodDemand
    note: Note


@dataclass(frozen=True, slots=True)
class ProvisioningPlan:
    """
    What one pass does.

    ``claims`` are created in order, each with the pods that it is for. ``nominated`` are
    existing nodes that pods are expected on.
    """

    claims: tuple[tuple[NodeClaim, tuple[PodDemand, ...]], ...] = ()
    nominated: frozenset[str] = frozenset()
    notes: tuple[PodNote, ...] = ()
    unschedulable: int = 0


def solve(view: ScaledClusterView, mode: PackingMode, options: SolverOptions) -> SchedulingResult:
    """The packing of the pending pods."""
    solver = Solver(view.cluster, options)
    if mode is PackingMode.OPTIMISE:
        return optimised(solver, view.pending)
    return solver.solve(view.pending)


def plan_provisioning(
    view: ScaledClusterView, mode: PackingMode, options: SolverOptions | None = None
) -> ProvisioningPlan:
    """Decide about every pending pod."""
    ignored = tuple(_failed(p.pod, p.refusal) for p in view.ignored if not p.quiet)
    if not view.pending:
        return ProvisioningPlan(notes=ignored)
    if not view.cluster.pools:
        waiting = [p for p in view.pending if not p.node_name]
        return ProvisioningPlan(
            notes=(*ignored, *(_failed(p, "no node pool is ready") for p in waiting)),
            unschedulable=len(waiting),
        )
    result = solve(view, mode, options or SolverOptions())
    kept, dropped = _within_node_limits(result.claims, view)
    made = tuple((_node_claim(view, c), c.pods) for c in kept)
    notes = [*ignored, *_nominations(result), *_failures(view, result)]
    for plan in dropped:
        text = f"node pool {plan.pool} has as many nodes as its limits allow"
        notes += [_failed(p, text) for p in plan.pods]
    return ProvisioningPlan(
        made,
        frozenset(name for name, pods in result.existing.items() if pods),
        tuple(notes),
        sum(not f.is_deferred for f in result.failures.values()),
    )


def explain(
    view: ScaledClusterView, namespace: str, name: str, mode: PackingMode, options: SolverOptions
) -> PodExplanation | None:
    """What the autoscaler decides about a pod now; None if there is no such pod."""
    key = f"{namespace}/{name}"
    for each in view.ignored:
        if each.pod.key == key:
            return PodExplanation(f"{key} is ignored: {each.refusal}.")
    pod = next((p for p in view.pending if p.key == key), None)
    if pod is not None:
        return explain_pod(pod, solve(view, mode, options))
    placed = next((p for p in view.cluster.pods if p.key == key), None)
    if placed is None:
        return None
    if placed.uid in view.expected:
        return PodExplanation(f"{key} waits for the node claim {placed.node_name}.")
    return PodExplanation(f"{key} runs on the node {placed.node_name}.")


def _node_claim(view: ScaledClusterView, plan: PlannedClaim) -> NodeClaim:
    pool = view.pools[plan.pool]
    uids = frozenset(p.uid for p in plan.pods)
    earlier = (
        j.claim.metadata.uid
        for j in view.nodes.values()
        if j.claim is not None and recorded(j.claim) & uids
    )
    return planned_claim(pool, plan, claim_name(plan.pool, uids, earlier, (pool.metadata.uid,)))


def _within_node_limits(
    claims: Iterable[PlannedClaim], view: ScaledClusterView
) -> tuple[list[PlannedClaim], list[PlannedClaim]]:
    """The claims that keep to the limits on the number of nodes, and the others."""
    left = {name: nodes_left(p, view) for name, p in view.pools.items()}
    kept: list[PlannedClaim] = []
    dropped: list[PlannedClaim] = []
    for claim in claims:
        room = left.get(claim.pool)
        if room is not None and room <= 0:
            dropped.append(claim)
            continue
        kept.append(claim)
        if room is not None:
            left[claim.pool] = room - 1
    return kept, dropped


def nodes_left(pool: NodePool, view: ScaledClusterView) -> int | None:
    """How many nodes a pool may still create; None without a limit."""
    limit = offered(pool.spec.limits).get(NODES)
    if limit is None:
        return None
    name = pool.metadata.name
    return limit // MILLI - sum(n.pool == name and not n.deleting for n in view.cluster.nodes)


def nominated_note(claim: str) -> Note:
    """The event of a pod that a node claim was created for."""
    return Note(ProvisioningEvent.NOMINATED, f"Pod should schedule on: nodeclaim/{claim}")


def _nominations(result: SchedulingResult) -> list[PodNote]:
    return [
        PodNote(pod, Note(ProvisioningEvent.NOMINATED, f"Pod should schedule on: node/{name}"))
        for name, pods in result.existing.items()
        for pod in pods
    ]


def _failures(view: ScaledClusterView, result: SchedulingResult) -> list[PodNote]:
    pods: Mapping[str, PodDemand] = {p.uid: p for p in view.pending}
    return [
        _failed(pods[uid], failure_text(failure))
        for uid, failure in result.failures.items()
        if not failure.is_deferred
    ]


def failure_text(failure: PodFailure) -> str:
    """Karpenter's text and, where resources are short, the nearest instance type."""
    texts = [str(failure)]
    for pool, each in failure.attempts:
        if isinstance(each, NoInstanceType) and (found := nearest_type(each)):
            texts.append(f"the nearest type of {pool} is {found[0].name}, which lacks {found[1]}")
    return "; ".join(texts)


def _failed(pod: PodDemand, text: str) -> PodNote:
    return PodNote(
        pod,
        Note(ProvisioningEvent.FAILED_SCHEDULING, f"Failed to schedule pod, {text}", "Warning"),
    )
