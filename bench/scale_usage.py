"""What a process and all processes below it use: CPU time, memory, descriptors. Reads ``/proc``."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds, bytes (proportional share of shared pages) and open descriptors."""

    cpu: float
    memory: int
    descriptors: int
    processes: int


def usage(pid: int) -> Usage:
    """The sum over a process and its descendants, including children that have exited."""
    pids = [pid, *descendants(pid)]
    each = [one for one in map(_usage, pids) if one is not None]
    return Usage(
        sum(one.cpu for one in each),
        sum(one.memory for one in each),
        sum(one.descriptors for one in each),
        len(each),
    )


def descendants(pid: int) -> Iterator[int]:
    """The processes below a process."""
    for child in [c for c in map(int, _children(pid)) if c != pid]:
        yield child
        yield from descendants(child)


def _children(pid: int) -> list[str]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [child for task in tasks for child in (task / "children").read_text().split()]
    except OSError:  # it has exited
        return []


def _usage(pid: int) -> Usage | None:
    folder = Path(f"/proc/{pid}")
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        memory = next(
            int(line.split()[1]) * 1024
            for line in (folder / "smaps_rollup").read_text().splitlines()
            if line.startswith("Pss:")
        )
        descriptors = len(list((folder / "fd").iterdir()))
    except (OSError, StopIteration):  # it has exited
        return None
    return Usage(sum(map(int, fields[11:15])) / TICKS, memory, descriptors, 1)
