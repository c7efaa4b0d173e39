"""
Trying several endings from one moment: the process is copied, and the copy goes on another way.

In: a story that runs on virtual time, in one thread and without sockets. Out: what went wrong in
the copies, as text. Nothing before the moment is done again, so a hundred endings cost a hundred
times what comes after, not a hundred worlds. The surprise: a copy has the whole test run in its
memory, so it must never come back from the story: it tells how it went and is gone.
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
    """Another ending went wrong; the text is what its process said."""


class Branches:
    """Where to branch, and how it went; to be entered on the loop around the whole story."""

    def __init__(self, wanted: Callable[[int], bool] = lambda _: False) -> None:
        self._wanted = wanted
        self._tell: int | None = None  # where a copy says how it went
        self._failure: tuple[str, str] | None = None

    def take(self, number: int, when: str) -> bool:
        """Whether this is a copy, which goes another way; the original waits for its end."""
        if self._tell is not None or self._failure or not self._wanted(number):
            return False
        loop, (listen, tell) = asyncio.get_running_loop(), os.pipe()
        child = _fork()
        if not child:
            asyncio._set_running_loop(loop)  # which is noted by process
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
    with warnings.catch_warnings():  # other threads of a test run are no part of a story
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _until_gone(child: int, listen: int) -> str:
    """Wait for a copy; what it said if it went wrong. It does not outlive who waits."""
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
