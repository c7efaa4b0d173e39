"""
Owns asyncio tasks that outlive the reconcile pass that starts them.

``run`` starts nothing itself: it only keeps the ``asyncio.TaskGroup`` open.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from moxwell.errors import Bug


class LongLivedTasks:
    """A task group; ``spawn`` works once ``run`` has been entered."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._ready = asyncio.Event()

    async def run(self, cleanup: Callable[[], Awaitable[None]]) -> None:
        """Own the spawned tasks until cancelled, then call ``cleanup``."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._ready.set()
                await asyncio.Event().wait()
        finally:
            await cleanup()

    async def wait_ready(self) -> None:
        """Wait until ``spawn`` works."""
        await self._ready.wait()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task of the group."""
        if self._group is None:
            work.close()
            raise Bug("tasks cannot be spawned before run() is entered")
        return self._group.create_task(work)


async def cancel(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def keep_running(
    begin: Callable[[], Coroutine[Any, Any, None]],
    failed: Callable[[BaseException], Awaitable[None]],
) -> None:
    """
    Run a loop until cancelled; an error is passed to ``failed``, and the loop starts again.

    For loops beside others in one task group, where an error of one would end all.
    """
    while True:
        error = await find_error(begin())
        await failed(error or Bug("a loop ended without an error"))


async def find_error(work: Coroutine[Any, Any, None]) -> BaseException | None:
    """Run a coroutine to its end; returns its error, of a group of errors the first."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
    finally:
        task.cancel()
        await asyncio.wait([task])
    error = task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
