"""Small words for the checks of built-in kinds: one function per way a field can be wrong."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.apiserver.object_cache import encode
from moxwell.embedded.apiserver.status_errors import StatusCause

Object = dict[str, Any]


def shown(value: Any) -> str:
    return encode(value).decode()


def required(field: str, why: str = "") -> StatusCause:
    return StatusCause(
        "FieldValueRequired", f"Required value: {why}" if why else "Required value", field
    )


def invalid(field: str, value: Any, why: str) -> StatusCause:
    return StatusCause("FieldValueInvalid", f"Invalid value: {shown(value)}: {why}", field)


def forbidden(field: str, why: str) -> StatusCause:
    return StatusCause("FieldValueForbidden", f"Forbidden: {why}", field)


def unsupported(field: str, value: Any, allowed: Sequence[str]) -> StatusCause:
    listed = ", ".join(f'"{a}"' for a in sorted(allowed))
    text = f"Unsupported value: {shown(value)}: supported values: {listed}"
    return StatusCause("FieldValueNotSupported", text, field)


def immutable(field: str, new: Any, old: Any) -> list[StatusCause]:
    """A field that stays what it was."""
    return [] if new == old else [invalid(field, new, "field is immutable")]
