"""
Full copies of disks with the storage API, which Proxmox allows to root@pam with a ticket only.

Proxmox copies in a task, and the target exists while the task runs. So a copy is in the journal
before it starts, and its entry is deleted when the task has succeeded: a target with an entry is
incomplete. After a restart the task decides; a target whose task failed or is unknown is deleted
and copied again.
"""

import asyncio
from dataclasses import dataclass

from moxwell.csi import active_tasks, steps
from moxwell.csi.disks import DiskInfo, DiskStore, host_of
from moxwell.csi.errors import OperationPending
from moxwell.csi.ids import VolumeId
from moxwell.csi.journal import VolumeJournal
from moxwell.errors import Bug, Denied, Missing, MoxwellError
from moxwell.pve import errors
from moxwell.pve.regions import Region, Regions
from moxwell.pve.values import Upid

KEY = "copy:"


class RootRequired(Denied):
    """Only root@pam can copy disks with the storage API."""

    reason = "RootRequired"


@dataclass(frozen=True, slots=True)
class DiskCopy:
    """The source and target of a copy."""

    source: VolumeId
    target: VolumeId


class CopyJobs:
    """The copies in progress in this process, and those of earlier processes in the journal."""

    def __init__(self, regions: Regions, disks: DiskStore, journal: VolumeJournal) -> None:
        self._regions, self._disks, self._journal = regions, disks, journal
        self._running: dict[VolumeId, asyncio.Task[DiskInfo]] = {}

    async def is_incomplete(self, target: VolumeId) -> bool:
        """Return whether a copy to the target is in progress or was interrupted."""
        return target in self._running or bool(await self._journal.get(KEY + str(target)))

    async def run(self, copy: DiskCopy) -> DiskInfo:
        """Copy a disk, or wait for the copy in progress; continues if the caller is cancelled."""
        task = self._running.get(copy.target)
        if task is None:
            task = asyncio.create_task(self._copy(copy))
            self._running[copy.target] = task
            task.add_done_callback(lambda done: self._ended(copy.target, done))
        return await asyncio.shield(task)

    def cancel_all(self) -> None:
        """Stop following the copies, as the end of the process does; the journal resumes them."""
        for task in tuple(self._running.values()):
            task.cancel()

    def _ended(self, target: VolumeId, task: "asyncio.Task[DiskInfo]") -> None:
        self._running.pop(target, None)
        if not task.cancelled():
            task.exception()  # mark as retrieved: every waiter may have been cancelled

    async def _copy(self, copy: DiskCopy) -> DiskInfo:
        region, key = self._regions[copy.target.region], KEY + str(copy.target)
        entry = await self._journal.get(key)
        if entry and await self._resume(region, copy, entry):
            return await self._complete(region, copy)
        await self._journal.put(key, {"source": str(copy.source)})
        try:
            upid = await self._start(region, copy)
        except (errors.OutcomeUnknown, errors.Overloaded):
            raise
        except MoxwellError:
            await self._journal.delete(key)
            raise
        await self._journal.put(key, {"source": str(copy.source), "upid": upid})
        ended = await region.tasks.wait_ended(upid)
        if ended.error is not None:
            await self._abandon(region, copy.target)
            raise ended.error
        return await self._complete(region, copy)

    async def _start(self, region: Region, copy: DiskCopy) -> Upid:
        step = steps.CopyDisk(
            volume=copy.target,
            host=host_of(region, copy.source),
            vmid_in_name=self._disks.owner,
            source=copy.source,
        )
        try:
            upid = await region.perform(step, steps.OWNER)
        except errors.PermissionDenied as error:
            raise RootRequired(
                "Proxmox allows the copy of disks (snapshotMode: root) only to root@pam with a "
                f"password; configure such credentials for region {region.name}"
            ) from error
        if upid is None:
            raise Bug("Proxmox started no task for a copy")
        return upid

    async def _resume(self, region: Region, copy: DiskCopy, entry: dict[str, str]) -> bool:
        """Return whether a copy of an earlier process succeeded; otherwise delete its target."""
        upid = entry.get("upid")
        if upid is None:
            await self._refuse_while_copying(region, copy)
        else:
            try:
                status = await region.reader.tasks.status(Upid(upid))
            except Missing:
                status = None
            if status is not None and status.running:
                ended = await region.tasks.wait_ended(Upid(upid))
                if ended.ok:
                    return True
            elif status is not None and errors.classify_exit(status.exitstatus or "") is None:
                return True
        await self._abandon(region, copy.target)
        return False

    async def _refuse_while_copying(self, region: Region, copy: DiskCopy) -> None:
        """Raise while any copy runs on the host: without a UPID it may be this one."""
        host = host_of(region, copy.source)
        if any(row.type == "imgcopy" for row in await active_tasks.running(region, host)):
            raise OperationPending(f"a copy is running on {host} that may be that to {copy.target}")

    async def _abandon(self, region: Region, target: VolumeId) -> None:
        await self._disks.delete(region, target)
        await self._journal.delete(KEY + str(target))

    async def _complete(self, region: Region, copy: DiskCopy) -> DiskInfo:
        disk = await self._disks.read(region, copy.target)
        self._disks.add(disk)
        await self._journal.delete(KEY + str(copy.target))
        return disk
