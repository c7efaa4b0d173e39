"""
The greatest sizes of values, derived from schemas, for the cost estimation of rules.

A value without a limit in its schema is as large as a request allows, as in kube-apiserver.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.embedded.apiserver.cel import types

MAX_REQUEST = 3 * 1024 * 1024
_TEXTS = {"date": 12, "date-time": 32, "duration": 32}


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """The greatest number of bytes or elements of a value; ``element`` of a list or map."""

    maximum: int = 1
    element: "SizeEstimate | None" = None
    fields: "Mapping[str, SizeEstimate] | None" = None
    is_map: bool = False

    def field(self, name: str) -> "SizeEstimate":
        if self.fields is not None and name in self.fields:
            return self.fields[name]
        return self.element or ANYTHING


ANYTHING = SizeEstimate(MAX_REQUEST - 2)
SCALAR = SizeEstimate()


def smallest(schema: Mapping[str, Any]) -> int:
    """Return the fewest bytes that a value of the schema takes in JSON."""
    match schema.get("type"):
        case "string" | "array":
            return 2
        case "boolean":
            return 4
        case "object":
            properties = schema.get("properties") or {}
            required = (name for name in schema.get("required") or () if name in properties)
            return 2 + sum(len(name) + 4 + smallest(properties[name]) for name in required)
    return 1


def from_schema(schema: Mapping[str, Any]) -> SizeEstimate:
    """Estimate the sizes of a value of the schema."""
    if schema.get("x-kubernetes-int-or-string"):
        return ANYTHING
    match schema.get("type"):
        case "integer" | "number" | "boolean":
            return SCALAR
        case "string":
            return SizeEstimate(_text(schema))
        case "array":
            items = schema.get("items") or {}
            most = _limit(schema, "maxItems", (MAX_REQUEST - 2) // (smallest(items) + 1))
            return SizeEstimate(most, from_schema(items))
        case "object":
            return _object(schema)
    return ANYTHING


def _object(schema: Mapping[str, Any]) -> SizeEstimate:
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        most = _limit(schema, "maxProperties", (MAX_REQUEST - 2) // (smallest(values) + 6))
        return SizeEstimate(most, from_schema(values), is_map=True)
    fields = {
        spelled: from_schema(inner)
        for name, inner in (schema.get("properties") or {}).items()
        if (spelled := types.escaped(name)) is not None
    }
    return SizeEstimate(max(1, len(fields)), fields=fields)


def _text(schema: Mapping[str, Any]) -> int:
    if (limit := schema.get("maxLength")) is not None:
        return int(limit) * (1 if schema.get("format") == "byte" else 4)
    if values := schema.get("enum"):
        return max(len(str(value)) for value in values)
    return _TEXTS.get(schema.get("format", ""), MAX_REQUEST - 2)


def _limit(schema: Mapping[str, Any], word: str, otherwise: int) -> int:
    limit = schema.get(word)
    return otherwise if limit is None else int(limit)
