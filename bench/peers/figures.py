"""Figures of one program in one scenario: requests, CPU time, memory and duration per phase."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request to the simulated Proxmox and the status of its answer."""

    method: str
    path: str
    status: int

    @property
    def operation(self) -> str:
        """The request without IDs, host names and volumes."""
        parts = [part for part in self.path.split("/") if part]
        if parts[:1] == ["nodes"] and len(parts) > 1:
            parts[1] = "{node}"
        if "content" in parts[:-1]:
            parts[parts.index("content") + 1 :] = ["{volume}"]
        shown = ["{id}" if p.isdigit() or p.startswith("UPID:") else p for p in parts]
        return f"{self.method} /{'/'.join(shown[:7])}"


@dataclass(frozen=True, slots=True)
class Phase:
    """What one phase of a scenario cost."""

    name: str
    count: int
    seconds: float
    exchanges: tuple[Exchange, ...]
    cpu_seconds: float

    @property
    def writes(self) -> int:
        return sum(e.method != "GET" for e in self.exchanges)

    @property
    def errors(self) -> Counter[int]:
        return Counter(e.status for e in self.exchanges if e.status >= 400)


@dataclass(slots=True)
class Run:
    """All phases of one program in one scenario."""

    scenario: str
    program: str
    phases: list[Phase] = field(default_factory=list)
    peak_mib: float = 0.0
    leftovers: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()  # UIDs of node claims that ended although nobody deleted them
    repeated_calls: int = 0  # calls that failed and were sent again

    @property
    def exchanges(self) -> Iterable[Exchange]:
        return (e for phase in self.phases for e in phase.exchanges)

    @property
    def unimplemented(self) -> tuple[str, ...]:
        """Operations that the simulator answers with 501, which no program should see."""
        found = {e.operation for e in self.exchanges if e.status == 501}
        return tuple(sorted(found))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mib(pid: int) -> float:
    """The largest resident size of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
