"""
Rotates the log file that several processes append to as their standard error.

One process rotates: it copies the file to ``NAME.1`` and truncates it, so that the descriptors of
all other processes stay valid. Older copies become ``NAME.2`` and so on; the oldest is removed.
"""

import os
import shutil
from pathlib import Path
from typing import TextIO

MAX_BYTES = 10 * 1024 * 1024
COPIES = 4
CHECK_BYTES = 64 * 1024  # the size is looked up after that many bytes of our own


class RotatingStream:
    """Writes to a stream and keeps the file behind it below a size."""

    def __init__(
        self, stream: TextIO, path: Path, *, max_bytes: int = MAX_BYTES, copies: int = COPIES
    ) -> None:
        self._stream, self._path = stream, path
        self._max_bytes, self._copies = max_bytes, copies
        self._since_check = CHECK_BYTES

    def write(self, text: str) -> int:
        self._since_check += len(text)
        if self._since_check >= min(CHECK_BYTES, self._max_bytes // 4):
            self._since_check = 0
            self._rotate_if_large()
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return False

    def _rotate_if_large(self) -> None:
        """Rotate; without space for a copy the file is truncated all the same."""
        self._stream.flush()
        if not self._path.is_file() or self._path.stat().st_size < self._max_bytes:
            return
        try:
            self._copy()
        finally:
            os.truncate(self._path, 0)

    def _copy(self) -> None:
        for number in range(self._copies - 1, 0, -1):
            older = self._numbered(number)
            if older.is_file():
                older.replace(self._numbered(number + 1))
        newest = self._numbered(1)
        newest.touch(mode=0o600)
        shutil.copyfile(self._path, newest)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
