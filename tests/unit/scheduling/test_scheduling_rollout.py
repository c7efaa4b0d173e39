"""Rolling updates as a table, and the limits that hold in any order of events."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from moxwell.scheduling.rollout import (
    DeletionCandidate,
    DesiredReplicas,
    ReplicaCounts,
    RolloutPolicy,
    choose_deletions,
    int_or_percent,
    rollout_policy,
    scale,
    sets_beyond_history,
)

NEW = ReplicaCounts("new", 0, 0, 0, current=True)


def old(wanted: int, available: int | None = None, name: str = "old") -> ReplicaCounts:
    return ReplicaCounts(name, wanted, wanted, wanted if available is None else available)


@pytest.mark.parametrize(
    "asked, parts, moves",
    [
        pytest.param(rollout_policy(3), [NEW], [("new", 3)], id="first set"),
        pytest.param(
            rollout_policy(3), [replace(NEW, wanted=3, actual=3, available=3)], [], id="settled"
        ),
        pytest.param(rollout_policy(3), [NEW, old(3)], [("new", 1)], id="surge of one"),
        pytest.param(
            rollout_policy(3, 0, 1), [NEW, old(3)], [("old", 2)], id="no surge, one fewer"
        ),
        pytest.param(
            rollout_policy(3, 0, 0), [NEW, old(3)], [("old", 2)], id="both zero means one fewer"
        ),
        pytest.param(
            rollout_policy(3),
            [replace(NEW, wanted=1, actual=1), old(3)],
            [],
            id="waits for the new one",
        ),
        pytest.param(
            rollout_policy(3),
            [replace(NEW, wanted=1, actual=1, available=1), old(3)],
            [("old", 2)],
            id="new one works, old one goes",
        ),
        pytest.param(
            rollout_policy(3, "50%", "0%"), [NEW, old(3)], [("new", 2)], id="percent rounds up"
        ),
        pytest.param(
            rollout_policy(3),
            [NEW, old(3, available=1)],
            [("new", 1)],
            id="broken old ones do not block",
        ),
        pytest.param(
            rollout_policy(3),
            [replace(NEW, wanted=1, actual=1, available=1), old(3, available=2)],
            [("old", 2)],
            id="the broken old one goes first",
        ),
        pytest.param(
            rollout_policy(2),
            [replace(NEW, wanted=5, actual=5, available=5)],
            [("new", 2)],
            id="scale down",
        ),
        pytest.param(
            rollout_policy(3, strategy="OnDelete"),
            [NEW, old(3)],
            [],
            id="on delete: nothing is taken",
        ),
        pytest.param(
            rollout_policy(3, strategy="OnDelete"),
            [NEW, ReplicaCounts("old", 3, 2, 2)],
            [("new", 1), ("old", 2)],
            id="on delete: what was deleted comes back new",
        ),
        pytest.param(rollout_policy(3), [old(3)], [], id="no set for the template yet"),
    ],
)
def test_scale(
    asked: RolloutPolicy, parts: list[ReplicaCounts], moves: list[tuple[str, int]]
) -> None:
    assert scale(asked, parts) == tuple(DesiredReplicas(name, count) for name, count in moves)


@pytest.mark.parametrize(
    "value, up, count", [(2, True, 2), ("25%", True, 2), ("25%", False, 1), (None, True, 0)]
)
def test_share(value: int | str | None, up: bool, count: int) -> None:
    assert int_or_percent(value, 7, up=up) == count


policies = st.builds(
    rollout_policy,
    st.integers(0, 8),
    st.sampled_from([0, 1, 3, "50%"]),
    st.sampled_from([0, 1, 2, "30%"]),
)


@given(policies, st.lists(st.integers(0, 8), max_size=3), st.randoms(use_true_random=False))
def test_every_rollout_ends_within_its_bounds(
    asked: RolloutPolicy, olds: list[int], dice: object
) -> None:
    """Machines become available in any order; the limits of the policy always hold."""
    assume(sum(olds) <= asked.replicas)
    parts = {"new": NEW} | {f"old{i}": old(n, name=f"old{i}") for i, n in enumerate(olds)}
    start = sum(p.available for p in parts.values())
    floor = min(start, asked.replicas - asked.unavailable)
    for _ in range(200):
        moves = scale(asked, list(parts.values()))
        for move in moves:
            was = parts[move.name]
            gone = max(0, was.actual - move.replicas)
            parts[move.name] = replace(
                was,
                wanted=move.replicas,
                actual=was.actual - gone,
                available=min(was.available, was.actual - gone),
            )
        assert sum(p.available for p in parts.values()) >= floor
        assert sum(p.wanted for p in parts.values()) <= max(asked.replicas + asked.surge, sum(olds))
        growing = [p for p in parts.values() if p.actual < p.wanted or p.available < p.actual]
        if not moves and not growing:
            break
        if growing:
            part = dice.choice(growing)  # type: ignore[attr-defined]
            step = (
                replace(part, actual=part.actual + 1)
                if part.actual < part.wanted
                else replace(part, available=part.available + 1)
            )
            parts[part.name] = step
    assert parts["new"].wanted == parts["new"].available == asked.replicas
    assert all(p.wanted == 0 for name, p in parts.items() if name != "new")


MEMBERS = [
    DeletionCandidate("a", "2026-01-01"),
    DeletionCandidate("b", "2026-01-02", healthy=False),
    DeletionCandidate("c", "2026-01-03", marked=True),
    DeletionCandidate("d", "2026-01-04", has_node=False),
]


@pytest.mark.parametrize(
    "count, how, names",
    [
        pytest.param(1, "Random", ("c",), id="annotated for deletion"),
        pytest.param(2, "Random", ("c", "b"), id="then the broken one"),
        pytest.param(3, "Oldest", ("c", "b", "d"), id="then the one without a node"),
        pytest.param(4, "Newest", ("c", "b", "d", "a"), id="then by age"),
        pytest.param(0, "Oldest", (), id="none"),
    ],
)
def test_choose_leaving(count: int, how: str, names: tuple[str, ...]) -> None:
    assert choose_deletions(MEMBERS, count, how) == names  # type: ignore[arg-type]


def test_those_already_leaving_count() -> None:
    leaving = [replace(MEMBERS[0], deleting=True), *MEMBERS[1:]]
    assert choose_deletions(leaving, 1) == ()
    assert choose_deletions(leaving, 2) == ("c",)


def test_history_is_kept_and_no_more() -> None:
    sets = [NEW, *(ReplicaCounts(f"o{i}", 0, 0, 0, order=str(i)) for i in range(3)), old(1)]
    assert sets_beyond_history(sets, 1) == ("o0", "o1")
