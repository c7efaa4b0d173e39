"""
JSONPath of printer columns: ``.spec.a``, ``['a.b']``, ``[0]``, ``[*]``, ``[?(@.type=="Ready")]``.

A path is compiled once to a function from an object to the list of values.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from moxwell.errors import Invalid

Step = Callable[[Any], list[Any]]
Path = Callable[[Any], list[Any]]
_STEP = re.compile(
    r"\.\.?(?P<name>[A-Za-z0-9_$/-]+(?:\\\.[A-Za-z0-9_$/-]+)*|\*)"
    r"|\[(?P<quote>['\"])(?P<quoted>.*?)(?P=quote)\]"
    r"|\[(?P<index>-?\d+)\]|\[(?P<all>\*)\]|\[(?P<slice>-?\d*:-?\d*)\]"
    r"|\[\?\((?P<filter>.*?)\)\]"
)
_FILTER = re.compile(
    r"^\s*@(?P<path>[^=!<>]*?)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<value>.+?)\s*)?$"
)


class InvalidJsonPath(Invalid):
    """The JSONPath is invalid or unsupported."""


def compile(path: str) -> Path:
    """Compile a path."""
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = text.removeprefix("$")
    if not text.startswith((".", "[")):
        text = "." + text
    steps, at = [], 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise InvalidJsonPath(f"unrecognized character in path {path!r} at {text[at:]!r}")
        steps.append(_step(found))
        at = found.end()
    return _follow(steps)


def _follow(steps: list[Step]) -> Path:
    def follow(obj: Any) -> list[Any]:
        values = [obj]
        for step in steps:
            values = [found for value in values for found in step(value)]
        return values

    return follow


def _step(found: "re.Match[str]") -> Step:
    if found["index"] is not None:
        return _index(int(found["index"]))
    if found["all"] or found["name"] == "*":
        return _every
    if found["slice"] is not None:
        first, _, last = found["slice"].partition(":")
        cut = slice(int(first) if first else None, int(last) if last else None)
        return lambda value: value[cut] if isinstance(value, list) else []
    if found["filter"] is not None:
        return _filter(found["filter"])
    name = (found["quoted"] if found["quoted"] is not None else found["name"]).replace("\\.", ".")
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _every(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _index(at: int) -> Step:
    def step(value: Any) -> list[Any]:
        return [value[at]] if isinstance(value, list) and -len(value) <= at < len(value) else []

    return step


def _filter(text: str) -> Step:
    found = _FILTER.match(text)
    if found is None:
        raise InvalidJsonPath(f"unrecognized filter {text!r}")
    read = compile(found["path"]) if found["path"] else (lambda value: [value])
    holds = _comparison(found["op"], found["value"])

    def step(value: Any) -> list[Any]:
        items = value if isinstance(value, list) else []
        return [item for item in items if holds(read(item))]

    return step


def _comparison(op: str | None, literal: str | None) -> Callable[[list[Any]], bool]:
    if op is None or literal is None:
        return bool
    if literal[0] in "'\"":
        wanted: Any = literal[1:-1]
    else:
        try:
            wanted = json.loads(literal)
        except json.JSONDecodeError:
            raise InvalidJsonPath(f"unrecognized literal {literal!r}") from None
    tests: dict[str, Callable[[Any], bool]] = {
        "==": lambda v: v == wanted,
        "!=": lambda v: v != wanted,
        "<": lambda v: v < wanted,
        ">": lambda v: v > wanted,
        "<=": lambda v: v <= wanted,
        ">=": lambda v: v >= wanted,
    }
    return lambda found: bool(found) and isinstance(found[0], type(wanted)) and tests[op](found[0])


def text(value: Any) -> str:
    """Format a value as Go's printer does."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (dict, list)):
        return json.dumps(value, separators=(",", ":"))
    return str(value)
