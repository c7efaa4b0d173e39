"""
One queue per guest: merges concurrent requests about its disks into one configuration write.

A write carries the digest of the configuration that was read, and Proxmox waits for the result
(``background_delay``). Then the live configuration is read, and changes that stayed pending are
reverted. A caller whose deadline passes does not interrupt a write; its next call finds the result.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from moxwell.clock import Clock
from moxwell.csi import steps
from moxwell.csi.attach_plan import AttachPlan, DetachRequest, DiskRequest, is_applied, make_plan
from moxwell.errors import Bug, Conflict, Missing, MoxwellError, Unreachable
from moxwell.pve import errors
from moxwell.pve.audit import acting
from moxwell.pve.guests import GuestConfig
from moxwell.pve.regions import Region

BATCH_SECONDS = 0.03
MAX_ATTEMPTS = 6
RETRY_SECONDS = 1.0

log = structlog.get_logger(__name__)


class NodeNotFound(Missing):
    """The guest of the node does not exist."""

    reason = "NodeNotFound"


@dataclass(frozen=True, slots=True)
class AttachedDisk:
    """The slot and drive of a volume in the running guest; both empty after a detach."""

    slot: str = ""
    drive: str = ""
    uuid: str = ""


@dataclass(slots=True, eq=False)
class _QueuedRequest:
    request: DiskRequest
    future: "asyncio.Future[AttachedDisk]"

    def resolve(self, disk: AttachedDisk) -> None:
        if not self.future.done():
            self.future.set_result(disk)

    def reject(self, error: MoxwellError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class GuestQueue:
    """The requests about the disks of one guest."""

    def __init__(self, region: Region, vmid: int, clock: Clock) -> None:
        self._region, self._vmid, self._clock = region, vmid, clock
        self._waiting: list[_QueuedRequest] = []
        self._runner: asyncio.Task[None] | None = None
        self._config: GuestConfig | None = None

    def changed(self) -> None:
        """Read the configuration again before the next write: its digest is not current."""
        self._config = None

    async def submit(self, request: DiskRequest) -> AttachedDisk:
        """Wait until the request is applied to the running guest; raises if it fails."""
        queued = _QueuedRequest(request, asyncio.get_running_loop().create_future())
        self._waiting.append(queued)
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        return await asyncio.shield(queued.future)

    async def _run(self) -> None:
        batch: list[_QueuedRequest] = []
        try:
            while self._waiting:
                await self._clock.sleep(BATCH_SECONDS)
                batch, self._waiting = self._waiting, []
                await self._process(batch)
        finally:
            self._runner = None
            for queued in [*batch, *self._waiting]:
                queued.reject(Bug("the queue of the guest ended early"))
                queued.future.exception() if queued.future.done() else None

    async def _process(self, batch: Sequence[_QueuedRequest]) -> None:
        volumes = ", ".join(queued.request.volid for queued in batch)
        try:
            with acting("csi.attach-queue", volumes):
                await self._apply_with_retry(batch)
        except MoxwellError as error:
            if len(batch) == 1 or isinstance(error, (NodeNotFound, Unreachable)):
                for queued in batch:
                    queued.reject(error)
                return
            log.info("batch failed", vmid=self._vmid, requests=len(batch), error=str(error))
            for queued in batch:
                if not queued.future.done():
                    await self._process([queued])

    async def _apply_with_retry(self, batch: Sequence[_QueuedRequest]) -> None:
        """Retry while another client changes, locks or migrates the guest."""
        last: MoxwellError = Bug("no attempt was made")
        for attempt in range(MAX_ATTEMPTS):
            unresolved = [queued for queued in batch if not queued.future.done()]
            if not unresolved:
                return
            if attempt:
                self._config = None
                await self._clock.sleep(RETRY_SECONDS * (attempt - 1))
            try:
                await self._apply(unresolved)
                return
            except (errors.ConfigChanged, errors.OutcomeUnknown, errors.Locked) as error:
                last = error
            except errors.GuestMissing as error:
                last = error
                await self._locate_guest()
        raise last

    async def _locate_guest(self) -> None:
        """Find the new host of the guest; raises NodeNotFound if it was deleted."""
        if await self._region.inventory.is_gone(self._vmid):
            self._region.inventory.learn_destroyed(self._vmid)
            raise NodeNotFound(f"guest {self._vmid} does not exist in region {self._region.name}")
        await self._region.inventory.refresh()

    def _host(self) -> str:
        guest = self._region.inventory.find(self._vmid)
        if guest is None:
            raise errors.GuestMissing(f"guest {self._vmid} is not in the inventory")
        return guest.host

    async def _read(self) -> GuestConfig:
        if self._config is None:
            self._config = await self._region.reader.qemu.config(self._host(), self._vmid)
        return self._config

    async def _apply(self, batch: Sequence[_QueuedRequest]) -> None:
        config = await self._read()
        requests = [queued.request for queued in batch]
        plan = make_plan(config, requests)
        for index, rejection in plan.rejections.items():
            batch[index].reject(rejection)
        if not plan.slots:
            return
        failure = await self._write(plan, config.digest) if plan.writes else None
        live = await self._region.reader.qemu.config(self._host(), self._vmid, current=True)
        self._config = GuestConfig({**config.raw, **live.raw}) if not plan.deletes else live
        pending = [i for i, slot in plan.slots.items() if not is_applied(requests[i], slot, live)]
        if pending:
            await self._reject_pending(batch, plan, pending, failure)
        for index, slot in plan.slots.items():
            if index not in pending:
                detached = isinstance(requests[index], DetachRequest)
                drive = "" if detached else live.get(slot)
                batch[index].resolve(AttachedDisk(slot, drive, live.uuid))

    async def _write(self, plan: AttachPlan, digest: str) -> MoxwellError | None:
        """Write the configuration; other errors are returned, as the change may have happened."""
        step = steps.UpdateDisks(
            region_name=self._region.name,
            host=self._host(),
            guest=self._vmid,
            changes=plan.changes,
            delete=plan.deletes,
            digest=digest,
        )
        try:
            upid = await self._region.perform(step, steps.OWNER)
        except (errors.ConfigChanged, errors.GuestMissing, errors.Locked):
            raise
        except errors.PveError as error:
            return error
        if upid is None:
            return None
        return (await self._region.tasks.wait_ended(upid)).error

    async def _reject_pending(
        self,
        batch: Sequence[_QueuedRequest],
        plan: AttachPlan,
        pending: Sequence[int],
        failure: MoxwellError | None,
    ) -> None:
        """Revert pending changes and reject their requests; a failed batch is retried singly."""
        await self._revert(plan)
        self._config = None
        if isinstance(failure, errors.OutcomeUnknown | Conflict) and not isinstance(
            failure, errors.HotplugRefused
        ):
            raise failure
        if failure is not None and len(batch) > 1:
            raise failure
        for index in pending:
            batch[index].reject(failure or _hotplug_refused(self._vmid, plan.slots[index]))

    async def _revert(self, plan: AttachPlan) -> None:
        rows = await self._region.reader.qemu.pending(self._host(), self._vmid)
        planned = {*plan.slots.values()} - {""}
        pending = tuple(sorted(row.key for row in rows if row.is_pending and row.key in planned))
        if pending:
            log.info("pending changes reverted", vmid=self._vmid, slots=pending)
            step = steps.RevertDisks(
                region_name=self._region.name,
                host=self._host(),
                guest=self._vmid,
                slots=pending,
            )
            await self._region.perform(step, steps.OWNER)


def _hotplug_refused(vmid: int, slot: str) -> MoxwellError:
    return errors.HotplugRefused(
        f"guest {vmid} did not apply the change of {slot} while running; it was reverted. "
        "Does its hotplug option include disk, and is its SCSI controller virtio-scsi?"
    )


class GuestQueues:
    """The queues by region and VMID, created on demand."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[tuple[str, int], GuestQueue] = {}

    def changed(self, region: Region, vmid: int) -> None:
        """Note that another path changed the configuration of a guest."""
        queue = self._queues.get((region.key, vmid))
        if queue is not None:
            queue.changed()

    async def submit(self, region: Region, vmid: int, request: DiskRequest) -> AttachedDisk:
        key = (region.key, vmid)  # regions of two owners may have the same name
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = GuestQueue(region, vmid, self._clock)
        return await queue.submit(request)
