"""
One queue per guest: wishes about its disks that arrive together become one configuration write.

In: wishes to attach, detach and adjust. Out, for each: the slot and the drive as they are in the
running guest, or the reason why not. A write carries the digest of what was read and lets Proxmox
itself wait for the outcome (``background_delay``); then the live configuration is read, and what
stayed pending is taken back. The surprise: a caller that goes away (its deadline passed) does not
stop a write half way; the queue works on and the next call finds the result.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from moxwell.clock import Clock
from moxwell.csi.attach_plan import Detach, Plan, Wish, is_live, make_plan
from moxwell.errors import Bug, Conflict, Missing, MoxwellError, Unreachable
from moxwell.pve import errors
from moxwell.pve.guests import GuestConfig
from moxwell.pve.regions import Region

GATHER_SECONDS = 0.03
SERVER_WAITS_SECONDS = 30
TRIES = 6
PAUSE_SECONDS = 1.0

log = structlog.get_logger(__name__)


class NodeGone(Missing):
    """There is no such guest (any more)."""

    reason = "NodeGone"


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a volume sits, and the drive as the running guest has it; both empty: nowhere."""

    slot: str = ""
    drive: str = ""
    uuid: str = ""


@dataclass(slots=True, eq=False)
class _Asked:
    wish: Wish
    answer: "asyncio.Future[Seat]"

    def settle(self, seat: Seat) -> None:
        if not self.answer.done():
            self.answer.set_result(seat)

    def refuse(self, error: MoxwellError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class GuestQueue:
    """The wishes about one guest."""

    def __init__(self, region: Region, vmid: int, clock: Clock) -> None:
        self._region, self._vmid, self._clock = region, vmid, clock
        self._waiting: list[_Asked] = []
        self._runner: asyncio.Task[None] | None = None
        self._config: GuestConfig | None = None

    @property
    def idle(self) -> bool:
        return self._runner is None

    async def ask(self, wish: Wish) -> Seat:
        """The wish come true in the running guest, or the error that prevented it."""
        asked = _Asked(wish, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        return await asyncio.shield(asked.answer)

    async def _run(self) -> None:
        batch: list[_Asked] = []
        try:
            while self._waiting:
                await self._clock.sleep(GATHER_SECONDS)
                batch, self._waiting = self._waiting, []
                await self._serve(batch)
        finally:
            self._runner = None
            for left in [*batch, *self._waiting]:
                left.refuse(Bug("the queue of the guest ended early"))
                left.answer.exception() if left.answer.done() else None

    async def _serve(self, batch: Sequence[_Asked]) -> None:
        try:
            await self._try(batch)
        except MoxwellError as error:
            if len(batch) == 1 or isinstance(error, (NodeGone, Unreachable)):
                for asked in batch:
                    asked.refuse(error)
                return
            log.info("wishes served one by one", vmid=self._vmid, error=str(error))
            for asked in batch:
                if not asked.answer.done():
                    await self._serve([asked])

    async def _try(self, batch: Sequence[_Asked]) -> None:
        """Until the world agrees: somebody else may write in between, or move the guest."""
        last: MoxwellError = Bug("nothing was tried")
        for attempt in range(TRIES):
            open_ = [asked for asked in batch if not asked.answer.done()]
            if not open_:
                return
            if attempt:
                self._config = None
                await self._clock.sleep(PAUSE_SECONDS * (attempt - 1))
            try:
                await self._once(open_)
                return
            except (errors.ConfigChanged, errors.Uncertain, errors.Locked) as error:
                last = error
            except errors.GuestMissing as error:
                last = error
                await self._look_around()
        raise last

    async def _look_around(self) -> None:
        """The guest is not where we thought: find out where, or that it is gone."""
        if await self._region.inventory.is_gone(self._vmid):
            self._region.inventory.learn_gone(self._vmid)
            raise NodeGone(f"there is no guest {self._vmid} in region {self._region.name}")
        await self._region.inventory.refresh()

    def _host(self) -> str:
        guest = self._region.inventory.find(self._vmid)
        if guest is None:
            raise errors.GuestMissing(f"guest {self._vmid} is not in the list of guests")
        return guest.host

    async def _read(self) -> GuestConfig:
        if self._config is None:
            self._config = await self._region.pve.qemu.config(self._host(), self._vmid)
        return self._config

    async def _once(self, batch: Sequence[_Asked]) -> None:
        config = await self._read()
        wishes = [asked.wish for asked in batch]
        plan = make_plan(config, wishes)
        for index, refusal in plan.refusals.items():
            batch[index].refuse(refusal)
        if not plan.slots:
            return
        failure = await self._write(plan, config.digest) if plan.writes else None
        live = await self._region.pve.qemu.config(self._host(), self._vmid, current=True)
        self._config = GuestConfig({**config.raw, **live.raw}) if not plan.deletes else live
        stuck = [i for i, slot in plan.slots.items() if not is_live(wishes[i], slot, live)]
        if stuck:
            await self._give_up(batch, plan, stuck, failure)
        for index, slot in plan.slots.items():
            if index not in stuck:
                there = not isinstance(wishes[index], Detach)
                batch[index].settle(Seat(slot, live.get(slot) if there else "", live.uuid))

    async def _write(self, plan: Plan, digest: str) -> MoxwellError | None:
        """Write; an error is told only after a look at what became of it."""
        try:
            upid = await self._region.pve.qemu.configure_task(
                self._host(),
                self._vmid,
                plan.changes,
                delete=plan.deletes,
                digest=digest,
                background_delay=SERVER_WAITS_SECONDS,
            )
        except (errors.ConfigChanged, errors.GuestMissing, errors.Locked):
            raise
        except errors.PveError as error:
            return error
        if upid is None:
            return None
        return (await self._region.tasks.wait_ended(upid)).error

    async def _give_up(
        self,
        batch: Sequence[_Asked],
        plan: Plan,
        stuck: Sequence[int],
        failure: MoxwellError | None,
    ) -> None:
        """Take back what stayed pending, and say so; what never arrived is tried again alone."""
        await self._revert(plan)
        self._config = None
        if isinstance(failure, errors.Uncertain | Conflict) and not isinstance(
            failure, errors.HotplugRefused
        ):
            raise failure
        if failure is not None and len(batch) > 1:
            raise failure
        for index in stuck:
            batch[index].refuse(failure or _pending(self._vmid, plan.slots[index]))

    async def _revert(self, plan: Plan) -> None:
        rows = await self._region.pve.qemu.pending(self._host(), self._vmid)
        ours = {*plan.slots.values()} - {""}
        waiting = sorted(row.key for row in rows if row.waits and row.key in ours)
        if waiting:
            log.info("pending changes taken back", vmid=self._vmid, slots=waiting)
            await self._region.pve.qemu.configure(self._host(), self._vmid, {}, revert=waiting)


def _pending(vmid: int, slot: str) -> MoxwellError:
    return errors.HotplugRefused(
        f"guest {vmid} did not take the change of {slot} while running; it was taken back. "
        "Is disk in its hotplug option, and is its controller virtio-scsi?"
    )


class GuestQueues:
    """The queues by region and guest; made when needed, forgotten when idle."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[tuple[str, int], GuestQueue] = {}

    async def ask(self, region: Region, vmid: int, wish: Wish) -> Seat:
        key = (region.name, vmid)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = GuestQueue(region, vmid, self._clock)
        return await queue.ask(wish)
