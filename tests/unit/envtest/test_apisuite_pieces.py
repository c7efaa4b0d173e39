"""The suite's own tools: paths, words for what may differ, differences."""

from typing import Any

import pytest

from apisuite import paths
from apisuite.differ import Allowed, Difference, by_step, unexplained
from apisuite.normal import Normal

BODY = {
    "metadata": {"name": "a", "labels": {"a.b/c": "x"}},
    "items": [{"type": "A", "n": 1}, {"type": "B", "n": 2}],
}
UID = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


@pytest.mark.parametrize(
    "path, want",
    [
        pytest.param("metadata.name", "a", id="a key below a key"),
        pytest.param("metadata.labels.a\\.b/c", "x", id="a key with a dot"),
        pytest.param("items[1].n", 2, id="by place"),
        pytest.param("items[type=A].n", 1, id="by a field"),
        pytest.param("items[7]", paths.ABSENT, id="past the end"),
        pytest.param("items[type=Z].n", paths.ABSENT, id="no such item"),
        pytest.param("metadata.name.more", paths.ABSENT, id="below a text"),
    ],
)
def test_find(path: str, want: Any) -> None:
    assert paths.find(BODY, path) == want


@pytest.mark.parametrize(
    "path, want",
    [
        pytest.param("metadata", {"items": BODY["items"]}, id="a key"),
        pytest.param(
            "items.*.n",
            {**BODY, "items": [{"type": "A"}, {"type": "B"}]},
            id="a key of every item",
        ),
        pytest.param("nothing.here", BODY, id="what is not there"),
    ],
)
def test_without(path: str, want: Any) -> None:
    assert paths.without(BODY, path) == want


@pytest.mark.parametrize(
    "value, want",
    [
        pytest.param({"uid": UID}, {"uid": "uid1"}, id="a uid"),
        pytest.param([UID, OTHER, UID], ["uid1", "uid2", "uid1"], id="the same uid is the same"),
        pytest.param("at 2024-01-02T03:04:05Z", "at TIME", id="a time"),
        pytest.param("2024-01-02T03:04:05.123456Z", "MICROTIME", id="a time with microseconds"),
        pytest.param(
            {"name": "a", "resourceVersion": "7"},
            {"name": "a", "resourceVersion": "rv1"},
            id="a revision of an object",
        ),
        pytest.param({"resourceVersion": "7"}, {"resourceVersion": "LIST-RV"}, id="of a list"),
        pytest.param({"resourceVersion": ""}, {"resourceVersion": ""}, id="no revision"),
        pytest.param(
            {"generateName": "g-", "name": "g-x7z"},
            {"generateName": "g-", "name": "g-RANDOM"},
            id="a generated name",
        ),
        pytest.param("in real-ns", "in NS", id="a name of the case"),
        pytest.param({"continue": "abc"}, {"continue": "CONTINUE"}, id="where to go on"),
    ],
)
def test_normal(value: Any, want: Any) -> None:
    assert Normal({"real-ns": "NS"}).body(value) == want


def test_columns_and_ages_do_not_count() -> None:
    assert Normal({}).printed("NAME   AGE\nx      3m20s\n") == "NAME AGE\nx AGE"


def answer(status: int, **body: Any) -> dict[str, Any]:
    return {"status": status, "body": body}


def test_an_answer_of_another_status_is_one_difference() -> None:
    left, right = [answer(422, message="no")], [answer(201, kind="Widget", spec={})]
    assert list(by_step(left, right)) == [Difference("/0/status", "422 no", "201 Widget")]


def test_every_leaf_that_differs_is_told() -> None:
    found = list(by_step([answer(200, a=1, b=[1, 2])], [answer(200, a=2, b=[1, 3])]))
    assert [d.place for d in found] == ["/0/body/a", "/0/body/b/1"]


def test_what_is_allowed_is_not_told() -> None:
    allowed = (Allowed("area: *", "/*/body/a", "for a reason"),)
    left, right = [answer(200, a=1, b=1)], [answer(200, a=2, b=2)]
    assert [d.place for d in unexplained("area: x", left, right, allowed)] == ["/0/body/b"]
    assert len(unexplained("other: x", left, right, allowed)) == 2
