"""
Keeps the topology as a block in the notes of the Proxmox node.

``GET /nodes/{node}/config`` shows the notes to a token with Sys.Audit, so that no token with more
privileges is needed. Text outside the block stays.
"""

import json
import re
import subprocess
from typing import Any

BEGIN, END = "<!-- moxwell-agent", "-->"
_BLOCK = re.compile(r"\n*<!-- moxwell-agent\n(.*?)\n-->\n*", re.DOTALL)


def with_topology(notes: str, topology: dict[str, Any]) -> str:
    """Return the notes with the block replaced or appended."""
    block = f"{BEGIN}\n{json.dumps(topology, separators=(',', ':'))}\n{END}"
    rest = without_topology(notes)
    return f"{rest}\n\n{block}\n" if rest else f"{block}\n"


def without_topology(notes: str) -> str:
    """Return the notes without the block."""
    return _BLOCK.sub("\n", notes).strip("\n")


def find_topology(notes: str) -> dict[str, Any] | None:
    """Return the topology in the notes, or None if there is none that can be read."""
    found = _BLOCK.search(notes)
    if not found:
        return None
    try:
        value = json.loads(found[1])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class NodeNotes:
    """Reads and sets the notes of this node by ``pvesh``, which Proxmox ships."""

    def __init__(self, node: str) -> None:
        self._path = f"/nodes/{node}/config"

    def read(self) -> str:
        done = subprocess.run(
            ["pvesh", "get", self._path, "--property", "description", "--output-format", "json"],
            capture_output=True,
            check=True,
            text=True,
        )
        return str(json.loads(done.stdout or "{}").get("description", ""))

    def write(self, notes: str) -> None:
        subprocess.run(
            ["pvesh", "set", self._path, "--description", notes], capture_output=True, check=True
        )
