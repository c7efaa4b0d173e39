"""How often the daemon was restarted: written by its supervisor, read by ``moxwell status``."""

from pathlib import Path

import msgspec


class Restarts(msgspec.Struct, frozen=True):
    """How often the child was restarted, and why last."""

    count: int = 0
    last_exit: str = ""
    at: str = ""


def read_restarts(record: Path) -> Restarts:
    """What the supervisor of a running daemon has recorded."""
    if not record.exists():
        return Restarts()
    return msgspec.json.decode(record.read_bytes(), type=Restarts)
