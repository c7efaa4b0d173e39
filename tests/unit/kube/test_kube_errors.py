"""Every row of the error table is reached, and every error is of one of the house's branches."""

from pathlib import Path

import msgspec
import pytest

from moxwell.errors import (
    Busy,
    Conflict,
    Denied,
    Invalid,
    Missing,
    Retryable,
    Terminal,
    Unreachable,
)
from moxwell.kube import errors
from moxwell.kube.errors import TABLE, StatusRow, error_from


def body(**status: object) -> bytes:
    return msgspec.json.encode({"kind": "Status", "status": "Failure", **status})


def causing(row: StatusRow) -> bytes:
    causes = [{"reason": row.cause}] if row.cause else []
    return body(reason=row.reason, message="no", details={"causes": causes})


@pytest.mark.parametrize("row", TABLE, ids=lambda r: f"{r.code} {r.reason or r.cause or 'any'}")
def test_each_row_raises_its_class(row: StatusRow) -> None:
    error = error_from(row.code, causing(row))
    assert type(error) is row.raises
    assert str(error) == "no"
    assert error.status.code == row.code


def test_every_class_of_ours_stands_in_the_table_or_is_a_fallback() -> None:
    classes = {
        c
        for c in vars(errors).values()
        if isinstance(c, type) and issubclass(c, errors.ApiServerAnswer)
    }
    assert classes - {row.raises for row in TABLE} == {
        errors.ApiServerAnswer,
        errors.UnknownClientError,
    }


def test_an_apply_that_does_not_fit_the_schema_is_wrong_input_although_the_code_is_500() -> None:
    text = "failed to create typed patch object (default/a; /v1, Kind=ConfigMap): .dta: field not"
    assert type(error_from(500, body(message=text))) is errors.KubeBadRequest


def test_every_class_says_whether_to_try_again() -> None:
    assert all(issubclass(row.raises, Retryable | Terminal) for row in TABLE)


@pytest.mark.parametrize(
    "code, kind",
    [
        pytest.param(404, Missing, id="not there"),
        pytest.param(403, Denied, id="not allowed"),
        pytest.param(409, Conflict, id="somebody was first"),
        pytest.param(422, Invalid, id="wrong"),
        pytest.param(429, Busy, id="too many"),
        pytest.param(503, Unreachable, id="not there now"),
        pytest.param(418, Invalid, id="an unknown refusal"),
        pytest.param(599, Retryable, id="an unknown breakdown"),
    ],
)
def test_branches(code: int, kind: type[Exception]) -> None:
    assert isinstance(error_from(code, b""), kind)


def test_a_page_of_a_proxy_is_cut_short() -> None:
    error = error_from(502, b"<html>  Bad\n Gateway " + b"x" * 1000)
    assert "502: <html> Bad Gateway xxx" in str(error)
    assert len(str(error)) < 300


@pytest.mark.parametrize(
    "raw, header, seconds",
    [
        pytest.param(body(details={"retryAfterSeconds": 7}), "3", 7, id="in the body"),
        pytest.param(body(), "3", 3, id="in the header"),
        pytest.param(b"", "Wed, 21 Oct", 0, id="as a date, which we do not read"),
    ],
)
def test_when_to_try_again(raw: bytes, header: str, seconds: int) -> None:
    assert error_from(429, raw, header).retry_after_seconds == seconds


def test_nulls_in_a_status_do_no_harm() -> None:
    error = error_from(409, body(reason="Conflict", details={"causes": None}))
    assert isinstance(error, errors.WriteConflict)


PAGE = Path(__file__).parents[3] / "docs" / "reference" / "kubernetes-errors.md"


@pytest.mark.parametrize("row", TABLE, ids=lambda r: f"{r.code} {r.reason or r.cause or 'any'}")
def test_each_row_is_documented(row: StatusRow) -> None:
    again = "with backoff" if issubclass(row.raises, Retryable) else "on a change"
    line = f"| {row.code} | {row.reason or row.cause} | {row.raises.reason} | {again} |"
    assert line in PAGE.read_text().splitlines()
