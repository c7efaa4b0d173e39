"""
Worker tasks, and the lock files of guests and storages.

``Workers.spawn`` starts a coroutine with a :class:`WorkerContext`; a ``PveException`` raised in it
becomes the exit status of the task, and so does any other exception, which asyncio
reports. Workers are asyncio tasks and are not saved.

:class:`FileLocks` are granted in order of arrival; after ten seconds a waiter gets PVE's "got
timeout".
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from moxwell.clock import Clock
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.state import SimRegion, SimTask

CLUSTER_LOG_LINES = 200  # lines of the cluster log
FINISHED_TASKS = 2000  # finished tasks that a region keeps
LOCK_FILES = {
    "qemu": "/var/lock/qemu-server/lock-{}.conf",
    "lxc": "/run/lock/lxc/pve-config-{}.lock",
    "storage": "/var/lock/pve-manager/pve-storage-{}",
}


class FileLocks:
    """Lock files by name; not saved."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[tuple[str, str], asyncio.Lock] = {}
        self._wanted: dict[tuple[str, str], int] = {}  # number of holders and waiters

    @asynccontextmanager
    async def hold(self, kind: str, name: str | int, seconds: float = 10.0) -> AsyncIterator[None]:
        """Hold a lock file; kind is qemu, lxc or storage."""
        key = (kind, str(name))
        lock = self._held.setdefault(key, asyncio.Lock())
        self._wanted[key] = self._wanted.get(key, 0) + 1
        try:
            await self._acquire(lock, kind, str(name), seconds)
            try:
                yield
            finally:
                lock.release()
        finally:
            self._wanted[key] -= 1
            if not self._wanted[key]:
                del self._wanted[key], self._held[key]

    async def _acquire(self, lock: asyncio.Lock, kind: str, name: str, seconds: float) -> None:
        if not lock.locked():
            await lock.acquire()
            return
        waiting = asyncio.ensure_future(lock.acquire())
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({waiting, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            if not waiting.done():
                waiting.cancel()
        if waiting.cancelled() or not waiting.done():
            file = LOCK_FILES[kind].format(name)
            raise die(f"can't lock file '{file}' - got timeout")

    def is_held(self, kind: str, name: str | int) -> bool:
        lock = self._held.get((kind, str(name)))
        return lock is not None and lock.locked()


class WorkerContext:
    """The log and the clock of one worker."""

    def __init__(self, task: SimTask, clock: Clock) -> None:
        self.task, self._clock = task, clock

    @property
    def upid(self) -> str:
        return self.task.upid

    def log(self, text: str) -> None:
        self.task.log.extend(text.split("\n"))

    def warn(self, text: str) -> None:
        self.task.warnings += 1
        self.log(f"WARN: {text}")

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            await self._clock.sleep(seconds)


Worker = Callable[[WorkerContext], Awaitable[None]]


class Workers:
    """The running workers of one region."""

    def __init__(self, region: SimRegion, clock: Clock) -> None:
        self._region, self._clock = region, clock
        self._running: dict[str, asyncio.Task[None]] = {}
        self._on_end: list[Callable[[SimTask], None]] = []
        self.failure_of: Callable[[SimTask], str | None] = lambda task: None
        self.delay: Callable[[SimTask], float] = lambda task: 0.0

    def spawn(self, node: str, kind: str, ident: str | int, user: str, worker: Worker) -> str:
        """Start a worker and return its UPID."""
        task = self._record(node, kind, str(ident), user)
        running = asyncio.get_running_loop().create_task(self._run(task, worker), name=task.upid)
        self._running[task.upid] = running
        running.add_done_callback(lambda _: self._running.pop(task.upid, None))
        return task.upid

    def _record(self, node: str, kind: str, ident: str, user: str) -> SimTask:
        region, now = self._region, self._clock.now().timestamp()
        pid = region.next_number()
        pstart = int(now * 100) & 0xFFFFFFFF
        upid = f"UPID:{node}:{pid:08X}:{pstart:08X}:{int(now):08X}:{kind}:{ident}:{user}:"
        task = SimTask(upid, node, pid, pstart, int(now), kind, ident, user)
        region.tasks[upid] = task
        self._trim()
        self._log_to_cluster(task, f"starting task {upid}")
        return task

    def _log_to_cluster(self, task: SimTask, text: str) -> None:
        """Append a line to the cluster log."""
        log, number = self._region.cluster_log, self._region.next_number()
        row = {"uid": number, "id": f"{number}:{task.node}", "node": task.node, "pid": task.pid}
        row |= {"time": int(self._clock.now().timestamp()), "pri": 6, "tag": "pvedaemon"}
        log.append(row | {"user": task.user, "msg": text})
        del log[:-CLUSTER_LOG_LINES]

    def _trim(self) -> None:
        tasks = self._region.tasks
        if len(tasks) <= FINISHED_TASKS * 2:
            return
        ended = [upid for upid, task in tasks.items() if not task.running]
        for upid in ended[:-FINISHED_TASKS]:
            del tasks[upid]

    async def _run(self, task: SimTask, worker: Worker) -> None:
        ctx = WorkerContext(task, self._clock)
        try:
            await ctx.sleep(self.delay(task))
            text = self.failure_of(task)
            if text is not None:
                raise die(text)
            await worker(ctx)
        except PveException as problem:
            self._end(task, problem.in_task)
        except asyncio.CancelledError as cut:
            self._end(task, str(cut) or "received interrupt")
        else:
            self._end(task, None)
        finally:  # any other exception, of the worker or of its guest, is asyncio's to report
            if task.running:
                self._end(task, str(sys.exception()) or "worker failed")

    def _end(self, task: SimTask, problem: str | None) -> None:
        if problem is not None:
            task.exitstatus = problem.strip().replace("\n", " ")
            task.log.append(f"TASK ERROR: {task.exitstatus}")
        elif task.warnings:
            task.exitstatus = f"WARNINGS: {task.warnings}"
            task.log.append(f"TASK WARNINGS: {task.warnings}")
        else:
            task.exitstatus = "OK"
            task.log.append("TASK OK")
        task.endtime = int(self._clock.now().timestamp())
        self._log_to_cluster(task, f"end task {task.upid} {task.exitstatus}")
        for callback in self._on_end:
            callback(task)

    def on_end(self, callback: Callable[[SimTask], None]) -> None:
        self._on_end.append(callback)

    def stop(self, upid: str, exit_status: str = "") -> None:
        """Stop a worker, as DELETE of its task does, with this exit status."""
        running = self._running.get(upid)
        if running is not None:
            running.cancel(exit_status or None)

    async def wait(self, upid: str, seconds: float | None = None) -> SimTask:
        """Wait until a worker ends, or for some seconds."""
        running = self._running.get(upid)
        if running is not None:
            timer = None if seconds is None else asyncio.ensure_future(self._clock.sleep(seconds))
            await asyncio.wait(
                {running} | ({timer} if timer else set()), return_when=asyncio.FIRST_COMPLETED
            )
            if timer:
                timer.cancel()
        return self._region.tasks[upid]

    def active(self) -> list[SimTask]:
        return [self._region.tasks[upid] for upid in self._running if upid in self._region.tasks]

    async def close(self) -> None:
        running = list(self._running.values())
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
