"""Describes when a node of a node pool is removed. Pure."""

from collections.abc import Iterator

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.durations import NEVER, after, seconds_or_never


def leaving_rules(claim: NodeClaim, pool: NodePool) -> Iterator[str]:
    """Each rule by which the node leaves; one of them is enough."""
    if pool.spec.replicas is None:
        yield from _consolidation(pool)
    else:
        yield f"The pool gets fewer than {pool.spec.replicas} replicas."
    yield "The node pool or its node class changes: the node drifts and is replaced."
    end = after(claim.metadata.creation_timestamp, _expiry(claim))
    if end is not None:
        yield f"It expires at {end:%Y-%m-%d %H:%M} UTC (expireAfter {claim.spec.expire_after})."


def _expiry(claim: NodeClaim) -> float | None:
    return seconds_or_never(claim.spec.expire_after)


def _consolidation(pool: NodePool) -> Iterator[str]:
    chosen = pool.spec.disruption
    if chosen.consolidate_after == NEVER:
        return
    quiet = f"after {chosen.consolidate_after} without a new or deleted pod"
    yield f"No pod that needs a node is left on it, {quiet}."
    if chosen.consolidation_policy == "WhenEmptyOrUnderutilized":
        yield f"Its pods fit on other nodes, or on a cheaper node, {quiet}."
    elif chosen.consolidation_policy == "Balanced":
        yield f"Its pods fit elsewhere for a saving that is worth moving them, {quiet}."
