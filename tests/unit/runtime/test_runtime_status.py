"""What a pass found, as the smallest write; and what errors, writes and moves mean."""

from dataclasses import dataclass
from dataclasses import field as field_
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import field

from moxwell.api import json_merge
from moxwell.api.conditions import Condition, LegacyCondition
from moxwell.api.kinds import Object, kind
from moxwell.api.meta import Value
from moxwell.errors import Bug, Busy, Conflict, Invalid, Unreachable
from moxwell.runtime import failure
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait, as_text
from moxwell.runtime.own_writes import OwnWrites
from moxwell.runtime.status import status_patch
from moxwell.testing.sample_kind import THINGS, Thing, ThingStatus

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
STAMP = "2026-01-02T03:04:05Z"
OLD = "2025-01-01T00:00:00Z"


def said(type_: str, status: str, since: str | None = None) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": "R",
        "message": "",
        "lastTransitionTime": since,
        "observedGeneration": 0,
    }


def want(*types: tuple[str, str], **more: Any) -> ThingStatus:
    conditions = (Condition(type=t, status=s, reason="R") for t, s in types)  # type: ignore[arg-type]
    return ThingStatus(conditions=tuple(conditions), **more)


@pytest.mark.parametrize(
    "have, wanted, owns, patch",
    [
        pytest.param({}, want(), (), {}, id="nothing to say"),
        pytest.param({}, want(ready=True), (), {"ready": True}, id="a first field"),
        pytest.param({"ready": True}, want(ready=True), (), {}, id="nothing new"),
        pytest.param({"size": 3}, want(), (), {"size": None}, id="a field is no longer so"),
        pytest.param({"theirs": 3}, want(), (), {}, id="an unknown field stays"),
        pytest.param(
            {}, want(("A", "True")), (), {"conditions": [said("A", "True", STAMP)]}, id="first said"
        ),
        pytest.param(
            {"conditions": [said("A", "True", OLD)]}, want(("A", "True")), (), {}, id="same again"
        ),
        pytest.param(
            {"conditions": [said("A", "False", OLD)]},
            want(("A", "True")),
            (),
            {"conditions": [said("A", "True", STAMP)]},
            id="the time moves with the status",
        ),
        pytest.param(
            {"conditions": [said("B", "True", OLD), said("A", "True", OLD)]},
            want(("A", "False")),
            (),
            {"conditions": [said("B", "True", OLD), said("A", "False", STAMP)]},
            id="others' conditions stay where they were",
        ),
        pytest.param(
            {"conditions": [said("A", "True", OLD), said("B", "True", OLD)]},
            want(),
            ("A",),
            {"conditions": [said("B", "True", OLD)]},
            id="an own condition not mentioned goes",
        ),
        pytest.param(
            {"v1beta2": {"conditions": [said("A", "True", OLD)]}},
            {"v1beta2": {"conditions": [said("A", "True")]}},
            (),
            {},
            id="conditions deeper down keep their time too",
        ),
    ],
)
def test_status_patch(have: Any, wanted: Any, owns: Any, patch: Any) -> None:
    assert status_patch(have, wanted, owns=owns, now=NOW) == patch


truths = st.sampled_from(["True", "False", "Unknown"])
lists = st.lists(st.tuples(st.sampled_from("ABC"), truths), unique_by=lambda c: c[0])


@given(have=lists, wanted=lists)
def test_what_was_written_once_is_not_written_again(
    have: list[tuple[str, str]], wanted: list[tuple[str, str]]
) -> None:
    before = {"conditions": [said(t, s, OLD) for t, s in have]}
    status = want(*wanted)
    after = json_merge.apply_merge_patch(before, status_patch(before, status, now=NOW))
    assert status_patch(after, status, now=datetime(2027, 1, 1, tzinfo=UTC)) == {}
    assert {c["type"] for c in after["conditions"]} == {t for t, _ in (*have, *wanted)}


