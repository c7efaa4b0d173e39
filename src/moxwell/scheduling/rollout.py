"""
How a group of machines passes from one template to the next.

In flow a :class:`RolloutPolicy` (how many, how many more, how many fewer) and the :class:`ReplicaCounts` of each
MachineSet; out flow the new sizes. The rule is Cluster API's: never more than ``replicas + surge``
machines, never fewer than ``replicas - unavailable`` available ones, unhealthy old ones go first.
With ``OnDelete`` nothing is taken away; what somebody deletes comes back from the new template.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Strategy = Literal["RollingUpdate", "OnDelete"]
DeletePolicy = Literal["Random", "Newest", "Oldest"]


@dataclass(frozen=True, slots=True)
class RolloutPolicy:
    """What the group should be, and how far it may stray on the way."""

    replicas: int
    surge: int = 1
    unavailable: int = 0
    strategy: Strategy = "RollingUpdate"


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """One MachineSet: what it was told, what it has, what of that works."""

    name: str
    wanted: int
    actual: int
    available: int
    current: bool = False  # made from the template that is asked for now
    order: str = ""  # sorts old ones by age, oldest first


@dataclass(frozen=True, slots=True)
class DesiredReplicas:
    """A MachineSet should have this many machines."""

    name: str
    replicas: int


def int_or_percent(value: int | str | None, total: int, *, up: bool) -> int:
    """A number, or a percentage of ``total`` rounded as Kubernetes does."""
    if value is None:
        return 0
    text = str(value)
    if not text.endswith("%"):
        return int(text)
    part = int(text[:-1]) * total / 100
    return math.ceil(part) if up else math.floor(part)


def rollout_policy(
    replicas: int,
    surge: int | str | None = 1,
    unavailable: int | str | None = 0,
    strategy: Strategy = "RollingUpdate",
) -> RolloutPolicy:
    """A policy from what a manifest says; one of the two must leave room to move."""
    more, fewer = (
        int_or_percent(surge, replicas, up=True),
        int_or_percent(unavailable, replicas, up=False),
    )
    return RolloutPolicy(replicas, more, fewer if more or fewer else 1, strategy)


def scale(policy: RolloutPolicy, parts: Sequence[ReplicaCounts]) -> tuple[DesiredReplicas, ...]:
    """The sizes that differ from what the sets were told, new one first."""
    new = next((p for p in parts if p.current), None)
    if new is None:
        return ()
    old = sorted((p for p in parts if not p.current), key=lambda p: (p.order, p.name))
    if policy.strategy == "OnDelete":
        return _on_delete(policy, new, old)
    return _grow(policy, new, old) or _shrink(policy, new, old)


def _grow(
    policy: RolloutPolicy, new: ReplicaCounts, old: Sequence[ReplicaCounts]
) -> tuple[DesiredReplicas, ...]:
    if new.wanted > policy.replicas or not old or all(p.wanted == 0 for p in old):
        return _changed(new, policy.replicas)
    room = policy.replicas + policy.surge - sum(max(p.wanted, p.actual) for p in (new, *old))
    return _changed(new, min(policy.replicas, new.wanted + max(0, room)))


def _shrink(
    policy: RolloutPolicy, new: ReplicaCounts, old: Sequence[ReplicaCounts]
) -> tuple[DesiredReplicas, ...]:
    total = new.wanted + sum(p.wanted for p in old)
    minimum = policy.replicas - policy.unavailable
    spare = total - minimum - (new.wanted - min(new.available, new.wanted))
    wanted = {p.name: p.wanted for p in old}
    for part in old:  # what does not work anyway is no loss
        broken = min(max(0, part.wanted - part.available), max(0, spare), wanted[part.name])
        wanted[part.name] -= broken
        spare -= broken
    working = sum(min(p.available, p.wanted) for p in (new, *old))
    spare = min(spare, working - minimum)
    for part in old:
        fewer = min(wanted[part.name], max(0, spare))
        wanted[part.name] -= fewer
        spare -= fewer
    return tuple(r for p in old for r in _changed(p, wanted[p.name]))


def _on_delete(
    policy: RolloutPolicy, new: ReplicaCounts, old: Sequence[ReplicaCounts]
) -> tuple[DesiredReplicas, ...]:
    kept = {p.name: min(p.wanted, p.actual) for p in old}
    over = max(0, sum(kept.values()) - policy.replicas)
    for part in old:  # scaling the group down takes old ones first
        fewer = min(kept[part.name], over)
        kept[part.name] -= fewer
        over -= fewer
    grown = _changed(new, max(0, policy.replicas - sum(kept.values())))
    return grown + tuple(r for p in old for r in _changed(p, kept[p.name]))


def _changed(part: ReplicaCounts, replicas: int) -> tuple[DesiredReplicas, ...]:
    return () if part.wanted == replicas else (DesiredReplicas(part.name, replicas),)


@dataclass(frozen=True, slots=True)
class DeletionCandidate:
    """One machine of a set, as far as choosing whom to delete goes."""

    name: str
    created: str  # RFC 3339, sorts by age
    marked: bool = False  # somebody asked for this one
    healthy: bool = True
    has_node: bool = True
    deleting: bool = False


def choose_deletions(
    members: Iterable[DeletionCandidate], count: int, how: DeletePolicy = "Random"
) -> tuple[str, ...]:
    """Whom to delete: asked-for ones, then broken ones, then by age; those leaving count."""
    members = sorted(members, key=lambda m: m.name)
    leaving = [m for m in members if m.deleting]
    staying = [m for m in members if not m.deleting]
    if how != "Random":
        staying.sort(key=lambda m: m.created, reverse=how == "Newest")
    staying.sort(key=lambda m: (not m.marked, m.healthy, m.has_node))
    return tuple(m.name for m in staying[: max(0, count - len(leaving))])


def sets_beyond_history(parts: Iterable[ReplicaCounts], keep: int) -> tuple[str, ...]:
    """Empty old sets beyond the history to keep, oldest first."""
    empty = sorted(
        (p for p in parts if not p.current and p.wanted == 0 and p.actual == 0),
        key=lambda p: (p.order, p.name),
    )
    return tuple(p.name for p in empty[: max(0, len(empty) - keep)])
