"""Parsing configuration files: errors name the place and never show a secret."""

from pathlib import Path

import pytest

from moxwell import config_file
from moxwell.config_file import InvalidConfig

SECRET = "clusters:\n  - token_secret: very-secret\n   bad: [\n"


def test_an_error_names_the_line_and_quotes_nothing() -> None:
    with pytest.raises(InvalidConfig, match="not YAML in line 3") as raised:
        config_file.parse_yaml(SECRET)
    assert "very-secret" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("text", ["[1]", "word", "3"])
def test_a_document_that_is_no_mapping(text: str) -> None:
    with pytest.raises(InvalidConfig, match="must be a mapping"):
        config_file.parse_mapping(text)


def test_an_empty_document_is_an_empty_mapping() -> None:
    assert config_file.parse_mapping("# nothing\n") == {}


@pytest.mark.parametrize(
    "value, wanted",
    [
        pytest.param(True, True, id="true"),
        pytest.param("Yes", True, id="a word"),
        pytest.param(1, True, id="one"),
        pytest.param(0, False, id="zero"),
        pytest.param(None, False, id="nothing"),
        pytest.param("off", False, id="off"),
    ],
)
def test_flags(value: object, wanted: bool) -> None:
    assert config_file.parse_flag("x", value) is wanted


def test_a_flag_that_is_none() -> None:
    with pytest.raises(InvalidConfig, match="insecure must be true or false"):
        config_file.parse_flag("insecure", "perhaps")


def test_unknown_keys_are_listed_with_the_known_ones() -> None:
    with pytest.raises(InvalidConfig, match="here: unknown b, c; known are a"):
        config_file.refuse_unknown("here", {"a": 1, "c": 1, "b": 1}, {"a"})


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*: No such file"):
        config_file.read_text(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match="is not text in UTF-8"):
        config_file.read_text(tmp_path / "bytes")
