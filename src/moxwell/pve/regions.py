"""
The configured regions by name, each with client, inventory and task poller.

``Regions.reload`` applies a changed configuration (rotated credentials, added and removed regions)
without losing the inventory. There is no default region: an unknown name is an error, because a
write to the wrong region cannot be undone. A region that a user's object added (its owner) is only
visible in the scope of that owner, so that a name never gives access to credentials of another; of
its errors only the class is kept, because a user chose the URL.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from copy import copy

import structlog

from moxwell.clock import Clock
from moxwell.errors import Bug, Missing
from moxwell.pve.client import PveReader, PveWriter
from moxwell.pve.config import RegionConfig
from moxwell.pve.effects import Effects, Owned
from moxwell.pve.error_class_transport import ErrorClassTransport
from moxwell.pve.inventory import Inventory
from moxwell.pve.model import InventoryEvent
from moxwell.pve.steps.contract import Expectation, Step, same_region
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.pve.tasks import TaskEnded, TaskPoller
from moxwell.pve.transport import PveHttpTransport, Transport
from moxwell.pve.values import Upid
from moxwell.task_group import keep_running

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
        owner: str = "",
    ) -> None:
        """``owner`` is the object that added the region; empty: the configuration."""
        self.config, self.owner = config, owner
        self._transport = SwitchableTransport(self._protected(transport))
        self.effects = effects or Effects(clock=clock)
        self.reader = PveReader(self._transport)
        self.inventory = Inventory(self.reader, clock)
        self.tasks = TaskPoller(self.reader, clock)
        self._expected: dict[Upid, Expectation] = {}
        self.tasks.subscribe(self._task_ended)

    @property
    def name(self) -> str:
        return self.config.region

    @property
    def key(self) -> str:
        """Unique among all regions, also those of owners that use the same name."""
        return f"{self.owner}:{self.name}" if self.owner else self.name

    @property
    def problem(self) -> str:
        """Why the region does not answer; of a URL that a user chose, the class of the error."""
        health = self.inventory.health
        return (health.reason or "Unreachable") if self.owner else health.error

    def _protected(self, transport: Transport) -> Transport:
        return ErrorClassTransport(transport) if self.owner else transport

    def reconnect(self, config: RegionConfig, transport: Transport) -> None:
        """Use new credentials or URLs from now on and keep the inventory."""
        self.config = config
        self._transport.replace(self._protected(transport))

    def zone_of(self, host: str) -> str:
        """Return the zone of a host."""
        return self.config.zone_of(host)

    def writer(self, owned: Owned) -> PveWriter:
        """Return a client that may write to what the caller owns; prefer a step."""
        return PveWriter(self._transport, self.effects, owned)

    async def perform(self, step: Step, owner: Hashable) -> Upid | None:
        """Perform a step, follow its task for ``owner`` and note the change in the inventory."""
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


Listener = Callable[[InventoryEvent], None]
_Key = tuple[str, str]  # owner and name


class Regions:
    """
    The regions by name: those of the configuration, or with an owner also those that it added.

    ``scope`` returns the same regions as an owner sees them.
    """

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
        self._log = structlog.get_logger("moxwell.pve")
        self._owner = ""
        self._regions: dict[_Key, Region] = {}
        self._inventory_listeners: list[tuple[Listener, str | None]] = []
        self._task_listeners: list[Callable[[TaskEnded], None]] = []
        self._changed = asyncio.Event()
        self.reload(configs)

    def scope(self, owner: str) -> "Regions":
        """The regions that an owner may use: the configured ones and its own."""
        if not owner:
            return self
        seen = copy(self)  # shares everything but the owner
        seen._owner = owner
        return seen

    def __getitem__(self, name: str) -> Region:
        found = self.find(name)
        if found is None:
            known = ", ".join(sorted(self)) or "none"
            raise UnknownRegion(f"no region {name!r} is configured; known: {known}")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._visible())

    def __len__(self) -> int:
        return len(self._visible())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def find(self, name: str) -> Region | None:
        """The region of a name; an owner's own region hides a configured one."""
        return self._regions.get((self._owner, name)) or self._regions.get(("", name))

    def values(self) -> tuple[Region, ...]:
        return tuple(self._visible().values())

    def all(self) -> tuple[Region, ...]:
        """Every region, also those of all owners; for overviews of the operator."""
        return tuple(self._regions.values())

    def _visible(self) -> dict[str, Region]:
        shared = {name: r for (owner, name), r in self._regions.items() if not owner}
        own = {n: r for (owner, n), r in self._regions.items() if owner == self._owner and owner}
        return {**shared, **own}

    def reload(
        self,
        configs: Iterable[RegionConfig],
        added: Mapping[str, Iterable[RegionConfig]] | None = None,
    ) -> tuple[str, ...]:
        """
        Apply a new configuration and return the regions that are added, changed or removed.

        ``added`` are the regions of owners.
        """
        wanted: dict[_Key, RegionConfig] = {("", config.region): config for config in configs}
        for owner, own in (added or {}).items():
            wanted |= {(owner, config.region): config for config in own}
        touched = [
            key
            for key in sorted({*wanted, *self._regions})
            if key not in self._regions or self._regions[key].config != wanted.get(key)
        ]
        for key in touched:
            if key not in wanted:
                del self._regions[key]
            elif key in self._regions:
                self._regions[key].reconnect(wanted[key], self._connect(wanted[key]))
            else:
                self._regions[key] = self._make(key[0], wanted[key])
        if touched:
            self._changed.set()
        return tuple(name for _, name in touched)

    def _make(self, owner: str, config: RegionConfig) -> Region:
        region = Region(config, self._connect(config), self._clock, self.effects, owner)
        for on_event, scope in self._inventory_listeners:
            if scope is None or owner in ("", scope):
                region.inventory.subscribe(on_event)
        for on_end in self._task_listeners:
            region.tasks.subscribe(on_end)
        return region

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a listener for inventory events, of future regions too.

        In the scope of an owner these are the events of its regions, else those of all regions.
        """
        entry = (listener, self._owner or None)
        self._inventory_listeners.append(entry)
        for region in self.values() if self._owner else self.all():
            region.inventory.subscribe(listener)

        def stop() -> None:
            if entry in self._inventory_listeners:
                self._inventory_listeners.remove(entry)
            for region in self.all():
                region.inventory.unsubscribe(listener)

        return stop

    @property
    def listener_count(self) -> int:
        """How many listeners are subscribed to the inventories of present and future regions."""
        return len(self._inventory_listeners)

    def subscribe_tasks(self, listener: Callable[[TaskEnded], None]) -> None:
        """Call a listener for ended tasks of all regions, future ones included."""
        self._task_listeners.append(listener)
        for region in self.all():
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

        async def failed(error: BaseException) -> None:
            text = f"polling failed ({type(error).__name__}); the log has the cause"
            region.inventory.failed(text, Bug.reason)
            self._log.error("region loop failed", region=region.name, exc_info=error)
            await self._clock.sleep(RESTART_SECONDS)

        await keep_running(region.run, failed)

    async def close(self) -> None:
        """Close all connections; for regions that were never run."""
        for region in self._regions.values():
            await region.reader.close()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
