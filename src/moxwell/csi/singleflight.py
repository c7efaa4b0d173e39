"""
Runs one task per key; concurrent and later callers wait for the same result.

The task continues when a caller's deadline passes; the next call gets its result.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """The running tasks of this process by key."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def do(self, key: str, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for the task of a key; start it unless it is running."""
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(begin())
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)

    def _ended(self, key: str, task: "asyncio.Task[T]") -> None:
        self._tasks.pop(key, None)
        if not task.cancelled():
            task.exception()  # mark as retrieved: every waiter may have been cancelled
