"""
Soft constraints of a pod, dropped one at a time when it does not fit. Pure.

The order is Karpenter's: a further required node term, the heaviest preferred pod affinity,
preferred pod anti-affinity, preferred node term, a ScheduleAnyway spread constraint, and last the
toleration of PreferNoSchedule taints, if a pool has such a taint.
"""

from dataclasses import replace

from moxwell.scheduling.packing.pods import PodShape, SpreadConstraint
from moxwell.scheduling.taints import TOLERATE_PREFER_NO_SCHEDULE


def relaxed(shape: PodShape, tolerate_prefer_no_schedule: bool) -> PodShape | None:
    """The shape with its next soft constraint dropped; None if there is none."""
    if len(shape.required_terms) > 1:
        return replace(shape, required_terms=shape.required_terms[1:])
    if shape.preferred_affinity:
        return replace(shape, preferred_affinity=shape.preferred_affinity[1:])
    if shape.preferred_anti_affinity:
        return replace(shape, preferred_anti_affinity=shape.preferred_anti_affinity[1:])
    if shape.preferred_terms:
        return replace(shape, preferred_terms=shape.preferred_terms[1:])
    if any(c.is_preference for c in shape.spread):
        return replace(shape, spread=_without_first_preference(shape.spread))
    if tolerate_prefer_no_schedule:
        return tolerating(shape)
    return None


def tolerating(shape: PodShape) -> PodShape | None:
    """The shape that tolerates PreferNoSchedule taints; None if it already does."""
    if any(_tolerates_all(t.key, t.effect, t.operator, t.value) for t in shape.tolerations):
        return None
    return replace(shape, tolerations=(*shape.tolerations, TOLERATE_PREFER_NO_SCHEDULE))


def _tolerates_all(key: str, effect: str, operator: str, value: str) -> bool:
    all_of = TOLERATE_PREFER_NO_SCHEDULE
    return (key, effect, operator, value) == ("", all_of.effect, all_of.operator, "")


def _without_first_preference(
    spread: tuple[SpreadConstraint, ...],
) -> tuple[SpreadConstraint, ...]:
    """The last constraint takes the place of the dropped one."""
    index = next(i for i, c in enumerate(spread) if c.is_preference)
    if index == len(spread) - 1:
        return spread[:-1]
    return (*spread[:index], spread[-1], *spread[index + 1 : -1])
