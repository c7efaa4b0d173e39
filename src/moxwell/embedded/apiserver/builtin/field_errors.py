"""Constructors of field errors for the validation of built-in kinds."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.apiserver.object_cache import encode
from moxwell.embedded.apiserver.status_errors import ErrorCause

Object = dict[str, Any]


def shown(value: Any) -> str:
    return encode(value).decode()


def required(field: str, why: str = "") -> ErrorCause:
    return ErrorCause(
        "FieldValueRequired", f"Required value: {why}" if why else "Required value", field
    )


def invalid(field: str, value: Any, why: str) -> ErrorCause:
    return ErrorCause("FieldValueInvalid", f"Invalid value: {shown(value)}: {why}", field)


def forbidden(field: str, why: str) -> ErrorCause:
    return ErrorCause("FieldValueForbidden", f"Forbidden: {why}", field)


def unsupported(field: str, value: Any, allowed: Sequence[str]) -> ErrorCause:
    listed = ", ".join(f'"{a}"' for a in sorted(allowed))
    text = f"Unsupported value: {shown(value)}: supported values: {listed}"
    return ErrorCause("FieldValueNotSupported", text, field)


def immutable(field: str, new: Any, old: Any) -> list[ErrorCause]:
    """Report a change of an immutable field."""
    return [] if new == old else [invalid(field, new, "field is immutable")]
