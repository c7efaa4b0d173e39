"""
Which pods of a node that is removed need another node. Pure.

Pods of daemon sets and static pods do not; a pod that must not be disrupted, or that a
PodDisruptionBudget blocks for good, stays where it is for now.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from moxwell.api.core.nodes import Taint
from moxwell.scheduling.packing.pods import PodDemand, PodSelector
from moxwell.scheduling.taints import untolerated
from moxwell.scheduling.well_known_labels import DO_NOT_DISRUPT

DISRUPTED_TAINT = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}


@dataclass(frozen=True, slots=True)
class DisruptionLimit:
    """A PodDisruptionBudget; ``blocks_always`` if it can never allow a disruption."""

    namespace: str
    name: str
    selector: PodSelector | None
    allowed: int
    blocks_always: bool = False
    allows_unhealthy: bool = False

    def covers(self, pod: PodDemand) -> bool:
        if self.selector is None or self.namespace != pod.namespace:
            return False
        return self.selector.matches(dict(pod.shape.labels))


def duration_seconds(text: str) -> float | None:
    """A Go duration such as ``1h30m``; None if it is malformed."""
    found = list(_DURATION.finditer(text))
    if not found or "".join(m[0] for m in found) != text.removeprefix("+"):
        return None
    return sum(float(m[1]) * _SECONDS[m[2]] for m in found)


def must_not_be_disrupted(pod: PodDemand, now: float) -> bool:
    """Whether the do-not-disrupt annotation holds: ``true``, or a duration since the start."""
    value = dict(pod.annotations).get(DO_NOT_DISRUPT)
    if value is None or value == "true":
        return value is not None
    seconds = duration_seconds(value)
    if seconds is None or seconds <= 0:
        return False
    return pod.started is None or now - pod.started < seconds


def is_active(pod: PodDemand) -> bool:
    return not pod.is_terminal and not pod.terminating


def is_disruptable(pod: PodDemand, now: float) -> bool:
    return not is_active(pod) or not must_not_be_disrupted(pod, now)


def is_reschedulable(pod: PodDemand) -> bool:
    """Whether the pod will need a node elsewhere."""
    lives = is_active(pod) or (pod.owner == "StatefulSet" and pod.terminating)
    return lives and pod.owner not in ("DaemonSet", "Node")


def is_evictable(pod: PodDemand, now: float) -> bool:
    """Whether draining evicts the pod through the Eviction API."""
    tolerates = not untolerated((DISRUPTED_TAINT,), pod.shape.tolerations)
    stays = tolerates or pod.owner == "Node" or must_not_be_disrupted(pod, now)
    return is_active(pod) and not stays


def blocking_limits(
    pod: PodDemand, limits: Iterable[DisruptionLimit], now: float, *, for_good: bool
) -> tuple[DisruptionLimit, ...]:
    """
    The budgets that keep a pod from being evicted, at present or for good.

    The Eviction API refuses pods that several budgets cover.
    """
    if not is_evictable(pod, now):
        return ()
    covering = tuple(limit for limit in limits if limit.covers(pod))
    if len(covering) > 1:
        return covering
    for limit in covering:
        if limit.allows_unhealthy and not pod.ready:
            return ()
        if limit.blocks_always if for_good else limit.allowed == 0:
            return (limit,)
    return ()


def currently_reschedulable(
    pods: Iterable[PodDemand], limits: Iterable[DisruptionLimit], now: float
) -> tuple[PodDemand, ...]:
    """The pods that are scheduled anew when their node is removed."""
    limits = tuple(limits)
    return tuple(
        p
        for p in pods
        if is_reschedulable(p)
        and is_disruptable(p, now)
        and not blocking_limits(p, limits, now, for_good=True)
    )
