"""Waiting for a program that will answer on a socket: what it said, if it ends before."""

import asyncio
import socket
import subprocess
from pathlib import Path

PATIENCE_SECONDS = 240


async def until_answers(path: Path, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until somebody accepts connections there."""
    for _ in range(PATIENCE_SECONDS * 10):
        assert process.poll() is None, end_of(log)
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
                return
            except OSError:
                await asyncio.sleep(0.1)
    raise AssertionError(end_of(log))


def end_of(log: Path) -> str:
    """The last that was said."""
    return log.read_text()[-3000:]
