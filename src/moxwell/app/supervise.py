"""
Runs the daemon as a child process and starts it again when it crashes.

This process holds the lock of the instance and loads little, so it survives what may crash the
child. The child is killed if this process ends. A child that cannot start the first time ends this
process with the same exit code; later ones are tried again with backoff.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from moxwell.app.restarts import Restarts
from moxwell.app.state_dir import StateDir
from moxwell.atomic_file import write_private
from moxwell.clock import Clock, SystemClock
from moxwell.embedded.controlplanes.supervision.supervisor import (
    STABLE_SECONDS,
    backoff,
    exit_text,
)
from moxwell.runtime import log as logging

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Exited:
    """A child that has ended."""

    code: int
    seconds: float
    restarts: int
    failures: int  # in a row, including this one
    stopping: bool  # it has received the signal to end


def restart_after(exited: Exited) -> float | None:
    """The seconds to wait before the next start; None if there is none."""
    if exited.stopping or exited.code == 0:
        return None
    if exited.code > 0 and exited.restarts == 0 and exited.seconds < STABLE_SECONDS:
        return None
    return backoff(exited.failures)


class DaemonSupervisor:
    """Keeps one child running."""

    def __init__(
        self,
        argv: Sequence[str],
        record: Path,
        clock: Clock,
        exited: Callable[[], None] = lambda: None,
    ) -> None:
        """``record`` is the file with :class:`Restarts`; ``exited`` is called after each end."""
        self._argv, self._record, self._clock, self._exited = argv, record, clock, exited
        self._stopping = asyncio.Event()
        self._child: asyncio.subprocess.Process | None = None

    def stop(self) -> None:
        """End the child, and with it :meth:`run`."""
        self._stopping.set()
        if self._child is not None and self._child.returncode is None:
            self._child.send_signal(signal.SIGTERM)

    async def run(self) -> int:
        """Run until the child ends for good; returns its exit code."""
        restarts, failures = 0, 0
        while True:
            started = self._clock.monotonic()
            code = await self._run_once()
            self._exited()
            seconds = self._clock.monotonic() - started
            failures = 1 if seconds >= STABLE_SECONDS else failures + 1
            stopping = self._stopping.is_set()
            pause = restart_after(Exited(code, seconds, restarts, failures, stopping))
            if pause is None:
                return 0 if stopping and code < 0 else code
            restarts += 1
            self._write(restarts, exit_text(code))
            log.error("daemon restarts", reason=exit_text(code), pause=pause, restarts=restarts)
            if await self._stopped_within(pause):
                return 0

    async def _run_once(self) -> int:
        self._child = await asyncio.create_subprocess_exec(*self._argv)
        if self._stopping.is_set():
            self.stop()
        return await self._child.wait()

    async def _stopped_within(self, seconds: float) -> bool:
        waiting = asyncio.create_task(self._stopping.wait())
        pause = asyncio.ensure_future(self._clock.sleep(seconds))
        await asyncio.wait((waiting, pause), return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, pause):
            task.cancel()
        return self._stopping.is_set()

    def _write(self, count: int, reason: str) -> None:
        at = self._clock.now().strftime("%Y-%m-%d %H:%M:%S UTC")
        try:
            write_private(self._record, msgspec.json.encode(Restarts(count, reason, at)))
        except OSError as error:  # a full disk is no reason not to restart
            log.warning("restarts not recorded", error=error.strerror)


async def supervise(name: str, environ: Mapping[str, str]) -> int:
    """Run the daemon of an instance until a signal arrives; Busy if it runs already."""
    state = StateDir(name, environ)
    state.acquire()
    logging.configure(form="console")
    state.restarts.unlink(missing_ok=True)
    argv = (
        sys.executable,
        "-m",
        "moxwell",
        "daemon",
        "--name",
        name,
        "--supervisor",
        str(os.getpid()),
    )
    supervisor = DaemonSupervisor(argv, state.restarts, SystemClock(), state.withdraw)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    try:
        return await supervisor.run()
    finally:
        state.release()
