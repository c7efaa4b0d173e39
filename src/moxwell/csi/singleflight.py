"""
Work that outlives its caller: begun once per key, joined by whoever asks again.

The surprise: a caller whose deadline passed is not a reason to stop; the next one gets the result.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Ongoing(Generic[T]):
    """The work under way in this process."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def join(self, key: str, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the work of a key; begun here unless it is under way."""
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(begin())
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)

    def _ended(self, key: str, task: "asyncio.Task[T]") -> None:
        self._tasks.pop(key, None)
        if not task.cancelled():
            task.exception()  # told to whoever waits; nobody may
