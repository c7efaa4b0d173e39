"""
Decisions of all tenants in few processes of their own.

Each tenant has at most one decision under way, and those that wait get a process in the order in
which they asked, so that every tenant has its turn. A decision that takes too long is ended with
its process; a new one is started for the next decision.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog

from moxwell.app.decision_worker import HEADER, MOST_BYTES, decoded, encoded
from moxwell.controllers.karpenter.decisions import DecisionTimeout
from moxwell.errors import Busy
from moxwell.runtime.key import Key

T = TypeVar("T")
TIMEOUT_SECONDS = 60.0  # Karpenter's own limit of a scheduling pass
PODS_IN_LOOP = 20  # a decision about fewer pods costs less than sending it
log = structlog.get_logger(__name__)


class DecisionAborted(Busy):
    """The process of a decision ended before it answered."""

    reason = "DecisionAborted"


class _Worker:
    """One process; the caller makes sure that it has one decision at a time."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None

    async def ask(self, data: bytes) -> bytes:
        child = await self._running()
        if child.stdin is None or child.stdout is None:
            raise DecisionAborted("the process of decisions has no pipes")
        try:
            child.stdin.write(HEADER.pack(len(data)) + data)
            await child.stdin.drain()
            (length,) = HEADER.unpack(await child.stdout.readexactly(HEADER.size))
            if length > MOST_BYTES:
                raise DecisionAborted(f"the answer of a decision has {length} bytes")
            return await child.stdout.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise DecisionAborted("the process of decisions ended; it is restarted") from error

    async def _running(self) -> asyncio.subprocess.Process:
        if self._child is None or self._child.returncode is not None:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "moxwell.app.decision_worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        return self._child

    async def stop(self) -> None:
        """End the process at once."""
        child, self._child = self._child, None
        if child is None or child.returncode is not None:
            return
        child.kill()
        await child.wait()


class DecisionWorkers:
    """The processes; they start when they are needed. One object per daemon."""

    def __init__(self, count: int = 0, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """``count`` 0: one less than the machine has processors, at least one."""
        number = count or max(1, (os.cpu_count() or 1) - 1)
        self._timeout = timeout_seconds
        self._idle: asyncio.Queue[_Worker] = asyncio.Queue()
        self._all = [_Worker() for _ in range(number)]
        for each in self._all:
            self._idle.put_nowait(each)

    def of(self, tenant: Key) -> "TenantDecisions":
        """The share of one tenant: one decision at a time."""
        return TenantDecisions(self, str(tenant), self._timeout)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[_Worker]:
        """A process that is free; waits for its turn."""
        found = await self._idle.get()
        try:
            yield found
        finally:
            self._idle.put_nowait(found)

    async def stop(self) -> None:
        """End all processes."""
        for each in self._all:
            await each.stop()


class TenantDecisions:
    """Computes the decisions of one tenant in the shared processes."""

    def __init__(self, workers: DecisionWorkers, tenant: str, timeout_seconds: float) -> None:
        self._workers, self._tenant, self._timeout = workers, tenant, timeout_seconds
        self._own = asyncio.Lock()

    async def run(self, decide: Callable[[], T], size: int) -> T:
        """Raise DecisionTimeout if it takes longer than the timeout."""
        if size <= PODS_IN_LOOP:
            return decide()
        async with self._own, self._workers.worker() as worker:
            data, reply = await asyncio.to_thread(encoded, decide), None
            try:
                async with asyncio.timeout(self._timeout):
                    reply = await worker.ask(data)
            except TimeoutError:
                log.warning("decision ended", cluster=self._tenant, pods=size)
                raise DecisionTimeout(
                    f"a decision about {size} pods took longer than {self._timeout:.0f} seconds"
                ) from None
            finally:
                if reply is None:
                    await worker.stop()  # its pipe may hold half an answer
        found: T = await asyncio.to_thread(_result, reply)
        return found


def _result(reply: bytes) -> Any:
    succeeded, value = decoded(reply)
    if not succeeded:
        raise value
    return value
