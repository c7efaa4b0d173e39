"""
The storage of one API server: loads the log, compacts it, makes backups, and reports its state.

``/moxwell/storage`` shows the state; ``POST /moxwell/storage/backup``, ``/compact`` and
``/accept-losses`` act on it. The process that owns the database does all of this.
"""

import asyncio
import shutil
import sqlite3
from datetime import datetime
from pathlib import Path

import msgspec
import structlog

from moxwell import task_group
from moxwell.api import requests
from moxwell.clock import Clock
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.commits import Committer
from moxwell.embedded.apiserver.object_cache import ObjectCache, ObjectRecord, StoredChange
from moxwell.embedded.apiserver.revision_log import LoadedLog, RevisionLog
from moxwell.embedded.apiserver.storage import backup
from moxwell.embedded.apiserver.storage.backup import BackupFile
from moxwell.embedded.apiserver.storage.errors import DiskFull
from moxwell.embedded.apiserver.storage.rows import LogRow, name_of
from moxwell.embedded.apiserver.storage.settings import StorageSettings
from moxwell.embedded.apiserver.storage.status import PATH, DatabaseStatus, metrics_text
from moxwell.embedded.apiserver.storage.writer_thread import WriterThread
from moxwell.embedded.apiserver.watches import WatchCaches
from moxwell.errors import MoxwellError

log = structlog.get_logger(__name__)
TICK_SECONDS = 60.0


class StorageService:
    """Maintains one database file; without a log it only reports."""

    def __init__(
        self,
        revision_log: RevisionLog | None,
        settings: StorageSettings,
        cache: ObjectCache,
        committer: Committer,
        clock: Clock,
    ) -> None:
        self._log, self._settings, self._clock = revision_log, settings, clock
        self._cache, self._committer = cache, committer
        self._loaded = LoadedLog((), 0)
        self._backup_error = ""
        self._backup_lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    # Lifecycle

    def load(self, watch_caches: WatchCaches) -> None:
        """Fill the cache and the history from the log; damaged objects are named, not served."""
        if self._log is None:
            return
        loaded = self._log.load(backup.stamp_of(self._clock.now()))
        load_rows(loaded, self._cache, watch_caches)
        self._loaded = LoadedLog((), loaded.floor, lost=loaded.lost, rebuilt=loaded.rebuilt)
        if loaded.rebuilt:
            log.error("damaged database rebuilt", path=str(self._log.path), why=loaded.rebuilt)
        for name in self._cache.unreadable():
            log.error("stored object is damaged", object=str(name))

    def start(self) -> None:
        if self._log is not None:
            self._task = asyncio.create_task(self._run(), name="storage-maintenance")

    async def stop(self) -> None:
        if self._task is not None:
            await task_group.cancel(self._task)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(TICK_SECONDS)
            await self.tick()

    async def tick(self) -> None:
        """Compact old history, and make a backup if one is due."""
        now = self._clock.now()
        await self._committer.run_with_log(lambda found, _: found.compact_old(now.timestamp()))
        if self._is_backup_due(now):
            try:
                await self.make_backup()
            except (MoxwellError, OSError, sqlite3.Error) as error:
                log.warning("backup failed", error=str(error))

    # Backups

    def _is_backup_due(self, now: datetime) -> bool:
        if self._log is None:
            return False
        found = backup.list_backups(self._folder(self._log))
        return backup.is_due(
            found, revision=self._cache.revision, now=now, every=self._settings.backup_every
        )

    def _folder(self, found: RevisionLog) -> Path:
        return self._settings.backup_folder(found.path)

    async def make_backup(self) -> BackupFile | None:
        """Make a backup and delete expired ones; None without a database."""
        if self._log is None:
            return None
        async with self._backup_lock:
            try:
                made = await self._make_backup(self._folder(self._log), self._log)
            except (MoxwellError, OSError, sqlite3.Error) as error:
                self._backup_error = str(error)
                raise
        self._backup_error = ""
        log.info("backup made", path=str(made.path), revision=made.revision)
        return made

    async def _make_backup(self, folder: Path, found: RevisionLog) -> BackupFile:
        await asyncio.to_thread(_check_space, folder, found.usage.file_bytes)
        partial = backup.partial_path(folder)

        def copy(opened: RevisionLog, thread: WriterThread) -> None:
            opened.backup(partial, thread.run_waiting)

        await self._committer.run_with_log(copy)
        made = await asyncio.to_thread(backup.complete, partial, self._clock.now())
        await asyncio.to_thread(backup.delete_expired, folder, self._settings.retention)
        return made

    # State

    def status(self) -> DatabaseStatus:
        """The state of the database."""
        if self._log is None:
            return DatabaseStatus(revision=self._cache.revision)
        usage, folder = self._log.usage, self._folder(self._log)
        backups = backup.list_backups(folder)
        return DatabaseStatus(
            path=str(self._log.path),
            revision=self._cache.revision,
            compacted=usage.floor,
            used_bytes=usage.used_bytes,
            file_bytes=usage.file_bytes,
            quota_bytes=usage.quota_bytes,
            history_bytes=usage.history_bytes,
            alarms=("NOSPACE",) if usage.alarm else (),
            unreadable=tuple(str(n) for n in self._cache.unreadable()),
            lost=tuple(str(n) for n in self._loaded.lost),
            rebuilt=self._loaded.rebuilt,
            backup_folder=str(folder),
            backups=len(backups),
            last_backup=backups[-1].made.isoformat() if backups else "",
            backup_error=self._backup_error,
        )

    async def handle(self, request: requests.Request) -> requests.Response | None:
        """Answer requests for the storage and its metrics; None for other paths."""
        path = request.path.rstrip("/")
        if path == "/metrics" and request.method == "GET":
            text = metrics_text(self.status(), self._counts())
            return requests.Response(
                status=200, headers={"content-type": "text/plain; version=0.0.4"}, body=text
            )
        if path == PATH and request.method == "GET":
            return _answer(self.status())
        if not path.startswith(f"{PATH}/"):
            return None
        if request.method != "POST":
            raise status_errors.method_not_allowed()
        await self._act(path.removeprefix(f"{PATH}/"))
        return _answer(self.status())

    async def _act(self, action: str) -> None:
        try:
            match action:
                case "backup":
                    await self.make_backup()
                case "compact":
                    await self._committer.run_with_log(lambda found, _: found.compact_all())
                case "accept-losses":
                    await self._committer.run_with_log(lambda found, _: found.accept_losses())
                    self._cache.set_lost(())
                    self._loaded = LoadedLog((), self._loaded.floor)
                case _:
                    raise status_errors.path_not_found()
        except (DiskFull, OSError, sqlite3.Error) as error:
            raise status_errors.storage_failed(str(error)) from error

    def _counts(self) -> dict[str, int]:
        return {n: len(self._cache.table(n).keys) for n in self._cache.group_resources()}


