"""
Forks a test process to try several continuations from one point.

The test must run on virtual time, in one thread and without sockets. Nothing before the fork is
repeated, so a hundred continuations cost only what follows the fork. A forked process contains the
whole test run and must never return from the test: it reports its result and exits.
"""

import asyncio
import os
import select
import signal
import traceback
import warnings
from collections.abc import Callable
from types import TracebackType

PATIENCE_SECONDS = 1800


class Branched(AssertionError):
    """A forked continuation failed; the text is its report."""


class Branches:
    """Where to fork, and the results; enter it on the event loop around the whole test."""

    def __init__(self, wanted: Callable[[int], bool] = lambda _: False) -> None:
        self._wanted = wanted
        self._tell: int | None = None  # the pipe on which a fork reports
        self._failure: tuple[str, str] | None = None

    def take(self, number: int, when: str) -> bool:
        """Returns True in the fork; the original waits for the fork to exit."""
        if self._tell is not None or self._failure or not self._wanted(number):
            return False
        loop, (listen, tell) = asyncio.get_running_loop(), os.pipe()
        child = _fork()
        if not child:
            asyncio._set_running_loop(loop)  # logged with the process id
            self._tell = tell
            return True
        os.close(tell)
        said = _until_gone(child, listen)
        self._failure = (said, when) if said else None
        return False

    def __enter__(self) -> "Branches":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._tell is not None:
            text = "".join(traceback.format_exception(error)) if error else ""
            with os.fdopen(self._tell, "w", encoding="utf-8") as pipe:
                pipe.write(text)
            os._exit(bool(error))
        if self._failure:
            said, when = self._failure
            failure = Branched(said)
            failure.add_note(when)
            raise failure


def _fork() -> int:
    with warnings.catch_warnings():  # other threads of the test run are not part of the fork
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _until_gone(child: int, listen: int) -> str:
    """Wait for a fork; returns its report if it failed. It does not outlive its parent."""
    status, waiting = None, select.poll()
    waiting.register(listen)
    try:
        with os.fdopen(listen, encoding="utf-8") as pipe:
            if not waiting.poll(PATIENCE_SECONDS * 1000):
                return f"a copy did not end within {PATIENCE_SECONDS} s"
            said = pipe.read()
        status = os.waitpid(child, 0)[1]
    finally:
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return said or ("" if status == 0 else f"a copy ended with status {status}")
