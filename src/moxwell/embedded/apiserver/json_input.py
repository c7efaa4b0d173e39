"""
Decodes the JSON of requests as Go's decoder does, within the limits of requests.

Invalid UTF-8 and unpaired surrogates become U+FFFD, integers beyond 64 bits become floats, and
numbers beyond a float are rejected. Duplicate keys are reported; the last value wins.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from moxwell.embedded.apiserver import limits
from moxwell.errors import Invalid

_BARE = re.compile(rb"^\s*\{\s*([^\s\"}])")
_ESCAPES = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    r"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
SHOWN_DIGITS = 40
MAX_DUPLICATES = 100  # reported, as in Go


class MalformedJson(Invalid):
    """The text is not JSON; the message is Go's where it is known."""


def decode(body: bytes, duplicates: list[str] | None = None) -> Any:
    """Decode one value; ``duplicates`` collects the paths of duplicate keys."""
    limits.check_json(body)
    text = _text(body)
    if limits.may_have_long_paths(body):
        limits.check_value(_decode(text, body, None))
    found: list[_Pairs] = []
    value = _decode(text, body, None if duplicates is None else found)
    if not found or duplicates is None:
        return value
    paths: dict[str, None] = {}
    plain = _plain(value, "", paths)
    duplicates += paths
    return plain


def _decode(text: str, body: bytes, found: "list[_Pairs] | None") -> Any:
    """Decode a value; objects with duplicate keys stay pairs if ``found`` collects them."""
    try:
        return _DECODER.decode(text) if found is None else _collecting(found).decode(text)
    except json.JSONDecodeError:
        raise MalformedJson(_go_error_message(body)) from None


def integer(text: str) -> int | float:
    """Convert the digits of an integer; beyond 64 bits a float, as Go does."""
    if len(text) < 19:
        return int(text)
    if len(text) <= 20 and -(2**63) <= (value := int(text)) < 2**63:
        return value
    return number(text)


def number(text: str) -> float:
    """Convert the text of a number; raises beyond the range of a float."""
    value = float(text)
    if math.isinf(value):
        short = text if len(text) <= SHOWN_DIGITS else f"{text[:SHOWN_DIGITS]}..."
        raise MalformedJson(f"json: cannot unmarshal number {short} into Go value of type float64")
    return value


def _no_constant(name: str) -> float:
    raise MalformedJson(f"invalid character '{name.lstrip('-')[0]}' looking for beginning of value")


def _text(body: bytes) -> str:
    text = body.decode(errors="replace")
    if "\\ud" in text or "\\uD" in text:
        return _ESCAPES.sub(lambda found: "\\ufffd" if found[1] else found[0], text)
    return text


def _go_error_message(body: bytes) -> str:
    """Return the message of Go's JSON parser for common mistakes."""
    if (found := _BARE.match(body)) is not None:
        char = found[1].decode(errors="replace")
        return f"invalid character '{char}' looking for beginning of object key string"
    first = body.lstrip()[:1]
    if first and first not in b'{["-0123456789tfn':
        return (
            f"invalid character '{first.decode(errors='replace')}' looking for beginning of value"
        )
    return "unexpected end of JSON input"


def _collecting(found: "list[_Pairs]") -> json.JSONDecoder:
    def pairs(members: list[tuple[str, Any]]) -> Any:
        made = dict(members)
        if len(made) == len(members):
            return made
        found.append(_Pairs(members))
        return found[-1]

    return _decoder(pairs)


def _decoder(pairs: Callable[[list[tuple[str, Any]]], Any] | None) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=pairs,
        parse_int=integer,
        parse_float=number,
        parse_constant=_no_constant,
    )


_DECODER = _decoder(None)


class _Pairs(list[tuple[str, Any]]):
    """The members of an object with duplicate keys."""


def _plain(value: Any, path: str, duplicates: dict[str, None]) -> Any:
    """Replace pair lists with objects (the last value wins) and collect duplicate paths."""
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, _ in value:
            if key in seen and len(duplicates) < MAX_DUPLICATES:
                duplicates[f"{path}.{key}" if path else key] = None
            seen.add(key)
        value = dict(value)
    if isinstance(value, dict):
        for key, item in value.items():
            if item.__class__ in (dict, list, _Pairs):
                value[key] = _plain(item, f"{path}.{key}" if path else key, duplicates)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if item.__class__ in (dict, list, _Pairs):
                value[index] = _plain(item, f"{path}[{index}]", duplicates)
    return value
