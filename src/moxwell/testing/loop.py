"""
An event loop with virtual time: when nothing is runnable, time jumps to the next timer.

``asyncio.sleep``, ``asyncio.timeout`` and everything else on the loop's time work unchanged and
take no real time. Work in threads is awaited in real time before the clock jumps. Sockets are
polled briefly (``settle_seconds``) first, since a response may be on its way.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
START = datetime(2026, 1, 1, tzinfo=UTC)


class _JumpSelector(selectors.DefaultSelector):
    """A selector that does not wait for timers: it reports the wait to its loop instead."""

    def __init__(self, settle_seconds: float) -> None:
        super().__init__()
        self.settle_seconds = settle_seconds
        self.busy_threads = 0
        self.skipped = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or self.busy_threads:
            return super().select(None if timeout is None else min(timeout, 0.05))
        if timeout <= 0:
            return super().select(0)
        # The loop always watches its self-pipe; anything more is a socket.
        settle = self.settle_seconds if len(self.get_map()) > 1 else 0
        ready = super().select(settle)
        if not ready:
            self.skipped += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual."""

    def __init__(self, settle_seconds: float = 0.005) -> None:
        self._jump = _JumpSelector(settle_seconds)
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.skipped

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        self._jump.busy_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: asyncio.Future[Any]) -> None:
        self._jump.busy_threads -= 1


class LoopClock:
    """A :class:`moxwell.clock.Clock` that follows the time of the running loop."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
