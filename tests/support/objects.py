"""
Hypothesis strategies for JSON objects of a kind, generated from the schema of its CRD.

Optional fields are present at random; bounds, enums and patterns are respected, CEL rules are not.
"""

import re
import string
from datetime import datetime
from typing import Any

from hypothesis import strategies as st

from moxwell.api import schema
from moxwell.api.kinds import Object

Tree = dict[str, Any]
_NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=5)
_TIMES = st.datetimes(min_value=datetime(2020, 1, 1), max_value=datetime(2030, 1, 1)).map(
    lambda t: t.replace(microsecond=0).isoformat() + "Z"
)


def objects(kind: type[Object]) -> st.SearchStrategy[Tree]:
    """Generate objects of a kind."""
    root = schema.of_kind(kind)
    parts = {k: v for k, v in root["properties"].items() if k in ("spec", "status")}
    others = {k: v for k, v in root["properties"].items() if k not in ("spec", "status")}
    for fixed in ("apiVersion", "kind", "metadata"):
        others.pop(fixed)
    body = {"type": "object", "properties": parts | others, "required": root.get("required", [])}
    return values(body).map(lambda tree: _head(kind) | tree)


def values(node: Tree) -> st.SearchStrategy[Any]:
    """Generate values that a schema accepts."""
    if "enum" in node:
        return st.sampled_from(node["enum"])
    if node.get("x-kubernetes-int-or-string"):
        percentages = st.integers(0, 99).map(lambda n: f"{n}%")
        return st.integers(0, 99) | (_string(node) if "pattern" in node else percentages)
    match node.get("type"):
        case "object":
            return _object(node)
        case "array":
            return _array(node)
        case "string":
            return _string(node)
        case "integer":
            return _integer(node)
        case "boolean":
            return st.booleans()
        case "number":
            return st.floats(0, 100, allow_nan=False)
    return st.dictionaries(_NAMES, _NAMES, max_size=2)


def _object(node: Tree) -> st.SearchStrategy[Tree]:
    if "properties" in node:
        required = set(node.get("required", []))
        fields = {name: values(inner) for name, inner in node["properties"].items()}
        return st.fixed_dictionaries(
            {name: value for name, value in fields.items() if name in required},
            optional={name: value for name, value in fields.items() if name not in required},
        )
    inner = values(node.get("additionalProperties", {"type": "string"}))
    least = node.get("minProperties", 0)
    return st.dictionaries(_NAMES, inner, min_size=least, max_size=least + 2)


def _array(node: Tree) -> st.SearchStrategy[list[Any]]:
    least, most = node.get("minItems", 0), node.get("maxItems", 99)
    kind = node.get("x-kubernetes-list-type")
    unique: Any = None
    if kind == "map":
        keys = node["x-kubernetes-list-map-keys"]
        unique = lambda item: tuple(item.get(key) for key in keys)  # noqa: E731
    elif kind == "set":
        unique = lambda item: item  # noqa: E731
    return st.lists(
        values(node["items"]), min_size=least, max_size=min(most, least + 2), unique_by=unique
    )


def _string(node: Tree) -> st.SearchStrategy[str]:
    if node.get("format") == "date-time":
        return _TIMES
    if "pattern" in node:
        low, high = node.get("minLength", 0), node.get("maxLength", 999)
        pattern = re.compile(str(node["pattern"]), re.ASCII)  # as in RE2, where digits are 0 to 9
        matching: st.SearchStrategy[str] = st.from_regex(pattern, fullmatch=True)
        return matching.filter(lambda text: low <= len(text) <= high and "\n" not in text)
    least = node.get("minLength", 0)
    most = min(node.get("maxLength", 9), max(least, 9))
    return st.text(string.ascii_lowercase, min_size=least, max_size=most)


def _integer(node: Tree) -> st.SearchStrategy[int]:
    low = int(node.get("minimum", 0)) + bool(node.get("exclusiveMinimum"))
    high = int(node.get("maximum", low + 10000)) - bool(node.get("exclusiveMaximum"))
    step = node.get("multipleOf", 1)
    return st.integers(-(-low // step), high // step).map(lambda n: n * step)


def _head(kind: type[Object]) -> Tree:
    metadata = {"name": "thing", "namespace": "space"}
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": metadata if kind.resource.namespaced else {"name": "thing"},
    }
