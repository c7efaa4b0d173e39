"""Values of YAML that users write are those of Kubernetes; a key that is there twice is refused."""

from typing import Any

import pytest
import yaml

from moxwell import yaml_documents


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-02", "2024-01-02"),
        ("2024-13-45", "2024-13-45"),
        ("12:30:00", "12:30:00"),
        ("12:30.5", "12:30.5"),
        ("010", 8),
        ("0x1f", 31),
        ("1.5", 1.5),
        ("yes", True),
    ],
)
def test_a_date_and_a_time_are_text(text: str, value: Any) -> None:
    assert yaml_documents.load(f"a: {text}") == {"a": value}


@pytest.mark.parametrize("text", ["a: 1\na: 2", "x:\n  {c: 1, c: 2}", "a: 1\n'a': 2"])
def test_a_key_that_is_there_twice_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as found:
        yaml_documents.load(text)
    assert yaml_documents.line_of(found.value) == " in line 2: a key is there twice"
    assert yaml_documents.problem_of(found.value) == " in line 2: a key is there twice"


def test_a_key_may_replace_a_merged_one() -> None:
    text = "x: &x {a: 1, b: 2}\ny: {<<: *x, a: 3}"
    assert yaml_documents.load(text)["y"] == {"a": 3, "b": 2}


def test_a_problem_is_told_also_without_a_line() -> None:
    with pytest.raises(yaml.YAMLError) as found:
        yaml_documents.load("a: \0")
    assert yaml_documents.problem_of(found.value) == ": control characters are not allowed"
