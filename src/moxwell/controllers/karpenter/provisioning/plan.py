"""Which node claims are created for pending pods, and the events of those pods. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.claim_template import claim_name, planned_claim
from moxwell.controllers.karpenter.options import PackingMode
from moxwell.controllers.karpenter.provisioning.limits import kept_claims, within_quota
from moxwell.controllers.karpenter.state.intentions import recorded
from moxwell.controllers.karpenter.state.snapshots import ScaledClusterView
from moxwell.runtime.reconciler import Note
from moxwell.scheduling.packing.buffers import (
    BufferPlacement,
    is_virtual,
    nodes_with_buffers,
    placements,
)
from moxwell.scheduling.packing.cluster import SolverOptions
from moxwell.scheduling.packing.explain import PodExplanation, explain_pod, nearest_type
from moxwell.scheduling.packing.failures import NoInstanceType, PodFailure
from moxwell.scheduling.packing.optimise import optimised
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.results import PlannedClaim, SchedulingResult, with_slots
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.packing.spot_needs import claim_need, claims_in_spot_room
from moxwell.scheduling.spot_room import RoomNeed


class ProvisioningEvent(StrEnum):
    """Events of pods, with Karpenter's names, and one of node pools."""

    NOMINATED = "Nominated"
    FAILED_SCHEDULING = "FailedScheduling"
    BATCH_LIMITED = "BatchLimited"  # of node pools: more pods wait than a pass decides about


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
    existing nodes that pods are expected on. ``buffers`` says where the virtual pods of each buffer
    are, ``buffer_nodes`` are the existing nodes that have some. ``needs`` is the room of spot
    guests that pods without a node need.
    """

    claims: tuple[tuple[NodeClaim, tuple[PodDemand, ...]], ...] = ()
    nominated: frozenset[str] = frozenset()
    notes: tuple[PodNote, ...] = ()
    unschedulable: int = 0
    buffers: Mapping[str, BufferPlacement] = field(default_factory=dict)
    buffer_nodes: frozenset[str] = frozenset()
    needs: tuple[RoomNeed, ...] = ()


def real(pods: Iterable[PodDemand]) -> tuple[PodDemand, ...]:
    """The pods that exist, without the virtual ones of buffers."""
    return tuple(p for p in pods if not is_virtual(p))


def solve(view: ScaledClusterView, mode: PackingMode, options: SolverOptions) -> SchedulingResult:
    """The packing of the pending pods."""
    solver = Solver(within_quota(view).cluster, options)
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
        waiting = [p for p in real(view.pending) if not p.node_name]
        return ProvisioningPlan(
            notes=(*ignored, *(_failed(p, "no node pool is ready") for p in waiting)),
            unschedulable=len(waiting),
            buffers=placements(view.pending, SchedulingResult()),
        )
    result = solve(view, mode, options or SolverOptions())
    kept, dropped = kept_claims(result.claims, view)
    made = tuple((_node_claim(view, c), real(c.pods)) for c in with_slots(kept))
    notes = [*ignored, *_nominations(result), *_failures(view, result)]
    for each in dropped:
        notes += [_failed(p, each.why) for p in real(each.claim.pods)]
    return ProvisioningPlan(
        made,
        frozenset(name for name, pods in result.existing.items() if real(pods)),
        tuple(notes),
        sum(not f.is_deferred for f in result.failures.values()),
        placements(view.pending, replace(result, claims=tuple(kept))),
        nodes_with_buffers(result),
        _needs(view, result, options or SolverOptions()),
    )


def _needs(
    view: ScaledClusterView, result: SchedulingResult, options: SolverOptions
) -> tuple[RoomNeed, ...]:
    """The room of spot guests that pods without a node need, within all limits."""
    waiting = [
        p
        for p in real(view.pending)
        if (failure := result.failures.get(p.uid)) is not None and not failure.is_deferred
    ]
    cluster = within_quota(view).cluster
    found = claims_in_spot_room(cluster, options, result, waiting, view.spot)
    kept, _ = kept_claims((*result.claims, *found), view)
    allowed = {id(claim) for claim in kept}
    needs = (claim_need(claim, view.spot) for claim in found if id(claim) in allowed)
    return tuple(need for need in needs if need is not None)


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
    if key in view.deferred:
        most = len(view.pending)
        return PodExplanation(f"{key} waits: a pass decides about {most} pods at a time.")
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


def nominated_note(claim: str) -> Note:
    """The event of a pod that a node claim was created for."""
    return Note(ProvisioningEvent.NOMINATED, f"Pod should schedule on: nodeclaim/{claim}")


def _nominations(result: SchedulingResult) -> list[PodNote]:
    return [
        PodNote(pod, Note(ProvisioningEvent.NOMINATED, f"Pod should schedule on: node/{name}"))
        for name, pods in result.existing.items()
        for pod in real(pods)
    ]


def _failures(view: ScaledClusterView, result: SchedulingResult) -> list[PodNote]:
    pods: Mapping[str, PodDemand] = {p.uid: p for p in real(view.pending)}
    return [
        _failed(pods[uid], failure_text(failure))
        for uid, failure in result.failures.items()
        if uid in pods and not failure.is_deferred
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
