"""
A file of JSON lines that is rotated: one object per line, at most ``max_bytes`` per file.

Files are 0600. A line that cannot be written, for example on a full disk, is counted in ``lost``
and dropped: what is recorded must not fail because of its record.
"""

import contextlib
import json
import logging
import os
import stat
from collections.abc import Mapping
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import msgspec

MAX_BYTES = 100 << 20
KEEP = 10


class _PrivateFileHandler(RotatingFileHandler):
    """Writes bare messages into files of mode 0600; counts the size instead of asking for it."""

    lost = 0
    _size: int | None = None  # None: not a regular file, which is not rotated

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self.baseFilename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        opened = super()._open()
        found = os.fstat(opened.fileno())
        self._size = found.st_size if stat.S_ISREG(found.st_mode) else None
        return opened

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802 - of logging
        """Whether the line would exceed the size of a file."""
        if self.stream is None:
            self.stream = self._open()
        if self._size is None or self.maxBytes <= 0:
            return False
        return self._size + _length(record) >= self.maxBytes

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line and count it; without the formats of logging, which cost more."""
        try:
            if self.shouldRollover(record):
                self.doRollover()
            self.stream = self.stream or self._open()
            self.stream.write(record.msg + self.terminator)
            self.flush()
        except (OSError, ValueError):  # a full disk; a closed file
            self.handleError(record)
        if self._size is not None:
            self._size += _length(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name of logging
        self.lost += 1


class JsonLinesFile:
    """Appends objects to a file; the file is opened with the first one."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, keep: int = KEEP) -> None:
        self.path = path
        self._handler = _PrivateFileHandler(
            path, maxBytes=max_bytes, backupCount=keep, delay=True, encoding="utf-8"
        )

    @property
    def lost(self) -> int:
        """How many lines could not be written."""
        return self._handler.lost

    def append(self, line: Mapping[str, Any]) -> None:
        """Append one object."""
        self._handler.emit(logging.makeLogRecord({"msg": _encode(line)}))

    def close(self) -> None:
        with contextlib.suppress(OSError):  # lines that a full disk refused
            self._handler.close()


def _encode(line: Mapping[str, Any]) -> str:
    """The object in ASCII; ``json`` escapes other characters but takes several times as long."""
    with contextlib.suppress(UnicodeEncodeError):  # half of a surrogate pair
        text = msgspec.json.encode(line, enc_hook=str)
        if text.isascii():
            return text.decode()
    return json.dumps(line, separators=(",", ":"), default=str)


def _length(record: logging.LogRecord) -> int:
    """The bytes of a line."""
    return len(record.msg) + 1
