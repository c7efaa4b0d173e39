"""
Poller of a region's running tasks: reports each ended task to the listeners with its owner.

One request to ``/cluster/tasks`` per round covers all tasks; without tasks it sends nothing. That
list holds only the latest tasks of each host, so a task that is missing is read from its host. A
token without Sys.Audit on ``/`` sees an empty list; then the hosts are asked, and the list only
every ``BLIND_ROUNDS``. The exit status is a hint, not the state of the guest.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from moxwell.clock import Clock
from moxwell.errors import Missing, MoxwellError
from moxwell.pve import errors
from moxwell.pve.client import PveReader
from moxwell.pve.endpoints.cluster import TaskRow
from moxwell.pve.values import Upid

QUICK_SECONDS = 0.5
SLOW_SECONDS = 2.0
BRIEF_SECONDS = (0.05, 0.1)  # until a task that takes milliseconds is read
QUICK_ROUNDS = 20  # an older task is polled slowly
MANY = 1000  # tasks in one list of a host
BLIND_ROUNDS = 120  # without the cluster's list after it was empty although tasks run
SINGLES = 8  # tasks that are read one by one per round, at most


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task that ended; ``error`` is None if it succeeded."""

    upid: Upid
    owner: Hashable
    exit_text: str
    error: errors.PveError | None

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(slots=True)
class _Followed:
    owner: Hashable
    rounds: int = 0
    unlisted: int = 0


Listener = Callable[[TaskEnded], None]


class TaskPoller:
    """Polls the followed tasks of one region."""

    def __init__(self, pve: PveReader, clock: Clock) -> None:
        self._pve = pve
        self._clock = clock
        self._followed: dict[Upid, _Followed] = {}
        self._listeners: list[Listener] = []
        self._waiting: dict[Upid, list[asyncio.Future[TaskEnded]]] = {}
        self._wake = asyncio.Event()
        self._blind = 0  # remaining rounds without the cluster's list

    @property
    def running(self) -> tuple[Upid, ...]:
        """Followed tasks that have not ended yet."""
        return tuple(self._followed)

    def of(self, owner: Hashable) -> tuple[Upid, ...]:
        """Return the running tasks of an owner."""
        return tuple(upid for upid, task in self._followed.items() if task.owner == owner)

    def follow(self, upid: Upid, owner: Hashable) -> None:
        """Poll a task; the event of its end names the owner."""
        self._followed.setdefault(upid, _Followed(owner))
        self._wake.set()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a listener for each ended task; returns the function that unsubscribes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait_ended(self, upid: Upid, *, brief: bool = False) -> TaskEnded:
        """
        Wait until a task has ended; for request handlers, never for a controller.

        A ``brief`` task is read from its own host soon after its start, before the first round.
        """
        future: asyncio.Future[TaskEnded] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(upid, []).append(future)
        self.follow(upid, upid)
        for pause in BRIEF_SECONDS if brief else ():
            await self._clock.sleep(pause)
            if not future.done():
                await self._ask(upid)
        return await future

    async def run(self) -> None:
        """Poll until cancelled; sleeps while no task is followed."""
        while True:
            if not self._followed:
                self._wake.clear()
                await self._wake.wait()
            await self._clock.sleep(self._pause())
            await self.poll()

    def _pause(self) -> float:
        young = any(task.rounds < QUICK_ROUNDS for task in self._followed.values())
        return QUICK_SECONDS if young else SLOW_SECONDS

    async def poll(self) -> None:
        """Poll once: one request, and some more for tasks that the list does not show."""
        if not self._followed:
            return
        try:
            listed = await self._listed()
        except MoxwellError:
            return  # the inventory reports the region's health; retry in the next round
        fallen: dict[str, list[Upid]] = {}
        for upid, task in list(self._followed.items()):
            task.rounds += 1
            row = listed.get(upid)
            if row is None:
                task.unlisted += 1
                # hosts exchange new tasks with a delay: wait one round
                if task.unlisted > 1 or self._blind:
                    fallen.setdefault(upid.host, []).append(upid)
            elif not row.running:
                self._end(upid, row.status)
        for host, upids in fallen.items():
            if len(upids) > 1:
                upids = await self._ask_host(host, upids)
            for upid in upids[:SINGLES]:
                await self._ask(upid)

    async def _listed(self) -> dict[str, TaskRow]:
        """Return the cluster's list; an empty one means that the token may not see it."""
        if self._blind:
            self._blind -= 1
        if self._blind:
            return {}
        listed = {row.upid: row for row in await self._pve.cluster.tasks()}
        self._blind = 0 if listed else BLIND_ROUNDS
        return listed

    async def _ask_host(self, host: str, upids: list[Upid]) -> list[Upid]:
        """Read many missing tasks from one list of their host; returns those still missing."""
        since = min(upid.started for upid in upids)
        try:
            rows = await self._pve.tasks.list(host, source="all", since=since, limit=MANY)
        except MoxwellError:
            return []  # the host is down; retry in the next round
        found = {row.upid: row for row in rows}
        for upid in upids:
            row = found.get(upid)
            if row is not None and not row.running:
                self._end(upid, row.status)
        return [upid for upid in upids if upid not in found]

    async def _ask(self, upid: Upid) -> None:
        try:
            status = await self._pve.tasks.status(upid)
        except Missing:
            self._end(upid, "unexpected status: the task is not known any more")
        except MoxwellError:
            return
        else:
            if not status.running:
                self._end(upid, status.exitstatus or "unexpected status")

    def _end(self, upid: Upid, exit_text: str) -> None:
        task = self._followed.pop(upid, None)
        if task is None:
            return
        where = f"region {self._pve.region}: task {upid.type} {upid.target}"
        event = TaskEnded(upid, task.owner, exit_text, errors.classify_exit(exit_text, where=where))
        for future in self._waiting.pop(upid, ()):
            if not future.done():
                future.set_result(event)
        for listener in tuple(self._listeners):
            listener(event)
