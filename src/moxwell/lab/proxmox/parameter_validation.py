"""
Validates request parameters against their declarations, with the messages of PVE::JSONSchema.

Returns converted values or raises a ``PveException`` 400 with an error per parameter. As in PVE,
all errors are collected, and a value reports only the first check it fails.
"""

import re
from functools import partial
from typing import Any

from moxwell.lab.proxmox.errors import FormatError, param_error
from moxwell.lab.proxmox.route import Param, Params, PathChecker, find_param

TRUE, FALSE = ("1", "on", "yes", "true"), ("0", "off", "no", "false")
MISSING = "property is missing and it is not optional"
UNKNOWN = "property is not defined in schema and the schema does not allow additional properties"
_INTEGER = re.compile(r"^[+-]?\d+$")
_NUMBER = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$")


def verify(
    params: Params, given: dict[str, Any], *, major: int, extra: bool = False
) -> dict[str, Any]:
    """Convert all parameters; raises a 400 with every error."""
    values, errors = collect(params, given, major=major, extra=extra)
    if errors:
        raise param_error(errors)
    return values


def collect(
    params: Params, given: dict[str, Any], *, major: int, extra: bool = False
) -> tuple[dict[str, Any], dict[str, str]]:
    """Convert all parameters; returns values and errors."""
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, raw in given.items():
        param = known(find_param(params, name), major)
        if param is None:
            if extra:
                values[name] = raw
            else:
                errors[name] = UNKNOWN
            continue
        if param.type == "array":
            values[name] = _array(param, raw, name, major, errors)
            continue
        try:
            values[name] = coerce(param, raw, name, major)
        except FormatError as problem:
            errors[name] = str(problem)
    _missing(params, given, errors, major)
    return values, errors


def known(param: Param | None, major: int) -> Param | None:
    return param if param is not None and param.version <= major <= param.until else None


def _missing(params: Params, given: dict[str, Any], errors: dict[str, str], major: int) -> None:
    for name, param in params.items():
        if known(param, major) is None:
            continue
        if name not in given:
            if not param.optional and "[n]" not in name:
                errors[name] = MISSING
        elif param.requires and param.requires not in given:
            errors.setdefault(param.requires, requirement(name, major))


def requirement(by: str, major: int) -> str:
    """The message about a missing parameter that another one requires."""
    if major >= 9:
        return f"missing property required by '{by}'"
    return f"missing property - '{by}' requires this property"


def coerce(param: Param, raw: Any, path: str = "", major: int = 9) -> Any:
    """Convert one value to its type; ``path`` is its name in messages. Raises FormatError."""
    if isinstance(raw, list):
        raise FormatError(f"type check ('{param.type}') failed - got 'ARRAY'")
    value = _typed(param, raw)
    _check(param, value, path, major)
    return value


def _array(param: Param, raw: Any, name: str, major: int, errors: dict[str, str]) -> list[Any]:
    """The items of an array; a single value is an array of one item."""
    item, values = param.items or Param(), []
    for number, one in enumerate(raw if isinstance(raw, list) else [raw]):
        path = f"{name}[{number}]"
        try:
            values.append(coerce(item, one, path, major))
        except FormatError as problem:
            errors[path] = str(problem)
    return values


def _typed(param: Param, raw: Any) -> Any:
    if isinstance(raw, bool):
        raw = "1" if raw else "0"
    text = "" if raw is None else str(raw)
    if param.type == "boolean":
        if text.lower() in TRUE:
            return 1
        if text.lower() in FALSE:
            return 0
        raise FormatError(f"type check ('boolean') failed - got '{text}'")
    if param.type == "integer":
        if not _INTEGER.match(text):
            raise FormatError(f"type check ('integer') failed - got '{text}'")
        return int(text)
    if param.type == "number":
        if not _NUMBER.match(text):
            raise FormatError(f"type check ('number') failed - got '{text}'")
        return float(text)
    return text


def _check(param: Param, value: Any, path: str, major: int) -> None:
    """Run the checks of a value in PVE's order."""
    text = str(value)
    if param.format is not None:
        _run_format(param.format, text)
    if param.property_string is not None:
        _run_format(partial(_located, param.property_string, path, major), text)
    if param.pattern is not None and not re.search(f"^{param.pattern}$", text):
        raise FormatError("value does not match the regex pattern")
    if param.max_length is not None and len(text) > param.max_length:
        raise FormatError(f"value may only be {param.max_length} characters long")
    if param.min_length is not None and len(text) < param.min_length:
        raise FormatError(f"value must be at least {param.min_length} characters long")
    if isinstance(value, int | float) and param.type != "boolean":
        _check_range(param, value)
    if param.enum and text not in param.enum:
        listed = ", ".join(param.enum)
        raise FormatError(f"value '{value}' does not have a value in the enumeration '{listed}'")


def _check_range(param: Param, value: float) -> None:
    if param.maximum is not None and value > param.maximum:
        raise FormatError(f"value must have a maximum value of {_plain(param.maximum)}")
    if param.minimum is not None and value < param.minimum:
        raise FormatError(f"value must have a minimum value of {_plain(param.minimum)}")


def _located(check: PathChecker, path: str, major: int, text: str) -> object:
    return check(text, path, major)


def _run_format(checker: Any, value: str) -> None:
    try:
        checker(value)
    except FormatError as problem:
        raise FormatError(f"invalid format - {problem}") from problem


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)
