"""
Replica counts during a rolling update of MachineSets or ReplicaSets. Pure.

The rules are those of Cluster API and Deployments: never more than ``replicas + surge`` replicas,
never fewer than ``replicas - unavailable`` available ones, unhealthy old ones are deleted first.
With ``OnDelete`` nothing is deleted; deleted replicas are replaced from the new template.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Strategy = Literal["RollingUpdate", "OnDelete"]
DeletePolicy = Literal["Random", "Newest", "Oldest"]


@dataclass(frozen=True, slots=True)
class RolloutPolicy:
    """The desired number of replicas and the allowed deviation during a rollout."""

    replicas: int
    surge: int = 1
    unavailable: int = 0
    strategy: Strategy = "RollingUpdate"


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """The replica counts of one set: desired, existing and available."""

    name: str
    wanted: int
    actual: int
    available: int
    current: bool = False  # created from the current template
    order: str = ""  # sort key of old sets, oldest first


@dataclass(frozen=True, slots=True)
class DesiredReplicas:
    """The number of replicas that a set should have."""

    name: str
    replicas: int


def int_or_percent(value: int | str | None, total: int, *, up: bool) -> int:
    """An int-or-percent value of ``total``, rounded as Kubernetes does."""
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
    """A policy from manifest values; if both are zero, one replica may be unavailable."""
    more, fewer = (
        int_or_percent(surge, replicas, up=True),
        int_or_percent(unavailable, replicas, up=False),
    )
    return RolloutPolicy(replicas, more, fewer if more or fewer else 1, strategy)


def scale(policy: RolloutPolicy, parts: Sequence[ReplicaCounts]) -> tuple[DesiredReplicas, ...]:
    """The desired counts that differ from the current ones, the new set first."""
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
    for part in old:  # unavailable replicas first
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
    for part in old:  # scaling down deletes old replicas first
        fewer = min(kept[part.name], over)
        kept[part.name] -= fewer
        over -= fewer
    grown = _changed(new, max(0, policy.replicas - sum(kept.values())))
    return grown + tuple(r for p in old for r in _changed(p, kept[p.name]))


def _changed(part: ReplicaCounts, replicas: int) -> tuple[DesiredReplicas, ...]:
    return () if part.wanted == replicas else (DesiredReplicas(part.name, replicas),)


@dataclass(frozen=True, slots=True)
class DeletionCandidate:
    """A machine of a set, with what decides how early it is deleted."""

    name: str
    created: str  # RFC 3339, sorts by age
    marked: bool = False  # annotated for deletion
    healthy: bool = True
    has_node: bool = True
    deleting: bool = False


def choose_deletions(
    members: Iterable[DeletionCandidate], count: int, how: DeletePolicy = "Random"
) -> tuple[str, ...]:
    """The machines to delete: annotated, then unhealthy, then by age; deleting ones count."""
    members = sorted(members, key=lambda m: m.name)
    leaving = [m for m in members if m.deleting]
    staying = [m for m in members if not m.deleting]
    if how != "Random":
        staying.sort(key=lambda m: m.created, reverse=how == "Newest")
    staying.sort(key=lambda m: (not m.marked, m.healthy, m.has_node))
    return tuple(m.name for m in staying[: max(0, count - len(leaving))])


def sets_beyond_history(parts: Iterable[ReplicaCounts], keep: int) -> tuple[str, ...]:
    """Empty old sets beyond the revision history limit, oldest first."""
    empty = sorted(
        (p for p in parts if not p.current and p.wanted == 0 and p.actual == 0),
        key=lambda p: (p.order, p.name),
    )
    return tuple(p.name for p in empty[: max(0, len(empty) - keep)])
