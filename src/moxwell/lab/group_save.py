"""
Saves once for all callers that wait, as a database commits a group of transactions.

A caller returns after a save that began after its call. A tenth of a second lies between two saves,
which is how long a write to the configuration of a genuine cluster may take, and saves take at most
a twentieth of the time, so a large state is saved less often. A change after a pause is saved at
once.
"""

import asyncio
from collections.abc import Callable

from moxwell.clock import Clock

MOST_SHARE = 0.05
SHORTEST_SECONDS = 0.1  # between two saves


class GroupSave:
    """Calls ``save`` for groups of callers."""

    def __init__(self, save: Callable[[], None], clock: Clock) -> None:
        self._save, self._clock = save, clock
        self._waiting: list[asyncio.Future[None]] = []
        self._not_before = clock.monotonic()
        self._task: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        """Return when the present state is saved; raises what ``save`` raises."""
        saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(saved)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        await saved

    async def _run(self) -> None:
        try:
            while self._waiting:
                pause = self._not_before - self._clock.monotonic()
                if pause > 0:
                    await self._clock.sleep(pause)
                self._save_group()
        finally:
            self._task = None

    def _save_group(self) -> None:
        waiting, self._waiting = self._waiting, []
        began, failed = self._clock.monotonic(), None
        try:
            self._save()
        except OSError as error:
            failed = error
        ended = self._clock.monotonic()
        self._not_before = ended + max(SHORTEST_SECONDS, (ended - began) * (1 / MOST_SHARE - 1))
        for future in [f for f in waiting if not f.done()]:
            if failed is None:
                future.set_result(None)
            else:
                future.set_exception(failed)
