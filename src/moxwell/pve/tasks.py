"""
One poller for all running tasks of a region: an ended task becomes an event for its owner.

In: task ids with the key of whoever waits. Out: ``Ended`` events. One request per round tells about
all tasks, however many are followed; with nothing to follow it sends nothing. The surprise: the
cluster-wide list only holds each host's latest tasks, so one that fell out of it is asked for
singly, and several of one host in one list of that host. A token without Sys.Audit on ``/`` is
shown nothing there, not even its own tasks: its hosts are asked at once, and the list only now and
then. And an exit text is a hint, never the truth about the guest.
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
QUICK_ROUNDS = 20  # a task older than that is a long one
MANY = 1000  # tasks in one list of a host
BLIND_ROUNDS = 120  # without the common list, after it was empty though tasks run
SINGLES = 8  # tasks asked for one by one in a round, at most


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task ended; ``error`` is what its exit text means, None if it went well."""

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
    """The tasks of one region that somebody waits for."""

    def __init__(self, pve: PveReader, clock: Clock) -> None:
        self._pve = pve
        self._clock = clock
        self._followed: dict[Upid, _Followed] = {}
        self._listeners: list[Listener] = []
        self._waiting: dict[Upid, list[asyncio.Future[TaskEnded]]] = {}
        self._wake = asyncio.Event()
        self._blind = 0  # rounds for which the common list is not asked for

    @property
    def running(self) -> tuple[Upid, ...]:
        """Tasks that are followed and not known to have ended."""
        return tuple(self._followed)

    def of(self, owner: Hashable) -> tuple[Upid, ...]:
        """The running tasks of one owner."""
        return tuple(upid for upid, task in self._followed.items() if task.owner == owner)

    def follow(self, upid: Upid, owner: Hashable) -> None:
        """Tell listeners when this task ends; its owner is named in the event."""
        self._followed.setdefault(upid, _Followed(owner))
        self._wake.set()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Be told of ended tasks; answers the way to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait_ended(self, upid: Upid) -> TaskEnded:
        """Until a task ended; for callers that must answer somebody (never for a controller)."""
        future: asyncio.Future[TaskEnded] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(upid, []).append(future)
        self.follow(upid, upid)
        return await future

    async def run(self) -> None:
        """Poll for as long as it runs; sleeps while there is nothing to wait for."""
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
        """One round: one request, and a few more for tasks that the list does not show."""
        if not self._followed:
            return
        try:
            listed = await self._listed()
        except MoxwellError:
            return  # the region's health is the inventory's affair; try again next round
        fallen: dict[str, list[Upid]] = {}
        for upid, task in list(self._followed.items()):
            task.rounds += 1
            row = listed.get(upid)
            if row is None:
                task.unlisted += 1
                # A host tells its peers of a new task a moment late: wait one round.
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
        """The common list; an empty one says that we may not see it, since tasks are followed."""
        if self._blind:
            self._blind -= 1
        if self._blind:
            return {}
        listed = {row.upid: row for row in await self._pve.cluster.tasks()}
        self._blind = 0 if listed else BLIND_ROUNDS
        return listed

    async def _ask_host(self, host: str, upids: list[Upid]) -> list[Upid]:
        """One list of a host for many tasks that fell out of the common one; answers the rest."""
        since = min(upid.started for upid in upids)
        try:
            rows = await self._pve.tasks.list(host, source="all", since=since, limit=MANY)
        except MoxwellError:
            return []  # the host is down; its tasks are asked for again next round
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
