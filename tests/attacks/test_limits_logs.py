"""Logs do not grow by input: values are shortened, libraries are bounded, the file rotates."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from moxwell.runtime import log
from moxwell.runtime.log_rotation import RotatingStream


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Configure the log to a text and restore it afterwards."""
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    out = io.StringIO()
    log.configure(form="json", stream=out)
    yield out
    structlog.configure(**before)
    logging.getLogger().handlers[:] = handlers


@pytest.mark.parametrize(
    "value",
    ["x" * 1_000_000, ["y" * 10] * 100_000, {str(n): n for n in range(100_000)}, b"z" * 1_000_000],
)
def test_a_value_is_shortened(value: object, lines: io.StringIO) -> None:
    structlog.get_logger("a").warning("seen", value=value, number=5)
    text = lines.getvalue()
    assert len(text) < 3 * log.MAX_VALUE
    assert json.loads(text)["number"] == 5
    assert " characters)" in json.loads(text)["value"]


def test_a_traceback_keeps_its_end(lines: io.StringIO) -> None:
    try:
        raise ValueError("x" * 1_000_000 + "the end")
    except ValueError:
        structlog.get_logger("a").exception("failed")
    found = json.loads(lines.getvalue())["exception"]
    assert len(found) == log.MAX_TRACEBACK
    assert found.endswith("the end")


def test_messages_of_libraries_are_scrubbed_and_shortened(lines: io.StringIO) -> None:
    logging.getLogger("aiohttp.server").error("Bearer abcdefghijklm %s", "x" * 1_000_000)
    found = json.loads(lines.getvalue())
    assert found["event"].startswith("*** xxx")
    assert len(found["event"]) < 2 * log.MAX_VALUE


def test_the_file_of_several_writers_rotates(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    with path.open("a") as ours, path.open("a") as other:
        stream = RotatingStream(ours, path, max_bytes=10_000, copies=2)
        for number in range(400):
            stream.write(f"{number:0100}\n")
            stream.flush()
            other.write("other\n")
            other.flush()
            assert path.stat().st_size < 20_000
    names = sorted(item.name for item in tmp_path.iterdir())
    assert names == ["daemon.log", "daemon.log.1", "daemon.log.2"]
    assert (tmp_path / "daemon.log.1").stat().st_mode & 0o777 == 0o600
    assert path.read_text().splitlines()[-2:] == [f"{399:0100}", "other"]


def test_a_log_that_cannot_be_copied_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "daemon.log"
    (tmp_path / "daemon.log.1").mkdir()
    with path.open("a") as ours:
        stream = log.LossyStream(RotatingStream(ours, path, max_bytes=1_000))  # type: ignore[arg-type]
        for _ in range(100):
            stream.write("x" * 100 + "\n")
            stream.flush()
    assert stream.lost > 0
    assert path.stat().st_size < 2_000


def test_a_terminal_is_not_rotated(tmp_path: Path) -> None:
    stream = RotatingStream(sys.stderr, tmp_path / "missing")
    stream.write("")
    assert list(tmp_path.iterdir()) == []
