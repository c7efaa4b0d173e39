"""
Processes that are only written down: what the supervisor does, on virtual time.

A process lives until it is ended, or until ``crash`` ends it; pages outlive whoever kept them, so
that a second supervisor over the same hands finds what the first one left.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from moxwell.embedded.controlplanes.binaries.process import Job, Life


@dataclass
class PaperHands:
    """Hands over a world of paper."""

    living: dict[int, tuple[Life, asyncio.Event]] = field(default_factory=dict)
    pages: dict[Path, Life] = field(default_factory=dict)
    started: list[Job] = field(default_factory=list)
    codes: dict[int, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)  # most that lived at once, by stem
    fails: int = 0  # so many starts are refused

    def start(self, job: Job) -> Life:
        if self.fails:
            self.fails -= 1
            raise OSError(28, "No space left on device")
        life = Life(1000 + len(self.started), len(self.started) + 1, job.mark)
        self.started.append(job)
        self.living[life.pid] = life, asyncio.Event()
        self.pages[job.page] = life
        here = [pid for page, one in self.pages.items() if page == job.page for pid in [one.pid]]
        alive = sum(pid in self.living for pid in here)
        self.most[job.stem] = max(self.most.get(job.stem, 0), alive)
        return life

    def find(self, page: Path) -> Life | None:
        life = self.pages.get(page)
        return life if life is not None and life.pid in self.living else None

    async def ended(self, life: Life) -> int | None:
        if life.pid in self.living:
            await self.living[life.pid][1].wait()
        return self.codes.get(life.pid)

    async def end(self, life: Life) -> None:
        self.crash(life.pid, 0)

    def crash(self, pid: int, code: int) -> None:
        """A process ends by itself."""
        found = self.living.pop(pid, None)
        if found is not None:
            self.codes[pid] = code
            found[1].set()
