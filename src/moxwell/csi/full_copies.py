"""
Full copies of disks: for snapshots, clones and moves.

In: a source and a target. Out: whether the copy is complete. Proxmox copies in a task, and while it
runs the target already exists; so a copy is written in the book before it starts and struck out
when its task ended well. Whatever has an entry is not complete; after a crash the task decides, and
a target whose task is unknown or failed is removed and made anew. The surprise: Proxmox allows
copying to root@pam alone, by ticket; a token cannot, whatever its rights.
"""

import asyncio
from dataclasses import dataclass

from moxwell.csi import active_tasks
from moxwell.csi.disks import Disk, Stock, host_of
from moxwell.csi.errors import UnderWay
from moxwell.csi.ids import VolumeId
from moxwell.csi.journal import Book
from moxwell.errors import Denied, Missing, MoxwellError
from moxwell.pve import errors
from moxwell.pve.regions import Region, Regions
from moxwell.pve.values import Upid

KEY = "copy:"


class NeedsRoot(Denied):
    """Only root@pam may copy disks."""

    reason = "NeedsRoot"


@dataclass(frozen=True, slots=True)
class Copy:
    """What is to be copied, and to where."""

    source: VolumeId
    target: VolumeId


class Copies:
    """The copies under way in this process, and what the book says of others."""

    def __init__(self, regions: Regions, stock: Stock, book: Book) -> None:
        self._regions, self._stock, self._book = regions, stock, book
        self._running: dict[VolumeId, asyncio.Task[Disk]] = {}

    async def is_open(self, target: VolumeId) -> bool:
        """Is the target still being copied, or left over from a copy that was?"""
        return target in self._running or bool(await self._book.get(KEY + str(target)))

    async def make(self, copy: Copy) -> Disk:
        """Copy, or wait for the copy that is being made; a caller may go away meanwhile."""
        task = self._running.get(copy.target)
        if task is None:
            task = asyncio.create_task(self._make(copy))
            self._running[copy.target] = task
            task.add_done_callback(lambda done: self._ended(copy.target, done))
        return await asyncio.shield(task)

    def _ended(self, target: VolumeId, task: "asyncio.Task[Disk]") -> None:
        self._running.pop(target, None)
        if not task.cancelled():
            task.exception()  # told to whoever waits; nobody may

    async def _make(self, copy: Copy) -> Disk:
        region, key = self._regions[copy.target.region], KEY + str(copy.target)
        entry = await self._book.get(key)
        if entry and await self._resumed(region, copy, entry):
            return await self._complete(region, copy)
        await self._book.put(key, {"source": str(copy.source)})
        try:
            upid = await self._start(region, copy)
        except (errors.Uncertain, errors.Overloaded):
            raise
        except MoxwellError:
            await self._book.drop(key)
            raise
        await self._book.put(key, {"source": str(copy.source), "upid": upid})
        ended = await region.tasks.wait_ended(upid)
        if ended.error is not None:
            await self._abandon(region, copy.target)
            raise ended.error
        return await self._complete(region, copy)

    async def _start(self, region: Region, copy: Copy) -> Upid:
        host = host_of(region, copy.source)
        there = copy.target.host if copy.target.host not in ("", host) else None
        try:
            return await region.pve.storage.copy(
                host,
                copy.source.storage,
                copy.source.volid,
                copy.target.volid,
                target_host=there,
            )
        except errors.Forbidden as error:
            raise NeedsRoot(
                "copying disks (snapshots, clones, moves) is allowed by Proxmox to root@pam with "
                f"a password only; give region {region.name} such credentials"
            ) from error

    async def _resumed(self, region: Region, copy: Copy, entry: dict[str, str]) -> bool:
        """A copy from before a restart: True if its task ended well, else its rest is removed."""
        upid = entry.get("upid")
        if upid is None:
            await self._refuse_while_busy(region, copy)
        else:
            try:
                status = await region.pve.tasks.status(Upid(upid))
            except Missing:
                status = None
            if status is not None and status.running:
                ended = await region.tasks.wait_ended(Upid(upid))
                if ended.ok:
                    return True
            elif status is not None and errors.explain_exit(status.exitstatus or "") is None:
                return True
        await self._abandon(region, copy.target)
        return False

    async def _refuse_while_busy(self, region: Region, copy: Copy) -> None:
        """Nobody knows the task: as long as any copy runs there, it may be ours."""
        host = host_of(region, copy.source)
        if any(row.type == "imgcopy" for row in await active_tasks.running(region, host)):
            raise UnderWay(f"a copy runs on {host} that may be the one to {copy.target}")

    async def _abandon(self, region: Region, target: VolumeId) -> None:
        await self._stock.remove(region, target)
        await self._book.drop(KEY + str(target))

    async def _complete(self, region: Region, copy: Copy) -> Disk:
        disk = await self._stock.look(region, copy.target)
        self._stock.learn(disk)
        await self._book.drop(KEY + str(copy.target))
        return disk
