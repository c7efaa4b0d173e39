"""RE2 patterns: dialect, linear time, Go's error messages."""

from collections.abc import Iterator
from typing import Any

import pytest

from moxwell.api import registry
from moxwell.embedded.apiserver import regex


@pytest.mark.parametrize(
    "pattern, text, found",
    [
        pytest.param("^a+$", "a\n", False, id="a line end is no end"),
        pytest.param("b", "abc", True, id="anywhere"),
        pytest.param(r"^\d$", "٣", False, id="digits are ASCII"),
        pytest.param(r"^\pL+$", "äß", True, id="letters of all languages"),
        pytest.param("^[[:alpha:]]$", "x", True, id="classes by name"),
        pytest.param(r"^a\z", "a", True, id="the very end"),
        pytest.param("^(a+)+$", "a" * 5000 + "b", False, id="a trap for backtracking"),
    ],
)
def test_matches(pattern: str, text: str, found: bool) -> None:
    assert regex.compile_pattern(pattern).matches(text) is found


@pytest.mark.parametrize(
    "pattern, message",
    [
        ("(?=x)", "invalid or unsupported Perl syntax: `(?=`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(a", "missing closing ): `(a`"),
    ],
    ids=["looking ahead", "too many times", "left open"],
)
def test_unsupported_patterns_are_rejected(pattern: str, message: str) -> None:
    with pytest.raises(regex.InvalidPattern, match="error parsing regexp") as error_response:
        regex.compile_pattern(pattern)
    assert str(error_response.value) == f"error parsing regexp: {message}"


def found_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("pattern"), str):
            yield value["pattern"]
        for inner in value.values():
            yield from found_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from found_in(inner)


def test_every_pattern_of_our_crds_is_valid_re2() -> None:
    texts = {text for crd in registry.make_crds() for text in found_in(crd)}
    assert texts
    for text in texts:
        regex.compile_pattern(text)
