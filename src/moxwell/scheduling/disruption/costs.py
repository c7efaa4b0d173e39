"""What it costs to disrupt a node: 1, and for each pod its eviction cost if that is positive."""

from collections.abc import Iterable
from math import isnan

from moxwell.scheduling.packing.pods import PodDemand

POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
NODE_COST = 1.0
_MOST = 10.0


def eviction_cost(pod: PodDemand) -> float:
    """1, raised or lowered by deletion cost and priority, within -10 and 10."""
    deletion = _number(dict(pod.annotations).get(POD_DELETION_COST, ""))
    cost = 1.0 + deletion / 2**27 + (pod.priority or 0) / 2**25
    return max(-_MOST, min(_MOST, cost))


def _number(text: str) -> float:
    """A number; 0 if the text is none, which has no effect on the cost."""
    try:
        found = float(text) if "_" not in text and text == text.strip() else 0.0
    except ValueError:
        return 0.0
    return 0.0 if isnan(found) else found


def disruption_cost(pods: Iterable[PodDemand]) -> float:
    """The cost of disrupting a node whose pods these are."""
    return NODE_COST + sum(max(0.0, eviction_cost(p)) for p in pods)
