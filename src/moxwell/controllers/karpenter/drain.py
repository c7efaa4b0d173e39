"""
Which pods of a node are evicted or deleted next, by Karpenter's rules. Pure.

Pods are evicted in four tiers: those that are not critical before critical ones, and in each those
of workloads before those of daemon sets. A tier begins when the earlier ones are gone. A pod that
must not be disrupted is waited for. Once the termination grace period of the node claim leaves a
pod no more than its own grace period, the pod is deleted, whatever protects it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from moxwell.api.core.pods import Pod
from moxwell.scheduling.packing.rescheduling import DISRUPTED_TAINT, duration_seconds
from moxwell.scheduling.taints import untolerated
from moxwell.scheduling.well_known_labels import DO_NOT_DISRUPT

CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})
STUCK_SECONDS = 60.0  # after the grace period of a terminating pod
POD_GRACE_SECONDS = 30  # the default of the API


@dataclass(frozen=True, slots=True)
class ExpiringPod:
    """A pod that is deleted with the grace period that the node still has."""

    pod: Pod
    grace_seconds: int


@dataclass(frozen=True, slots=True)
class DrainState:
    """The pods that still block the termination of a node, and what happens to them next."""

    waiting: int = 0
    evictable: tuple[Pod, ...] = ()
    expiring: tuple[ExpiringPod, ...] = ()


def drain_state(pods: Iterable[Pod], now: datetime, deadline: datetime | None) -> DrainState:
    """What the pods of a node need; ``deadline`` ends the termination grace period."""
    waiting = [p for p in pods if not p.is_over and is_drainable(p, now)]
    first = next((tier for tier in tiers(waiting) if tier), ())
    expiring = (_expiring(p, now, deadline) for p in waiting)
    return DrainState(
        len(waiting),
        tuple(p for p in first if is_evictable(p, now)),
        tuple(e for e in expiring if e is not None),
    )


def tiers(pods: Iterable[Pod]) -> tuple[tuple[Pod, ...], ...]:
    """The pods in the order of their eviction."""
    found: dict[tuple[bool, bool], list[Pod]] = {}
    for pod in pods:
        tier = (pod.spec.priority_class_name in CRITICAL, is_owned_by(pod, "DaemonSet"))
        found.setdefault(tier, []).append(pod)
    return tuple(tuple(found[tier]) for tier in sorted(found))


def is_drainable(pod: Pod, now: datetime) -> bool:
    """Whether the node waits for the pod: not if it tolerates the taint, is static or is stuck."""
    stuck = is_terminating(pod) and now - _deleted(pod) > timedelta(seconds=STUCK_SECONDS)
    return not (stuck or is_owned_by(pod, "Node") or tolerates_disruption(pod))


def is_evictable(pod: Pod, now: datetime) -> bool:
    """Whether the pod is evicted now."""
    return not is_terminating(pod) and not is_protected(pod, now)


def is_protected(pod: Pod, now: datetime) -> bool:
    """Whether do-not-disrupt holds: ``true``, or a duration since the start of the pod."""
    value = pod.metadata.annotations.get(DO_NOT_DISRUPT)
    if value is None or value == "true":
        return value is not None
    seconds = duration_seconds(value)
    if seconds is None or seconds <= 0:
        return False
    started = pod.status.start_time
    return started is None or (now - started).total_seconds() < seconds


def tolerates_disruption(pod: Pod) -> bool:
    """Whether the pod tolerates the taint of disrupted nodes."""
    return not untolerated((DISRUPTED_TAINT,), pod.spec.tolerations)


def is_terminating(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def is_owned_by(pod: Pod, kind: str) -> bool:
    """Whether an owner of the pod is of a kind: DaemonSet, or Node for a static pod."""
    version = "v1" if kind == "Node" else "apps/v1"
    owners = pod.metadata.owner_references
    return any(o.kind == kind and o.api_version == version for o in owners)


def _deleted(pod: Pod) -> datetime:
    assert pod.metadata.deletion_timestamp is not None
    return pod.metadata.deletion_timestamp


def _expiring(pod: Pod, now: datetime, deadline: datetime | None) -> ExpiringPod | None:
    if deadline is None or (is_terminating(pod) and _deleted(pod) <= deadline):
        return None
    grace = pod.spec.termination_grace_period_seconds
    seconds = POD_GRACE_SECONDS if grace is None else grace
    left = (deadline - now).total_seconds()
    return ExpiringPod(pod, max(1, int(left))) if left < seconds else None
