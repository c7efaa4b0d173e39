"""
Start programs for tests and terminate them by process id.

The output of a :class:`Process` goes to a file. A child also ends with its parent (``setpriv
--pdeathsig``), so that a killed test run leaves no processes.
"""

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
GRACE_SECONDS = 10.0


class Failed(Exception):
    """A program did not become ready; the message contains the end of its log."""


def free_port() -> int:
    """A free loopback port below the range of outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Process:
    """One running program."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        folder: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        words = [str(word) for word in command]
        setpriv = shutil.which("setpriv")
        if setpriv:
            words = [setpriv, "--pdeathsig", "TERM", *words]
        with self.log.open("ab") as out:
            self._child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=folder,
                env=None if env is None else dict(env),
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def tail(self, lines: int = 20) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def kill(self) -> None:
        """Send SIGKILL."""
        self._child.kill()
        self._child.wait()

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def stop(self) -> int:
        """Send SIGTERM, after the grace period SIGKILL; returns the exit code."""
        if self.running:
            self._child.terminate()
            try:
                self._child.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
        return self._child.wait()


def wait_ready(process: Process, is_ready: Callable[[], bool], *, seconds: float = 180.0) -> None:
    """Wait until ``is_ready`` returns true; raise if the program exits or the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not process.running:
            raise Failed(f"{process.name} ended at once:\n{process.tail()}")
        if is_ready():
            return
        time.sleep(0.05)
    raise Failed(f"{process.name} was not ready in {seconds:.0f} s:\n{process.tail()}")


def wait_for(ask: Callable[[], T | None], what: str, *, seconds: float = 180.0) -> T:
    """Wait for the first result that is not None, in real time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = ask()
        if answer is not None:
            return answer
        time.sleep(0.1)
    raise Failed(f"{what}: not in {seconds:.0f} s")
