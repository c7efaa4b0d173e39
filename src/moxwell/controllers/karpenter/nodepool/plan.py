"""What a node pool needs next, and its status. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from msgspec import field

from moxwell.api.conditions import Condition, ConditionStatus
from moxwell.api.karpenter import nodepools
from moxwell.api.karpenter.fields import Resources
from moxwell.api.karpenter.nodeclaims import DRIFTED, NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.meta import Value
from moxwell.controllers.karpenter.claim_template import (
    VERSION,
    claim_name,
    pool_hash,
    static_claim,
)
from moxwell.controllers.karpenter.karpenter_conditions import DependentsReason
from moxwell.controllers.karpenter.names import COMMAND, HASH, HASH_VERSION
from moxwell.controllers.karpenter.nodepool.validation import validation_errors
from moxwell.controllers.karpenter.provider import NodeClassState
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Merge, Write, Writes
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.resource_lists import MILLI, NODES, offered, quantity_text

RECHECK_SECONDS = 60.0
NodePoolMove = Writes | Done


class NodePoolReason(StrEnum):
    """Reasons of the conditions of a node pool."""

    VALIDATION_FAILED = "NodePoolValidationFailed"
    NODE_CLASS_NOT_FOUND = "NodeClassNotFound"
    NODE_CLASS_NOT_READY = "NodeClassNotReady"
    AWAITING_RECONCILIATION = "AwaitingReconciliation"
    REGISTRATION_FAILED = "RegistrationFailed"
    NO_COMPATIBLE_INSTANCE_TYPES = "NoCompatibleInstanceTypes"


@dataclass(frozen=True, slots=True)
class ObservedPool:
    """
    What a pass observes of a pool.

    ``used`` is the capacity of its nodes in thousandths; ``pods`` counts the pods that would move
    if a node claim were deleted. Without ``static`` pools with ``replicas`` are not scaled.
    """

    node_class: NodeClassState | None = None
    types: tuple[InstanceType, ...] = ()
    claims: tuple[NodeClaim, ...] = ()
    used: Mapping[str, int] | None = None
    pods: Mapping[str, int] | None = None
    healthy: bool | None = None
    class_generation: int = 0
    static: bool = True


class NodePoolCounters(Value, frozen=True, kw_only=True):
    """The status of a node pool that this controller writes."""

    resources: Resources
    nodes: int
    node_class_observed_generation: int = field(name="nodeClassObservedGeneration", default=0)
    conditions: tuple[Condition, ...]


def plan_pool(pool: NodePool, seen: ObservedPool) -> NodePoolMove:
    """Stamp the hash first, then bring a static pool to its number of replicas."""
    writes: tuple[Write, ...] = (*_restamped(pool, seen.claims), *_stamped(pool))
    if not writes and _is_scaled(pool, seen):
        writes = _scaled(pool, seen)
    return Writes(writes) if writes else Done(requeue_after=RECHECK_SECONDS)


def _is_scaled(pool: NodePool, seen: ObservedPool) -> bool:
    return seen.static and pool.spec.replicas is not None and is_usable(pool, seen)


def _stamped(pool: NodePool) -> tuple[Write, ...]:
    wanted = {HASH: pool_hash(pool), HASH_VERSION: VERSION}
    if wanted.items() <= pool.metadata.annotations.items():
        return ()
    return (Merge(NodePool, pool.metadata.name, {"metadata": {"annotations": wanted}}),)


def _restamped(pool: NodePool, claims: Iterable[NodeClaim]) -> tuple[Write, ...]:
    """
    Take node claims of another hash version over without drift.

    One that had drifted before keeps its hash, so that it stays drifted.
    """
    if pool.metadata.annotations.get(HASH_VERSION) == VERSION:
        return ()
    found = []
    for claim in claims:
        if claim.metadata.annotations.get(HASH_VERSION) == VERSION:
            continue
        drifted = any(c.type == DRIFTED and c.status == "True" for c in claim.status.conditions)
        stamp = {HASH_VERSION: VERSION} | ({} if drifted else {HASH: pool_hash(pool)})
        change = {"metadata": {"annotations": stamp}}
        found.append(Merge(NodeClaim, claim.metadata.name, change, missing_ok=True))
    return tuple(found)


def _scaled(pool: NodePool, seen: ObservedPool) -> tuple[Write, ...]:
    """The node claims that a static pool creates or deletes."""
    wanted = pool.spec.replicas or 0
    active = [c for c in seen.claims if c.metadata.deletion_timestamp is None]
    running = [c for c in active if COMMAND not in c.metadata.annotations]
    if len(running) > wanted:
        surplus = sorted(running, key=lambda c: _keep_rank(c, seen))[: len(running) - wanted]
        return tuple(Delete(NodeClaim, c.metadata.name, uid=c.metadata.uid) for c in surplus)
    missing = wanted - len(active)
    limit = offered(pool.spec.limits).get(NODES)
    if limit is not None:
        missing = min(missing, limit // MILLI - len(seen.claims))
    existing = [c.metadata.uid for c in seen.claims]
    names = (claim_name(pool.name, (pool.uid,), existing, (str(i),)) for i in range(missing))
    return tuple(Create(static_claim(pool, name, {})) for name in names)


def _keep_rank(claim: NodeClaim, seen: ObservedPool) -> tuple[bool, int, str]:
    """Claims without a machine are deleted first, then those with the fewest pods."""
    pods = (seen.pods or {}).get(claim.metadata.name, 0)
    return bool(claim.status.provider_id), pods, claim.metadata.name


def is_usable(pool: NodePool, seen: ObservedPool) -> bool:
    """Whether the pool may create nodes."""
    ready = seen.node_class is not None and seen.node_class.ready
    return ready and not validation_errors(pool, seen.types)


def describe_pool(pool: NodePool, seen: ObservedPool) -> NodePoolCounters:
    """The counters and conditions of a pool."""
    valid, made = _validation(pool, seen), _node_class(seen.node_class)
    amounts = dict.fromkeys(("cpu", "memory", "pods", "ephemeral-storage"), 0)
    amounts |= dict(seen.used or {})
    count = sum(c.metadata.deletion_timestamp is None for c in seen.claims)
    amounts[NODES] = count * MILLI
    return NodePoolCounters(
        resources={n: quantity_text(n, a) for n, a in sorted(amounts.items())},
        nodes=count,
        node_class_observed_generation=seen.class_generation,
        conditions=(valid, made, _health(seen.healthy), _ready(valid, made)),
    )


def _validation(pool: NodePool, seen: ObservedPool) -> Condition:
    errors = validation_errors(pool, seen.types)
    if not errors:
        return _condition(nodepools.VALIDATION_SUCCEEDED, "True")
    reason, text = NodePoolReason.VALIDATION_FAILED, "; ".join(errors)
    return _condition(nodepools.VALIDATION_SUCCEEDED, "False", reason, text)


def _node_class(state: NodeClassState | None) -> Condition:
    if state is None:
        reason, text = NodePoolReason.NODE_CLASS_NOT_FOUND, "NodeClass not found on cluster"
        return _condition(nodepools.NODE_CLASS_READY, "False", reason, text)
    if state.ready:
        return _condition(nodepools.NODE_CLASS_READY, "True")
    reason_text = state.reason or NodePoolReason.NODE_CLASS_NOT_READY
    return _condition(nodepools.NODE_CLASS_READY, "False", reason_text, state.message)


def _health(healthy: bool | None) -> Condition:
    type_ = nodepools.NODE_REGISTRATION_HEALTHY
    if healthy is None:
        reason = NodePoolReason.AWAITING_RECONCILIATION
        return _condition(type_, "Unknown", reason, "no node claim has registered or failed yet")
    if healthy:
        return _condition(type_, "True")
    text = "at least half of the last node claims did not register"
    return _condition(type_, "False", NodePoolReason.REGISTRATION_FAILED, text)


def _ready(*conditions: Condition) -> Condition:
    bad = [c for c in conditions if c.status != "True"]
    if not bad:
        return _condition("Ready", "True")
    text = "; ".join(f"{c.type}: {c.message}" for c in bad)
    return _condition("Ready", "False", DependentsReason.UNHEALTHY, text)


def _condition(
    type_: str, status: ConditionStatus, reason: str = "", message: str = ""
) -> Condition:
    return Condition(type=type_, status=status, reason=reason or type_, message=message)
