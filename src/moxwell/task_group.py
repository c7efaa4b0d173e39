"""
The loops of control planes that this process hosts: tasks of one group, each with one owner.

Managers flow in, one for each tenant; each comes back as a task that its owner ends. The surprise:
``run`` itself does nothing. Tasks must belong to somebody who outlives the pass that starts them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from moxwell.errors import Bug
from moxwell.runtime.manager import Manager


class Loops:
    """Holds tasks; nothing can be spawned before ``run`` is under way."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._ready = asyncio.Event()

    async def run(self, end: Callable[[], Awaitable[None]]) -> None:
        """Hold what is spawned; ends only by being cancelled, and then calls ``end``."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._ready.set()
                await asyncio.Event().wait()
        finally:
            await end()

    async def wait_ready(self) -> None:
        """Wait until something can be spawned."""
        await self._ready.wait()

    def spawn(self, manager: Manager) -> asyncio.Task[None]:
        """Run a manager until its task is ended."""
        if self._group is None:
            raise Bug("planes are not running")
        return self._group.create_task(manager.run())


async def end(task: asyncio.Task[None]) -> None:
    """End a task and wait until it is over."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
