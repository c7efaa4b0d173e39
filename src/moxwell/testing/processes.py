"""
A fake of the processes of a machine, for tests of the supervisor in virtual time.

A process runs until it is terminated or ``crash`` ends it. Run files outlive the supervisor, so
that a second supervisor finds what the first one left running.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from moxwell.embedded.controlplanes.supervision.process import LaunchSpec, RunningProcess


@dataclass
class FakeProcesses:
    """Processes in memory."""

    running: dict[int, tuple[RunningProcess, asyncio.Event]] = field(default_factory=dict)
    run_files: dict[Path, RunningProcess] = field(default_factory=dict)
    started: list[LaunchSpec] = field(default_factory=list)
    codes: dict[int, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)  # most that ran at once, by program
    fails: int = 0  # how many starts fail
    used: dict[int, int] = field(default_factory=dict)  # memory by PID

    def start(self, spec: LaunchSpec) -> RunningProcess:
        if self.fails:
            self.fails -= 1
            raise OSError(28, "No space left on device")
        process = RunningProcess(1000 + len(self.started), len(self.started) + 1, spec.digest)
        before = self.find(spec.run_file)
        self.started.append(spec)
        self.running[process.pid] = process, asyncio.Event()
        self.run_files[spec.run_file] = process
        count = 2 if before is not None else 1
        self.most[spec.name] = max(self.most.get(spec.name, 0), count)
        return process

    def find(self, run_file: Path) -> RunningProcess | None:
        process = self.run_files.get(run_file)
        return process if process is not None and process.pid in self.running else None

    async def wait(self, process: RunningProcess) -> int | None:
        if process.pid in self.running:
            await self.running[process.pid][1].wait()
        return self.codes.get(process.pid)

    def memory(self, process: RunningProcess) -> int:
        return self.used.get(process.pid, 0)

    async def terminate(self, process: RunningProcess) -> None:
        self.crash(process.pid, 0)

    def crash(self, pid: int, code: int) -> None:
        """A process exits by itself."""
        found = self.running.pop(pid, None)
        if found is not None:
            self.codes[pid] = code
            found[1].set()
