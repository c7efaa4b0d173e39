"""
The tools with which PVE decompresses a download, and how each of them fails.

``zstd`` reads gzip as well, as Debian builds it; ``bzcat`` ends with 2 where others end with 1.
"""

import bz2
import gzip
import zlib
from collections.abc import Callable

from moxwell.lab.proxmox.errors import die

_TOOLS = {"gz": "zcat", "lzo": "lzop -d -c", "zst": "zstd -q -d -c", "bz2": "bzcat -q"}
_READERS: dict[str, tuple[Callable[[bytes], bytes] | None, int]] = {
    "zcat": (gzip.decompress, 1),
    "zstd": (gzip.decompress, 1),
    "lzop": (None, 1),  # no library of ours reads its format
    "bzcat": (bz2.decompress, 2),
}


def tool_for(compression: str) -> str:
    """The command that decompresses; PVE knows no other formats."""
    if compression not in _TOOLS:
        raise die("no decompression method found")
    return _TOOLS[compression]


def decompress(tool: str, data: bytes, path: str) -> bytes:
    """What the tool makes of a file, or the error of PVE when it fails."""
    reader, code = _READERS[tool.partition(" ")[0]]
    try:
        if reader is not None and data:
            return reader(data)
    except (OSError, EOFError, ValueError, zlib.error):
        pass  # the tool fails, as below
    raise die(f"command '{tool} {path}' failed: exit code {code}")
