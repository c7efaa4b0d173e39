"""Validation of ``allOf``, ``anyOf``, ``oneOf`` and ``not``, and shared field error helpers."""

from collections.abc import Callable
from typing import Any

from moxwell.embedded.apiserver.object_cache import encode
from moxwell.embedded.apiserver.status_errors import ErrorCause

MISSING = object()
NOWHERE = "<nil>"  # the field kube-apiserver reports for these schemas
Check = Callable[[Any, str, list[ErrorCause], Any], None]
Test = Callable[[Any, str, list[ErrorCause]], None]


def shown(value: Any) -> str:
    """Format a value as in field errors."""
    if isinstance(value, (dict, list)):
        return encode(value).decode()
    if isinstance(value, str):
        return encode(value).decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def wrong(path: str, value: Any, why: str, reason: str = "FieldValueInvalid") -> ErrorCause:
    return ErrorCause(reason, f"Invalid value: {shown(value)}: {why}", path)


def all_of(checks: list[Check]) -> Test:
    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        for check in checks:
            check(value, path, found, MISSING)

    return test


def _passing(checks: list[Check], value: Any, path: str) -> tuple[int, list[ErrorCause]]:
    """Count the passing schemas and return the errors of the best failing one."""
    passed = 0
    best: list[ErrorCause] = []
    for check in checks:
        problems: list[ErrorCause] = []
        check(value, path, problems, MISSING)
        if not problems:
            passed += 1
        elif not best:
            best = problems
    return passed, best


def any_of(checks: list[Check]) -> Test:
    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        passed, best = _passing(checks, value, path)
        if not passed:
            found.append(wrong(NOWHERE, "", f'"{path}" must validate at least one schema (anyOf)'))
            found += best

    return test


def one_of(checks: list[Check]) -> Test:
    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        passed, best = _passing(checks, value, path)
        if passed == 1:
            return
        many = "Found none valid" if not passed else f"Found {passed} valid alternatives"
        text = f'"{path}" must validate one and only one schema (oneOf). {many}'
        found.append(wrong(NOWHERE, "", text))
        if not passed:
            found += best

    return test


def none_of(check: Check) -> Test:
    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        problems: list[ErrorCause] = []
        check(value, path, problems, MISSING)
        if not problems:
            found.append(wrong(NOWHERE, "", f'"{path}" must not validate the schema (not)'))

    return test
