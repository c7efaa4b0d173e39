"""
Maps an error to the condition of the object and to the time of the next try.

The class of the error decides (see :mod:`moxwell.errors`). The message of our own errors is shown,
since it never contains a secret; of any other exception only the type is shown.
"""

import functools
import typing
from dataclasses import dataclass
from typing import Any, Literal

from moxwell.api.conditions import Condition, ConditionStatus, LegacyCondition
from moxwell.errors import Bug, Conflict, MoxwellError, Retryable, Terminal, Unreachable

Retry = Literal["soon", "change"]


@dataclass(frozen=True, slots=True)
class Failure:
    """The consequences of a failed pass."""

    truth: ConditionStatus
    reason: str
    message: str
    retry: Retry
    broken: bool = False  # a broken invariant in our code
    quiet: bool = False  # reported only when it repeats
    retry_seconds: float | None = None  # None: as the worker decides


def explain(error: BaseException) -> Failure:
    """The consequences of an error."""
    if isinstance(error, Terminal):
        seconds = error.retry_seconds
        return Failure("False", error.reason, str(error), "change", retry_seconds=seconds)
    if isinstance(error, Conflict):
        return Failure("False", error.reason, str(error), "soon", quiet=True)
    if isinstance(error, Unreachable):
        return Failure("Unknown", error.reason, str(error), "soon")
    if isinstance(error, Retryable):
        seconds = error.retry_seconds
        return Failure("False", error.reason, str(error), "soon", retry_seconds=seconds)
    text = str(error) if isinstance(error, MoxwellError) else type(error).__name__
    return Failure("Unknown", Bug.reason, f"the pass was given up: {text}", "soon", broken=True)


def condition_type(kind: Any) -> type[Condition] | type[LegacyCondition] | None:
    """The condition type class that a kind declares; None for a kind without conditions."""
    if not isinstance(kind, type):
        return Condition  # a Resource: the common condition
    return _declared(kind)


@functools.cache  # cached: resolving type hints is slower than a pass
def _declared(kind: type) -> type[Condition] | type[LegacyCondition] | None:
    status = typing.get_type_hints(kind).get("status")
    hints = typing.get_type_hints(status) if isinstance(status, type) else {}
    for form in (Condition, LegacyCondition):
        if form in typing.get_args(hints.get("conditions")):
            return form
    return None


def failure_condition(kind: Any, named: str | None) -> str:
    """The condition type that reports failures; empty where the kind's conditions are not ours."""
    if named is not None:
        return named
    declared = getattr(kind, "declared", None)
    return "Ready" if declared is not None and not declared.builtin else ""


def as_condition(
    form: type[Condition] | type[LegacyCondition], type_: str, failure: Failure, generation: int
) -> Condition | LegacyCondition:
    """The failure as a condition of the kind's own condition class."""
    if form is LegacyCondition:
        severity: Literal["", "Error", "Warning"] = ""
        if failure.truth == "False":
            severity = "Error" if failure.retry == "change" else "Warning"
        return LegacyCondition(
            type=type_,
            status=failure.truth,
            severity=severity,
            reason=failure.reason,
            message=failure.message,
        )
    return Condition(
        type=type_,
        status=failure.truth,
        reason=failure.reason,
        message=failure.message,
        observed_generation=generation,
    )
