"""Whether a node claim drifted, and whether it may be consolidated. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from moxwell.api.core.pods import Pod
from moxwell.api.karpenter.nodeclaims import (
    INITIALIZED,
    LAUNCHED,
    NodeClaim,
)
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.drain import is_owned_by
from moxwell.controllers.karpenter.durations import after, seconds_or_never, soonest, until
from moxwell.controllers.karpenter.karpenter_conditions import is_true, true_since
from moxwell.controllers.karpenter.names import HASH, HASH_VERSION
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.requirement_sets import RequirementAlgebra
from moxwell.scheduling.requirements import InvalidRequirement, requirement
from moxwell.scheduling.well_known_labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    KARPENTER_LABELS,
    ON_DEMAND,
    RESERVED,
    ZONE,
)

RECHECK_SECONDS = 300.0
TYPE_CHECK_SECONDS = 3600.0  # the age from which the instance type must still be offered
REPEATED_SECONDS = 10.0  # pod events that follow each other sooner are recorded as one


class DriftReason(StrEnum):
    """Why a node claim differs from its node pool; a provider adds reasons of its own."""

    NODE_POOL_DRIFTED = "NodePoolDrifted"
    REQUIREMENTS_DRIFTED = "RequirementsDrifted"
    INSTANCE_TYPE_NOT_FOUND = "InstanceTypeNotFound"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedEligibility:
    """The pool of a node claim, the events of its pods, and the provider's reason for drift."""

    now: datetime
    pool: NodePool | None = None
    last_pod_event: datetime | None = None
    provider_drift: str = ""
    instance_types: tuple[InstanceType, ...] | None = None  # None: not checked


def drift_reason(claim: NodeClaim, seen: ObservedEligibility) -> str:
    """Why the node claim drifted; empty if it did not."""
    if seen.pool is None or not is_true(claim, LAUNCHED):
        return ""
    if pool_drifted(claim.metadata.annotations, seen.pool.metadata.annotations):
        return DriftReason.NODE_POOL_DRIFTED
    if requirements_drifted(claim.metadata.labels, seen.pool):
        return DriftReason.REQUIREMENTS_DRIFTED
    if type_is_missing(claim.metadata.labels, seen.instance_types):
        return DriftReason.INSTANCE_TYPE_NOT_FOUND
    return seen.provider_drift


def pool_drifted(claim: Mapping[str, str], pool: Mapping[str, str]) -> bool:
    """Whether the hash of the pool changed; hashes of different versions are not compared."""
    version = claim.get(HASH_VERSION)
    if version is None or version != pool.get(HASH_VERSION):
        return False
    return claim.get(HASH) is not None and claim.get(HASH) != pool.get(HASH, claim.get(HASH))


def requirements_drifted(labels: Mapping[str, str], pool: NodePool) -> bool:
    """Whether the labels of the node claim do not satisfy the requirements of its pool."""
    algebra = RequirementAlgebra(KARPENTER_LABELS)
    try:
        wanted = algebra.of(
            requirement(r.key, r.operator, r.values, r.min_values)
            for r in pool.spec.template.spec.requirements
        )
    except InvalidRequirement:  # the pool says so in a condition of its own
        return False
    return bool(algebra.mismatches(algebra.of_labels(labels.items()), wanted, lenient=False))


def type_is_missing(labels: Mapping[str, str], types: Iterable[InstanceType] | None) -> bool:
    """Whether the provider does not list the instance type and offering any more."""
    if types is None:
        return False
    own = next((t for t in types if t.name == labels.get(INSTANCE_TYPE)), None)
    if own is None:
        return True
    capacity = {labels.get(CAPACITY_TYPE, "")}
    if RESERVED in capacity:  # it may have become on-demand since
        capacity.add(ON_DEMAND)
    zone = labels.get(ZONE, "")
    return not any(o.capacity_type in capacity and o.zone in ("", zone) for o in own.offerings)


def consolidatable_at(claim: NodeClaim, seen: ObservedEligibility) -> datetime | None:
    """When ``consolidateAfter`` has passed; None if the node claim is never consolidated."""
    pool = seen.pool
    if pool is None or pool.spec.replicas is not None:
        return None
    seconds = seconds_or_never(pool.spec.disruption.consolidate_after)
    initialized = true_since(claim, INITIALIZED)
    if initialized is None:
        return None
    return after(seen.last_pod_event or initialized, seconds)


def is_consolidatable(claim: NodeClaim, seen: ObservedEligibility) -> bool:
    """Whether the node claim may be consolidated now."""
    at = consolidatable_at(claim, seen)
    return at is not None and at <= seen.now


def next_check(claim: NodeClaim, seen: ObservedEligibility) -> float | None:
    """Seconds until the conditions may change without an event."""
    at = consolidatable_at(claim, seen)
    waiting = until(seen.now, at) if at is not None and at > seen.now else None
    return soonest(RECHECK_SECONDS if seen.pool is not None else None, waiting)


def last_pod_event(pods: Iterable[Pod], recorded: datetime | None) -> datetime | None:
    """The last time that a pod was bound, ended or began to terminate."""
    times = [t for p in pods if not is_owned_by(p, "DaemonSet") for t in _event_times(p)]
    found = max(times, default=None)
    if found is None or recorded is None:
        return found or recorded
    return found if found - recorded >= timedelta(seconds=REPEATED_SECONDS) else recorded


def _event_times(pod: Pod) -> Iterable[datetime]:
    for condition in pod.status.conditions:
        bound = condition.type == "PodScheduled" and condition.status == "True"
        ended = condition.type == "Ready" and pod.is_over
        if (bound or ended) and condition.last_transition_time is not None:
            yield condition.last_transition_time
    deleted = pod.metadata.deletion_timestamp
    if deleted is not None:
        grace = pod.metadata.deletion_grace_period_seconds or 0
        yield deleted - timedelta(seconds=grace)
