"""
Stores how long the stages of machines took, by region and stage, in a small file.

If the file cannot be read or written, the dashboard has no typical durations, as after the first
start.
"""

from pathlib import Path

import msgspec

from moxwell.atomic_file import write_private

StageDurations = dict[str, dict[str, list[float]]]
MAX_BYTES = 1 << 20


def read(path: Path | None) -> StageDurations:
    """The stored durations; empty if there are none."""
    if path is None:
        return {}
    try:
        if path.stat().st_size > MAX_BYTES:
            return {}
        return msgspec.json.decode(path.read_bytes(), type=StageDurations)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def write(path: Path | None, stored: StageDurations, now: StageDurations) -> StageDurations:
    """Write the durations if they changed; returns what the file holds."""
    if path is None or now == stored:
        return stored
    try:
        write_private(path, msgspec.json.encode(now))
    except OSError:
        return stored
    return now
