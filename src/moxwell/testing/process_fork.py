"""
Tests several continuations of one moment: the process is forked, and the copy continues otherwise.

Works for stories in virtual time, in one thread and without sockets. Nothing before the moment runs
again, so a hundred continuations cost only what follows. A copy has the whole test run in its
memory, so it must never return from the story: it reports its result and exits.
"""

import asyncio
import gc
import os
import select
import signal
import traceback
import warnings
from collections.abc import Callable
from types import TracebackType

TIMEOUT_SECONDS = 1800


class BranchFailed(AssertionError):
    """A forked continuation failed; the text is its report."""


class Branches:
    """Where to fork, and the results; enter it on the event loop around the whole test."""

    def __init__(self, wanted: Callable[[int], bool] = lambda _: False) -> None:
        self._wanted = wanted
        self._pipe: int | None = None  # the pipe on which a fork reports
        self._failure: tuple[str, str] | None = None

    def take(self, number: int, when: str) -> bool:
        """Returns True in the fork; the original waits for the fork to exit."""
        if self._pipe is not None or self._failure or not self._wanted(number):
            return False
        loop, (reading, writing) = asyncio.get_running_loop(), os.pipe()
        child = _fork()
        if not child:
            asyncio._set_running_loop(loop)  # asyncio remembers the loop per process
            self._pipe = writing
            return True
        os.close(writing)
        failure = _wait(child, reading)
        self._failure = (failure, when) if failure else None
        return False

    def __enter__(self) -> "Branches":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pipe is not None:
            text = "".join(traceback.format_exception(error)) if error else ""
            with os.fdopen(self._pipe, "w", encoding="utf-8") as pipe:
                pipe.write(text)
            os._exit(bool(error))
        if self._failure:
            text, when = self._failure
            failure = BranchFailed(text)
            failure.add_note(when)
            raise failure


def _fork() -> int:
    """
    Fork; in the copy the garbage collector ignores what exists now.

    Its search would write to every object of the test run, and so copy all memory.
    """
    gc.freeze()
    with warnings.catch_warnings():  # other threads of the test run are not part of the fork
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        gc.unfreeze()
    return child


def _wait(child: int, reading: int) -> str:
    """Wait for a fork; returns its report if it failed. It does not outlive its parent."""
    status, waiting = None, select.poll()
    waiting.register(reading)
    try:
        with os.fdopen(reading, encoding="utf-8") as pipe:
            if not waiting.poll(TIMEOUT_SECONDS * 1000):
                return f"a copy did not end within {TIMEOUT_SECONDS} s"
            failure = pipe.read()
        status = os.waitpid(child, 0)[1]
    finally:
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return failure or ("" if status == 0 else f"a copy ended with status {status}")
