"""
Keeps programs running: started or adopted, probed, started again with growing pauses, ended.

In flow :class:`Program` values; out flows how each is (:class:`State`), and a call to ``changed``
whenever that differs. A program found running as it should be is adopted, whoever started it; one
that runs otherwise than wished is ended first. So there are never two of one, and after a killed
daemon nothing is doubled.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import structlog

from moxwell.clock import Clock
from moxwell.embedded.controlplanes.binaries import process
from moxwell.embedded.controlplanes.binaries.process import Job, Life
from moxwell.errors import MoxwellError

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
STEADY_SECONDS = 60.0  # one that lived so long begins with the first pause again
EAGER_SECONDS, LAZY_SECONDS = 0.5, 5.0  # between probes before and after it is well
DEAF_SECONDS = 180.0  # one that does not answer for so long is started anew
LOG_BYTES = 8 << 20
log = structlog.get_logger(__name__)

Probe = Callable[[], Awaitable[str]]


class Hands(Protocol):
    """What is done to processes."""

    def start(self, job: Job) -> Life: ...
    def find(self, page: Path) -> Life | None: ...
    async def ended(self, life: Life) -> int | None: ...
    async def end(self, life: Life) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that should run."""

    stem: str
    argv: tuple[str, ...]
    folder: Path
    probe: Probe = field(compare=False)  # empty: it is well; else why not
    reads: tuple[Path, ...] = ()  # files it reads at its start only

    @property
    def key(self) -> Path:
        return self.folder / self.stem

    def job(self) -> Job:
        """What to start; the mark changes with any word of it or any file it reads."""
        digest = hashlib.sha256("\0".join(self.argv).encode())
        for file in self.reads:
            digest.update(file.read_bytes())
        return Job(self.stem, self.argv, self.folder, digest.hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class State:
    """How a program is."""

    well: bool = False
    says: str = "not started yet"
    pid: int = 0
    restarts: int = 0


def pause_after(failures: int) -> float:
    """How long to wait before the next start."""
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(max(0, failures - 1), 16), LONGEST_PAUSE_SECONDS)


class Keeper:
    """One program's life."""

    def __init__(
        self, program: Program, hands: Hands, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self.program, self.state = program, State()
        self.life: Life | None = None  # what runs now, or ran otherwise until now
        self._job = program.job()
        self._hands, self._clock, self._changed = hands, clock, changed

    @property
    def mark(self) -> str:
        return self._job.mark

    async def run(self) -> None:
        """Keep it; ends only by being cancelled, and leaves it running."""
        failures = 0
        while True:
            began = self._clock.monotonic()
            why = await self._once()
            lived = self._clock.monotonic() - began
            failures = 1 if lived >= STEADY_SECONDS else failures + 1
            pause = pause_after(failures)
            says = f"{self.program.stem} {why}; starts again in {pause:.0f} s"
            self._say(State(False, says, 0, self.state.restarts + 1))
            log.warning("program ended", program=str(self.program.key), why=why, pause=pause)
            await self._clock.sleep(pause)

    async def _once(self) -> str:
        """One life of it, from its start to why it ended."""
        try:
            self.life = life = await self._begin()
            self._say(replace(self.state, well=False, says="starting", pid=life.pid))
            return await self._accompany(life)
        except (MoxwellError, OSError) as error:
            return f"cannot be started: {error}"

    async def _begin(self) -> Life:
        found = self._hands.find(self._job.page)
        if found is not None and found.mark == self._job.mark:
            log.info("program adopted", program=str(self.program.key), pid=found.pid)
            return found
        for other in (self.life, found):
            if other is not None:  # a dead one is ended without harm
                await self._hands.end(other)
        life = self._hands.start(self._job)
        log.info("program started", program=str(self.program.key), pid=life.pid)
        return life

    async def _accompany(self, life: Life) -> str:
        """Probe it until it ends; why it did."""
        over = asyncio.create_task(self._hands.ended(life))
        deaf = asyncio.create_task(self._watch())
        try:
            await asyncio.wait((over, deaf), return_when=asyncio.FIRST_COMPLETED)
        finally:
            deaf.cancel()
            over.cancel()
            await asyncio.gather(over, deaf, return_exceptions=True)
        if not over.cancelled():
            return self._last_words(over.result())
        await self._hands.end(life)
        return f"did not answer for {DEAF_SECONDS:.0f} s"

    def _last_words(self, code: int | None) -> str:
        words = process.tail(self._job.log)
        how = "ended" if code is None else f"ended with code {code}"
        return f"{how}: {words[-1][:300]}" if words else how

    async def _watch(self) -> None:
        """Ask how it is; returns when it has been deaf for too long."""
        heard = self._clock.monotonic()
        while self._clock.monotonic() - heard < DEAF_SECONDS:
            says = await self._probed()
            if not says:
                heard = self._clock.monotonic()
            self._say(replace(self.state, well=not says, says=says))
            process.bound(self._job.log, LOG_BYTES)
            await self._clock.sleep(EAGER_SECONDS if says else LAZY_SECONDS)

    async def _probed(self) -> str:
        try:
            return await self.program.probe()
        except MoxwellError as error:
            return str(error)

    def _say(self, state: State) -> None:
        if state != self.state:
            self.state = state
            self._changed()


class Supervisor:
    """The programs that should run now."""

    def __init__(self, hands: Hands, clock: Clock) -> None:
        self._hands, self._clock = hands, clock
        self._keepers: dict[Path, tuple[Keeper, asyncio.Task[None]]] = {}

    def state(self, key: Path) -> State:
        """How a program is."""
        found = self._keepers.get(key)
        return found[0].state if found else State()

    def has(self, key: Path) -> bool:
        """Whether it is kept, or lives as another daemon left it."""
        return (
            key in self._keepers or self._hands.find(key.with_name(f"{key.name}.run")) is not None
        )

    def differs(self, program: Program) -> bool:
        """Whether it runs otherwise than it should, so that keeping it means starting it anew."""
        job = program.job()
        life = self._hands.find(job.page)
        return life is not None and life.mark != job.mark

    async def keep(self, program: Program, changed: Callable[[], None] = lambda: None) -> State:
        """Have it run as it is told; one that runs otherwise is started anew."""
        keeper = Keeper(program, self._hands, self._clock, changed)
        found = self._keepers.get(program.key)
        if found is not None:
            if found[0].mark == keeper.mark:
                return found[0].state
            keeper.life = await self._let_go(program.key)
        task = asyncio.create_task(keeper.run())
        self._keepers[program.key] = keeper, task
        return keeper.state

    async def end(self, key: Path) -> None:
        """End a program, kept or left by another daemon; harmless to repeat."""
        page = key.with_name(f"{key.name}.run")
        life = await self._let_go(key) or self._hands.find(page)
        if life is not None:
            await self._hands.end(life)
            log.info("program ended by us", program=str(key), pid=life.pid)
        page.unlink(missing_ok=True)

    async def _let_go(self, key: Path) -> Life | None:
        """Keep it no longer, and leave it as it is; what runs, where anything did."""
        found = self._keepers.pop(key, None)
        if found is None:
            return None
        found[1].cancel()
        with suppress(asyncio.CancelledError):
            await found[1]
        return found[0].life

    def kept(self) -> tuple[Path, ...]:
        """What is kept now, the last begun first."""
        return tuple(reversed(self._keepers))
