"""
A file of JSON lines that is rotated: one object per line, at most ``max_bytes`` per file.

Files are 0600. A line that cannot be written, for example on a full disk, is counted in ``lost``
and dropped: what is recorded must not fail because of its record.
"""

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

MAX_BYTES = 100 << 20
KEEP = 10


class _PrivateFileHandler(RotatingFileHandler):
    """Writes bare messages into files of mode 0600."""

    lost = 0

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self.baseFilename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        return super()._open()

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
        text = json.dumps(line, separators=(",", ":"), default=str)
        self._handler.emit(logging.makeLogRecord({"msg": text}))

    def close(self) -> None:
        with contextlib.suppress(OSError):  # lines that a full disk refused
            self._handler.close()
