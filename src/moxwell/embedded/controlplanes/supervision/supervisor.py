"""
Keeps programs running: starts or adopts them, probes them, restarts them with backoff.

A program that another daemon started with the same digest is adopted; one with another digest is
terminated first. So a program never runs twice, also after a daemon was killed. Reads and writes
processes only through :class:`ProcessControl`.
"""

import asyncio
import hashlib
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import structlog

from moxwell.clock import Clock
from moxwell.embedded.controlplanes.supervision import process
from moxwell.embedded.controlplanes.supervision.process import LaunchSpec, RunningProcess
from moxwell.errors import MoxwellError

FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 60.0
STABLE_SECONDS = 60.0  # a program that ran so long starts with the first backoff again
STARTING_PROBE_SECONDS, PROBE_SECONDS = 0.5, 5.0  # between probes, before and after it is healthy
UNHEALTHY_SECONDS = 180.0  # a program that fails its probe for so long is restarted
LOG_BYTES = 8 << 20
log = structlog.get_logger(__name__)

Probe = Callable[[], Awaitable[str]]


class ProcessControl(Protocol):
    """Starts, finds and terminates processes."""

    def start(self, spec: LaunchSpec) -> RunningProcess: ...
    def find(self, run_file: Path) -> RunningProcess | None: ...
    async def wait(self, process: RunningProcess) -> int | None: ...
    async def terminate(self, process: RunningProcess) -> None: ...
    def memory(self, process: RunningProcess) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that should run."""

    name: str
    argv: tuple[str, ...]
    folder: Path
    probe: Probe = field(compare=False)  # returns an empty text if healthy, else why not
    files: tuple[Path, ...] = ()  # which it reads only when it starts
    memory_limit: int = 0  # resident bytes above which it is restarted; 0: none

    @property
    def key(self) -> Path:
        return self.folder / self.name

    def launch_spec(self) -> LaunchSpec:
        """What to start; the digest covers the arguments and the content of its files."""
        digest = hashlib.sha256("\0".join(self.argv).encode())
        for file in self.files:
            digest.update(file.read_bytes())
        return LaunchSpec(self.name, self.argv, self.folder, digest.hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class ProgramState:
    """Whether a program is healthy, and if not, why."""

    healthy: bool = False
    message: str = "not started yet"
    pid: int = 0
    restarts: int = 0
    last_exit: str = ""  # why the process before this one is not running any more


def backoff(failures: int) -> float:
    """How long to wait before the next start."""
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(max(0, failures - 1), 16), MAX_BACKOFF_SECONDS)


def exit_text(code: int | None) -> str:
    """How a process ended; a negative code is a signal."""
    if code is None:
        return "exited"
    if code >= 0:
        return f"exited with code {code}"
    known = {int(s): s.name for s in signal.Signals}
    return f"was killed by {known.get(-code, f'signal {-code}')}"


class SupervisedProgram:
    """Runs one program again and again."""

    def __init__(
        self,
        program: Program,
        processes: ProcessControl,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.program, self.state = program, ProgramState()
        self.process: RunningProcess | None = None  # the current one, or one to replace
        self._spec = program.launch_spec()
        self._processes, self._clock, self._changed = processes, clock, changed

    @property
    def digest(self) -> str:
        return self._spec.digest

    async def run(self) -> None:
        """Run it until cancelled; cancelling leaves the process running."""
        failures = 0
        while True:
            started = self._clock.monotonic()
            reason = await self._run_once()
            lived = self._clock.monotonic() - started
            failures = 1 if lived >= STABLE_SECONDS else failures + 1
            pause = backoff(failures)
            message = f"{self.program.name} {reason}; restarts in {pause:.0f} s"
            self._set(ProgramState(False, message, 0, self.state.restarts + 1, reason))
            log.warning("program exited", program=str(self.program.key), reason=reason, pause=pause)
            await self._clock.sleep(pause)

    async def _run_once(self) -> str:
        """Start or adopt it; returns why it is not running any more."""
        try:
            self.process = await self._start_or_adopt()
            pid = self.process.pid
            self._set(replace(self.state, healthy=False, message="starting", pid=pid))
            return await self._probe_until_exit(self.process)
        except (MoxwellError, OSError) as error:
            return f"cannot be started: {error}"

    async def _start_or_adopt(self) -> RunningProcess:
        found = self._processes.find(self._spec.run_file)
        if found is not None and found.digest == self._spec.digest:
            log.info("program adopted", program=str(self.program.key), pid=found.pid)
            return found
        for other in (self.process, found):
            if other is not None:  # terminating one that has exited does nothing
                await self._processes.terminate(other)
        started = self._processes.start(self._spec)
        log.info("program started", program=str(self.program.key), pid=started.pid)
        return started

    async def _probe_until_exit(self, running: RunningProcess) -> str:
        exited = asyncio.create_task(self._processes.wait(running))
        unhealthy = asyncio.create_task(self._probe_until_unhealthy(running))
        try:
            await asyncio.wait((exited, unhealthy), return_when=asyncio.FIRST_COMPLETED)
        finally:
            unhealthy.cancel()
            exited.cancel()
            await asyncio.gather(exited, unhealthy, return_exceptions=True)
        if not exited.cancelled():
            return self._exit_message(exited.result())
        await self._processes.terminate(running)
        return unhealthy.result()

    def _exit_message(self, code: int | None) -> str:
        lines = process.tail(self._spec.log)
        exited = exit_text(code)
        return f"{exited}: {lines[-1][:300]}" if lines else exited

    async def _probe_until_unhealthy(self, running: RunningProcess) -> str:
        """Probe it; returns why it must be restarted."""
        answered = self._clock.monotonic()
        while self._clock.monotonic() - answered < UNHEALTHY_SECONDS:
            if too_much := self._memory_excess(running):
                return too_much
            message = await self._probe()
            if not message:
                answered = self._clock.monotonic()
            self._set(replace(self.state, healthy=not message, message=message))
            self._rotate_log()
            await self._clock.sleep(STARTING_PROBE_SECONDS if message else PROBE_SECONDS)
        return f"did not answer for {UNHEALTHY_SECONDS:.0f} s"

    def _memory_excess(self, running: RunningProcess) -> str:
        limit = self.program.memory_limit
        used = self._processes.memory(running) if limit else 0
        if used <= limit:
            return ""
        return f"used {used >> 20} MiB of memory, more than its limit of {limit >> 20} MiB"

    async def _probe(self) -> str:
        try:
            return await self.program.probe()
        except MoxwellError as error:
            return str(error)

    def _rotate_log(self) -> None:
        try:
            process.rotate_log(self._spec.log, LOG_BYTES)
        except OSError as error:  # a full disk is no reason to restart the program
            log.warning("log not rotated", program=str(self.program.key), error=error.strerror)

    def _set(self, state: ProgramState) -> None:
        if state != self.state:
            self.state = state
            self._changed()


class Supervisor:
    """The programs that should run now."""

    def __init__(self, processes: ProcessControl, clock: Clock) -> None:
        self._processes, self._clock = processes, clock
        self._supervised: dict[Path, tuple[SupervisedProgram, asyncio.Task[None]]] = {}

    def state(self, key: Path) -> ProgramState:
        """The state of a program."""
        found = self._supervised.get(key)
        return found[0].state if found else ProgramState()

    def has(self, key: Path) -> bool:
        """Whether a program is supervised or was left running by another daemon."""
        return key in self._supervised or self._processes.find(_run_file(key)) is not None

    def differs(self, program: Program) -> bool:
        """Whether a program runs with another digest, so that :meth:`keep` restarts it."""
        spec = program.launch_spec()
        running = self._processes.find(spec.run_file)
        return running is not None and running.digest != spec.digest

    async def keep(
        self, program: Program, changed: Callable[[], None] = lambda: None
    ) -> ProgramState:
        """Supervise a program from now on; one with another digest is restarted."""
        wanted = SupervisedProgram(program, self._processes, self._clock, changed)
        found = self._supervised.get(program.key)
        if found is not None:
            if found[0].digest == wanted.digest:
                return found[0].state
            wanted.process = await self._release(program.key)
        task = asyncio.create_task(wanted.run())
        self._supervised[program.key] = wanted, task
        return wanted.state

    async def stop(self, key: Path) -> None:
        """Terminate a program, supervised or left running by another daemon; idempotent."""
        running = await self._release(key) or self._processes.find(_run_file(key))
        if running is not None:
            await self._processes.terminate(running)
            log.info("program stopped", program=str(key), pid=running.pid)
        _run_file(key).unlink(missing_ok=True)

    async def _release(self, key: Path) -> RunningProcess | None:
        """Stop supervising; returns the process, which is left running."""
        found = self._supervised.pop(key, None)
        if found is None:
            return None
        found[1].cancel()
        with suppress(asyncio.CancelledError):
            await found[1]
        return found[0].process

    def programs(self) -> tuple[Path, ...]:
        """All supervised programs, the last started first."""
        return tuple(reversed(self._supervised))


def _run_file(key: Path) -> Path:
    return key.with_name(f"{key.name}.run")
