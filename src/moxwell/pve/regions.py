"""
The configured regions by name, each with client, inventory and task poller.

``Regions.reload`` applies a changed configuration (rotated credentials, added and removed regions)
without losing the inventory. There is no default region: an unknown name is an error, because a
write to the wrong region cannot be undone.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator

import structlog

from moxwell.clock import Clock
from moxwell.errors import Bug, Missing
from moxwell.pve.client import PveReader, PveWriter
from moxwell.pve.config import RegionConfig
from moxwell.pve.effects import Effects, Owned
from moxwell.pve.inventory import Inventory
from moxwell.pve.model import InventoryEvent
from moxwell.pve.steps.contract import Expectation, Step, same_region
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.pve.tasks import TaskEnded, TaskPoller
from moxwell.pve.transport import PveHttpTransport, Transport
from moxwell.pve.values import Upid

RESTART_SECONDS = 10.0  # after an error that ended the loops of a region
Connect = Callable[[RegionConfig], Transport]


class UnknownRegion(Missing):
    """No region with this name is configured (yet)."""

    reason = "UnknownRegion"


class Region:
    """One region: its client, inventory and task poller."""

    def __init__(
        self,
        config: RegionConfig,
        transport: Transport,
        clock: Clock,
        effects: Effects | None = None,
    ) -> None:
        self.config = config
        self._transport = SwitchableTransport(transport)
        self._effects = effects or Effects(clock=clock)
        self.reader = PveReader(self._transport)
        self.inventory = Inventory(self.reader, clock)
        self.tasks = TaskPoller(self.reader, clock)
        self._expected: dict[Upid, Expectation] = {}
        self.tasks.subscribe(self._task_ended)

    @property
    def name(self) -> str:
        return self.config.region

    def reconnect(self, config: RegionConfig, transport: Transport) -> None:
        """Use new credentials or URLs from now on and keep the inventory."""
        self.config = config
        self._transport.replace(transport)

    def zone_of(self, host: str) -> str:
        """Return the zone of a host."""
        return self.config.zone_of(host)

    def writer(self, owned: Owned) -> PveWriter:
        """Return a client that may write to what the caller owns; prefer a step."""
        return PveWriter(self._transport, self._effects, owned)

    async def perform(self, step: Step, owner: Hashable) -> Upid | None:
        """Perform a step, follow its task for ``owner`` and tell the inventory what to expect."""
        same_region(self.reader, step.region)
        self.inventory.poll_frequently()  # also if it fails: the change may have happened
        upid = await step.perform(self.writer(step.owned))
        expected = step.expects()
        if upid is not None:
            self.tasks.follow(upid, owner)
            if expected is not None:
                self._expected[upid] = expected
        elif expected is not None and step.certain:
            self._assume(expected)
        return upid

    def _task_ended(self, ended: TaskEnded) -> None:
        expected = self._expected.pop(ended.upid, None)
        self.inventory.poll_frequently()
        if expected is not None and ended.ok:
            self._assume(expected)

    def _assume(self, expected: Expectation) -> None:
        if expected.fields is None:
            self.inventory.learn_destroyed(expected.vmid)
        else:
            self.inventory.learn(expected.vmid, **expected.fields)

    async def run(self) -> None:
        """Poll the region until cancelled, then close its connections."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.inventory.run())
                group.create_task(self.tasks.run())
        finally:
            await self.reader.close()


class Regions:
    """The configured regions by name."""

    def __init__(
        self,
        configs: Iterable[RegionConfig],
        clock: Clock,
        *,
        connect: Connect | None = None,
        effects: Effects | None = None,
    ) -> None:
        self._clock = clock
        self.effects = effects or Effects(clock=clock)
        self._connect = connect or (lambda config: PveHttpTransport(config, clock))
        self._regions: dict[str, Region] = {}
        self._inventory_listeners: list[Callable[[InventoryEvent], None]] = []
        self._task_listeners: list[Callable[[TaskEnded], None]] = []
        self._changed = asyncio.Event()
        self._log = structlog.get_logger("moxwell.pve")
        self.reload(configs)

    def __getitem__(self, name: str) -> Region:
        try:
            return self._regions[name]
        except KeyError:
            known = ", ".join(sorted(self._regions)) or "none"
            raise UnknownRegion(f"no region {name!r} is configured; known: {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._regions)

    def __len__(self) -> int:
        return len(self._regions)

    def __contains__(self, name: object) -> bool:
        return name in self._regions

    def find(self, name: str) -> Region | None:
        return self._regions.get(name)

    def values(self) -> tuple[Region, ...]:
        return tuple(self._regions.values())

    def reload(self, configs: Iterable[RegionConfig]) -> tuple[str, ...]:
        """Apply a new configuration and return the regions that are added, changed or removed."""
        wanted = {config.region: config for config in configs}
        touched = [
            name
            for name in sorted({*wanted, *self._regions})
            if name not in self._regions or self._regions[name].config != wanted.get(name)
        ]
        for name in touched:
            if name not in wanted:
                del self._regions[name]
            elif name in self._regions:
                self._regions[name].reconnect(wanted[name], self._connect(wanted[name]))
            else:
                self._regions[name] = self._make(wanted[name])
        if touched:
            self._changed.set()
        return tuple(touched)

    def _make(self, config: RegionConfig) -> Region:
        region = Region(config, self._connect(config), self._clock, self.effects)
        for on_event in self._inventory_listeners:
            region.inventory.subscribe(on_event)
        for on_end in self._task_listeners:
            region.tasks.subscribe(on_end)
        return region

    def subscribe(self, listener: Callable[[InventoryEvent], None]) -> Callable[[], None]:
        """Call a listener for inventory events of all regions, future ones included."""
        self._inventory_listeners.append(listener)
        for region in self._regions.values():
            region.inventory.subscribe(listener)

        def stop() -> None:
            if listener in self._inventory_listeners:
                self._inventory_listeners.remove(listener)
            for region in self._regions.values():
                region.inventory.unsubscribe(listener)

        return stop

    def subscribe_tasks(self, listener: Callable[[TaskEnded], None]) -> None:
        """Call a listener for ended tasks of all regions, future ones included."""
        self._task_listeners.append(listener)
        for region in self._regions.values():
            region.tasks.subscribe(listener)

    async def run(self) -> None:
        """Poll every configured region until cancelled."""
        runners: dict[Region, asyncio.Task[None]] = {}
        try:
            while True:
                self._changed.clear()
                current = set(self._regions.values())
                for region in set(runners) - current:
                    await _end(runners.pop(region))
                for region in current - set(runners):
                    runners[region] = asyncio.create_task(self._keep_running(region))
                await self._changed.wait()
        finally:
            for runner in runners.values():
                runner.cancel()
            await asyncio.gather(*runners.values(), return_exceptions=True)

    async def _keep_running(self, region: Region) -> None:
        """Run one region; an error that ends its loops is reported and costs this region only."""
        while True:
            running = asyncio.create_task(region.run())
            try:
                await asyncio.wait([running])
            finally:
                await _end(running)
            error = _cause(running.exception())
            text = f"polling failed ({type(error).__name__}); the log has the cause"
            region.inventory.failed(text, Bug.reason)
            self._log.error("region loop failed", region=region.name, exc_info=error)
            await self._clock.sleep(RESTART_SECONDS)

    async def close(self) -> None:
        """Close all connections; for regions that were never run."""
        for region in self._regions.values():
            await region.reader.close()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _cause(error: BaseException | None) -> BaseException | None:
    """The first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