def _check_space(folder: Path, file_bytes: int) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    needed = file_bytes + (file_bytes >> 3)
    if shutil.disk_usage(folder).free < needed:
        raise DiskFull(f"a backup needs {needed >> 20} MiB: free space in {folder}")


def _answer(status: DatabaseStatus) -> requests.Response:
    body = msgspec.json.encode(status) + b"\n"
    return requests.Response(status=200, headers={"content-type": "application/json"}, body=body)


def _decode(row: LogRow) -> ObjectRecord | None:
    try:
        return ObjectRecord(row.group_resource, row.revision, row.body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def load_rows(loaded: LoadedLog, cache: ObjectCache, watch_caches: WatchCaches) -> None:
    """Apply the rows to the cache and the watch caches; an undecodable body is a damaged object."""
    decoded = [(row, _decode(row)) for row in loaded.rows]
    floor = max([loaded.floor, *(row.revision for row, record in decoded if record is None)])
    damaged = {(n.group_resource, n.key): n for n in loaded.unreadable}
    last: dict[tuple[str, str], ObjectRecord] = {}
    watch_caches.start(floor)
    for row, record in decoded:
        place = (row.group_resource, row.key)
        if record is None:
            damaged[place] = name_of(row)
            continue
        if place in damaged and damaged[place].revision < row.revision:
            del damaged[place]
        change = StoredChange(record, last.get(place), deleted=row.deleted)
        cache.load(change)
        if row.revision > floor:
            watch_caches.watch_cache(row.group_resource).append(change)
        if row.deleted:
            last.pop(place, None)
        else:
            last[place] = record
    for name in damaged.values():
        cache.set_unreadable(name)
    cache.set_lost(loaded.lost)
    cache.continue_after(loaded.revision)