@pytest.mark.parametrize(
    "error, truth, reason, retry",
    [
        (Unreachable("away"), "Unknown", "Unreachable", "soon"),
        (Busy("locked"), "False", "Busy", "soon"),
        (Conflict("first"), "False", "Conflict", "soon"),
        (Invalid("wrong"), "False", "Invalid", "change"),
        (Bug("broken"), "Unknown", "InternalError", "soon"),
        (KeyError("x"), "Unknown", "InternalError", "soon"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_the_class_of_an_error_decides(
    error: Exception, truth: str, reason: str, retry: str
) -> None:
    found = failure.explain(error)
    assert (found.truth, found.reason, found.retry) == (truth, reason, retry)


class _LegacyStatus(Value, frozen=True, kw_only=True):
    conditions: tuple[LegacyCondition, ...] = ()


@kind(group="test.moxwell.dev", version="v1", plural="legacies")
class Legacy(Object, frozen=True, kw_only=True):
    status: _LegacyStatus = field(default_factory=_LegacyStatus)


@kind(group="", version="v1", plural="plains", builtin=True)
class Plain(Object, frozen=True, kw_only=True):
    pass


@pytest.mark.parametrize(
    "kind_, form, named",
    [
        (Thing, Condition, "Ready"),
        (Legacy, LegacyCondition, "Ready"),
        (Plain, None, ""),
        (THINGS, Condition, ""),
    ],
    ids=["conditions", "legacy conditions", "none", "only a resource known"],
)
def test_failures_are_told_in_the_form_of_the_kind(kind_: Any, form: Any, named: str) -> None:
    assert failure.condition_type(kind_) is form
    assert failure.failure_condition(kind_, None) == named


def test_a_legacy_condition_has_a_severity() -> None:
    made = failure.as_condition(LegacyCondition, "Ready", failure.explain(Invalid("wrong")), 3)
    assert made == LegacyCondition(
        type="Ready", status="False", severity="Error", reason="Invalid", message="wrong"
    )


A = Key("ns", "a")


def test_own_writes_are_told_from_others_also_when_they_arrive_early() -> None:
    writes = OwnWrites()
    writes.begin(A)
    assert not writes.is_foreign(A, "5")  # judged at the end
    writes.wrote(A, "5")
    assert not writes.end(A)
    writes.begin(A)
    assert not writes.is_foreign(A, "6")
    writes.wrote(A, "7")
    assert not writes.is_foreign(A, "7")
    assert writes.end(A)  # somebody else's 6


def test_own_writes_that_arrive_late_are_let_by_and_others_are_news() -> None:
    writes = OwnWrites()
    writes.begin(A)
    writes.wrote(A, "5")
    writes.wrote(A, "6")
    assert not writes.end(A)
    assert writes.is_stale(A, "4")
    assert not writes.is_foreign(A, "5")
    assert writes.is_stale(A, "5")
    assert not writes.is_foreign(A, "6")
    assert not writes.is_stale(A, "6")
    assert writes.is_foreign(A, "7")


def test_own_writes_skipped_by_a_relist_are_forgotten() -> None:
    writes = OwnWrites()
    writes.wrote(A, "5")
    assert writes.is_foreign(A, "9")
    assert not writes.is_stale(A, "9")
    assert writes.is_foreign(A, "10")


@dataclass(frozen=True)
class Start:
    vmid: int
    ticket: str = field_(default="s3cret", repr=False)


class Clone(Value, frozen=True, kw_only=True):
    vmid: int
    name: str
    pool: str | None = None


@pytest.mark.parametrize(
    "move, text",
    [
        (Done(), "nothing to do"),
        (Wait("TaskRunning"), "waiting: TaskRunning"),
        (Wait("NoAddress", "the pool is empty"), "waiting: NoAddress (the pool is empty)"),
        (Start(101), "Start(vmid=101)"),
        (Clone(vmid=101, name="w1"), "Clone(vmid=101, name='w1')"),
    ],
    ids=["settled", "wait", "wait with a message", "a dataclass", "a struct"],
)
def test_a_move_reads_as_a_sentence(move: object, text: str) -> None:
    assert as_text(move) == text
