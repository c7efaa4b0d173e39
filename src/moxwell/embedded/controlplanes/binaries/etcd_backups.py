"""
Makes scheduled snapshots of the shared etcd, with the names and the retention of other backups.

A snapshot holds the data of all tenants of the instance; ``etcdutl snapshot restore`` reads it.
"""

import asyncio
from datetime import timedelta
from pathlib import Path

import structlog

from moxwell.clock import Clock
from moxwell.embedded.apiserver.storage import backup
from moxwell.embedded.apiserver.storage.backup import BackupFile
from moxwell.embedded.apiserver.storage.settings import Retention
from moxwell.embedded.controlplanes.binaries.etcd import SharedEtcd
from moxwell.errors import MoxwellError

log = structlog.get_logger(__name__)
CHECK_SECONDS = 60.0
EVERY = timedelta(hours=6)


class EtcdBackups:
    """Makes snapshots while etcd runs."""

    def __init__(self, etcd: SharedEtcd, clock: Clock) -> None:
        self._etcd, self._clock = etcd, clock

    @property
    def folder(self) -> Path:
        return self._etcd.folder / "backups"

    async def run(self) -> None:
        """Make a snapshot when one is due, until cancelled."""
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            if not self._etcd.is_running or not self._is_due():
                continue
            try:
                made = await self.make()
            except (MoxwellError, OSError) as error:
                log.warning("etcd snapshot failed", error=str(error))
            else:
                log.info("etcd snapshot made", path=str(made.path), revision=made.revision)

    def _is_due(self) -> bool:
        found = backup.list_backups(self.folder)
        return backup.is_due(found, revision=-1, now=self._clock.now(), every=EVERY)

    async def make(self) -> BackupFile:
        """Make a verified snapshot and delete expired ones."""
        await asyncio.to_thread(self.folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        partial, now = backup.partial_path(self.folder), self._clock.now()
        async with self._etcd.connect() as client:
            revision = await client.revision()  # the snapshot has at least this one
            await client.snapshot(partial)
        path = self.folder / f"{backup.stamp_of(now)}-r{revision}.db"
        await asyncio.to_thread(partial.replace, path)
        await asyncio.to_thread(backup.delete_expired, self.folder, Retention())
        return BackupFile(path, now, revision)
