"""
What is typical, in a small file of the state folder: a few numbers for each region and stage.

Bounded by what the journal keeps. A file that cannot be read or written is no reason to stop: the
dashboard then knows nothing typical, as after a first start.
"""

from pathlib import Path

import msgspec

from moxwell.embedded.apiserver.auth.ca import write_private

Typical = dict[str, dict[str, list[float]]]
LARGEST_BYTES = 1 << 20


def read(path: Path | None) -> Typical:
    """What an earlier process kept; nothing where there is nothing to read."""
    if path is None:
        return {}
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return {}
        return msgspec.json.decode(path.read_bytes(), type=Typical)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def keep(path: Path | None, known: Typical, now: Typical) -> Typical:
    """Write it if it is news; answers what the file holds."""
    if path is None or now == known:
        return known
    try:
        write_private(path, msgspec.json.encode(now))
    except OSError:
        return known
    return now
