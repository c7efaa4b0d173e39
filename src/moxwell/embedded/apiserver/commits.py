"""
Group commit: one writer thread makes staged changes durable, batch by batch.

Requests are answered and watches notified only after the transaction is on disk. When the disk is
full, the batch and everything staged after it are dropped and their writers get an error; memory
then equals the disk and reads continue. After a disk failure with unknown outcome all writes fail
until a restart.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from moxwell.embedded.apiserver import limits, status_errors
from moxwell.embedded.apiserver.object_cache import (
    ObjectCache,
    ObjectRecord,
    StoredChange,
    encode,
    key_of,
)
from moxwell.embedded.apiserver.revision_log import RevisionLog
from moxwell.embedded.apiserver.storage.errors import DiskFailed
from moxwell.embedded.apiserver.storage.writer_thread import WriterThread
from moxwell.errors import MoxwellError

Publish = Callable[[StoredChange], None]
T = TypeVar("T")
NO_SPACE = "etcdserver: mvcc: database space exceeded"  # as kube-apiserver reports etcd's alarm


class Committer:
    """
    Stages changes in an :class:`ObjectCache` and commits them; without a log they commit at once.
    """

    def __init__(self, cache: ObjectCache, log: RevisionLog | None, publish: Publish) -> None:
        self._cache, self._log, self._publish = cache, log, publish
        self._queue: list[StoredChange] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._in_flight: asyncio.Future[None] | None = None
        self._broken: MoxwellError | None = None
        self._thread = WriterThread("apiserver-commit") if log else None

    def put(
        self, group_resource: str, obj: dict[str, object], previous: ObjectRecord | None
    ) -> ObjectRecord:
        """Stage an object and set its resource version; refused above the quota."""
        if self._log is not None and self._log.usage.alarm:
            raise status_errors.unknown_error(NO_SPACE)
        record = self._set_revision(group_resource, obj)
        limits.check_stored_size(record.body)
        self._stage(StoredChange(record, previous, deleted=False))
        return record

    def drop(
        self, group_resource: str, obj: dict[str, object], previous: ObjectRecord
    ) -> ObjectRecord:
        """Stage a deletion; ``obj`` is the last state that watches get."""
        record = self._set_revision(group_resource, obj)
        self._stage(StoredChange(record, previous, deleted=True))
        return record

    def _set_revision(self, group_resource: str, obj: dict[str, object]) -> ObjectRecord:
        if self._broken is not None:
            raise status_errors.storage_failed(str(self._broken))
        revision = self._cache.head + 1
        meta = obj["metadata"]
        assert isinstance(meta, dict)
        key = key_of(meta.get("namespace") or "", meta["name"])
        if (damaged := self._cache.find_unreadable(group_resource, key)) and damaged.key == key:
            raise status_errors.unreadable(damaged)
        meta["resourceVersion"] = str(revision)
        head = {
            "kind": obj["kind"],
            "apiVersion": obj["apiVersion"],
        }  # list items omit them
        return ObjectRecord(group_resource, revision, encode(head | obj))

    def _stage(self, change: StoredChange) -> None:
        self._cache.stage(change)
        self._queue.append(change)
        if len(self._queue) == 1 and self._in_flight is None:
            asyncio.get_running_loop().call_soon(self._flush)

    async def wait_durable(self) -> None:
        """Wait until everything staged so far is durable."""
        if not self._queue and self._in_flight is None:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        if self._log is None:
            self._flush()
        await waiter

    def _flush(self) -> None:
        if self._in_flight is not None or not self._queue:
            return
        batch, self._queue = self._queue, []
        waiters, self._waiters = self._waiters, []
        if self._log is None or self._thread is None:
            self._publish_batch(batch, waiters)
            return
        rows = [change.row() for change in batch]
        self._in_flight = self._thread.submit(partial(self._log.commit, rows))
        self._in_flight.add_done_callback(lambda done: self._batch_done(done, batch, waiters))

    def _batch_done(
        self,
        done: asyncio.Future[None],
        batch: list[StoredChange],
        waiters: list[asyncio.Future[None]],
    ) -> None:
        self._in_flight = None
        error = done.exception()
        if error is None:
            self._publish_batch(batch, waiters)
        else:
            self._fail(error, waiters)
        if self._queue:
            self._flush()
        elif self._waiters:  # they arrived during the last batch and staged nothing
            waiters, self._waiters = self._waiters, []
            _release(waiters)

    def _publish_batch(
        self, batch: list[StoredChange], waiters: list[asyncio.Future[None]]
    ) -> None:
        for change in batch:
            self._cache.commit(change)
            self._publish(change)
        _release(waiters)

    def _fail(self, error: BaseException, waiters: list[asyncio.Future[None]]) -> None:
        if isinstance(error, DiskFailed):
            self._broken = error
        self._queue = []
        waiters, self._waiters = waiters + self._waiters, []
        self._cache.unstage()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(status_errors.storage_failed(str(error)))

    async def run_with_log(self, work: Callable[[RevisionLog, WriterThread], T]) -> T | None:
        """Run a job on the writer thread; without a log it does nothing."""
        if self._log is None or self._thread is None:
            return None
        return await self._thread.submit(partial(work, self._log, self._thread))

    async def close(self) -> None:
        """Wait for the batch in flight and close the log."""
        while self._in_flight is not None or self._queue:
            await asyncio.wait([asyncio.ensure_future(self.wait_durable())])
        if self._thread is not None:
            self._thread.close()
        if self._log is not None:
            self._log.close()


def _release(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
