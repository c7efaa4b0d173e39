"""
The thread that uses the database connection: it runs one job at a time, in order.

A long job (a backup) calls :meth:`WriterThread.run_waiting` between its steps, so that commits do
not wait for its end.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from moxwell.errors import MoxwellError

T = TypeVar("T")


class _Job(Generic[T]):
    """A job, which runs once: in its turn, or earlier between the steps of a long job."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._early: Future[T] | None = None

    def run(self) -> T:
        return self._work() if self._early is None else self._early.result()

    def run_early(self) -> None:
        done: Future[T] = Future()
        try:
            done.set_result(self._work())
        except MoxwellError as error:
            done.set_exception(error)
        self._early = done


class WriterThread:
    """Runs submitted jobs until it is closed."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: deque[_Job[Any]] = deque()

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue a job; the running loop gets its result or exception."""
        job = _Job(work)
        self._waiting.append(job)
        return asyncio.get_running_loop().run_in_executor(self._thread, self._run, job)

    def _run(self, job: _Job[T]) -> T:
        if self._waiting and self._waiting[0] is job:
            self._waiting.popleft()
        return job.run()

    def run_waiting(self) -> None:
        """Run the jobs that wait now; only a job calls this."""
        while self._waiting:
            self._waiting.popleft().run_early()

    def close(self) -> None:
        """Run all queued jobs and end the thread."""
        self._thread.shutdown(wait=True)
