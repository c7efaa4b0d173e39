"""
Static types of CEL expressions, derived from schemas, to reject rules with undeclared fields.

Types also convert JSON values: a ``date-time`` string becomes a timestamp.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from moxwell.embedded.apiserver.cel.values import EvaluationError

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_RESERVED = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)


@dataclass(frozen=True, slots=True)
class Type:
    """A CEL type; ``fields`` of an object, ``element`` of a list or map."""

    name: str
    fields: "Mapping[str, Type] | None" = None
    element: "Type | None" = None
    convert: Callable[[Any], Any] | None = field(default=None, compare=False)


DYN, BOOL, INT, STRING = Type("dyn"), Type("bool"), Type("int"), Type("string")
DOUBLE = Type("double", convert=lambda v: float(v) if isinstance(v, int) else v)
BYTES = Type("bytes", convert=lambda v: base64.b64decode(v) if isinstance(v, str) else v)
LIST, MAP = Type("list", element=DYN), Type("map", element=DYN)


def parse_timestamp(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise EvaluationError(f'invalid timestamp "{text}"') from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def parse_duration(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    body = text.lstrip("+-")
    parts = _DURATION.findall(body)
    if "".join(n + u for n, u in parts) != body and body != "0":
        raise EvaluationError(f'time: invalid duration "{text}"')
    seconds = sum(float(n) * _UNITS[u] for n, u in parts)
    return timedelta(seconds=-seconds if text.startswith("-") else seconds)


TIMESTAMP = Type("timestamp", convert=parse_timestamp)
DURATION = Type("duration", convert=parse_duration)
_FORMATS = {"date-time": TIMESTAMP, "date": TIMESTAMP, "duration": DURATION, "byte": BYTES}


def escaped(name: str) -> str | None:
    """Escape a property name for CEL; None if CEL cannot express it."""
    if name in _RESERVED:
        return f"__{name}__"
    text = name.replace("__", "__underscores__").replace(".", "__dot__")
    text = text.replace("-", "__dash__").replace("/", "__slash__")
    return text if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) else None


def from_schema(schema: Mapping[str, Any], *, root: bool = False) -> Type:
    """Derive the type of a schema."""
    if schema.get("x-kubernetes-int-or-string"):
        return DYN
    match schema.get("type"):
        case "integer":
            return INT
        case "number":
            return DOUBLE
        case "boolean":
            return BOOL
        case "string":
            return _FORMATS.get(schema.get("format", ""), STRING)
        case "array":
            return Type("list", element=from_schema(schema.get("items") or {}))
        case "object":
            return _object(schema, root=root)
    return DYN


def _object(schema: Mapping[str, Any], *, root: bool) -> Type:
    rest, properties = schema.get("additionalProperties"), schema.get("properties")
    if isinstance(rest, Mapping):
        return Type("map", element=from_schema(rest))
    if schema.get("x-kubernetes-preserve-unknown-fields") and not properties:
        return DYN
    fields = {
        spelled: from_schema(found)
        for name, found in (properties or {}).items()
        if (spelled := escaped(name)) is not None
    }
    if root or schema.get("x-kubernetes-embedded-resource"):
        meta = Type("object", fields={"name": STRING, "generateName": STRING})
        fields |= {"apiVersion": STRING, "kind": STRING, "metadata": meta}
    return Type("object", fields=fields)
