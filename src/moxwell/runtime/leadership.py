"""
Which shards this replica works on: all of them, all as the leader, or its own regions.

``holds(shard)`` is computed from the leases at the time of the call. ``gained`` and ``lost`` are
callbacks (None means every shard). ``lost`` runs before the lease ends, and its work has stopped
when it returns; only then is a lease released.

With sharding every replica renews a member lease. A pure function distributes the regions over the
members; every replica computes the same result. Each region has its own lease, and only that lease
permits work: two replicas with different views of the members may both try, and one succeeds. When
a replica dies, its leases expire and the others distribute the regions again.
"""

import asyncio
import hashlib
import math
import random
import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from moxwell.clock import Clock
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.lease import LEASES, LeaderLease
from moxwell.runtime.metrics import Metrics
from moxwell.runtime.settings import ManagerSettings

LABEL = "moxwell.dev/lease-of"
PLAIN_LENGTH = 39  # of the shard in the name of its lease, which has 63 characters at most
THIRD = 1 / 3  # fraction of the deadline: a round of sharding makes three requests in sequence
JITTER = 1.2  # fraction of the retry period while another replica holds the lease

log = structlog.get_logger(__name__)


async def _nothing(shard: str | None) -> None:
    """A callback that does nothing."""


@dataclass(slots=True)
class Callbacks:
    """Called when shards are gained and lost; set once by the manager."""

    gained: Callable[[str | None], Awaitable[None]] = field(default=_nothing)
    lost: Callable[[str | None], Awaitable[None]] = field(default=_nothing)


class Leadership(Protocol):
    """Decides which shards this replica works on."""

    on: Callbacks

    def holds(self, shard: str) -> bool:
        """Whether this replica may write for ``shard`` now."""
        ...

    async def run(self) -> None:
        """Acquire and renew leases until cancelled."""
        ...

    async def release(self) -> None:
        """Release every lease."""
        ...


class NoElection:
    """No election: this process is the only one."""

    def __init__(self) -> None:
        self.on = Callbacks()

    def holds(self, shard: str) -> bool:
        return True

    async def run(self) -> None:
        await self.on.gained(None)
        await asyncio.Event().wait()

    async def release(self) -> None:
        return


class LeaseKeeper:
    """Acquires and renews one lease and reports when it is gained and lost."""

    def __init__(
        self,
        lease: LeaderLease,
        clock: Clock,
        settings: ManagerSettings,
        rng: random.Random,
        metrics: Metrics,
    ) -> None:
        self.lease, self._clock, self._times, self._rng = lease, clock, settings.lease_times, rng
        self._gauge = metrics.leader.labels(lease.name)
        self.active = False

    async def step(self, share_of_deadline: float = 1.0) -> bool:
        """
        One try, bounded by the time this replica may still act; returns whether it holds the lease.
        """
        limit = self._times.renew_deadline * share_of_deadline
        if self.active:
            limit = max(0.0, min(limit, self.lease.seconds_left))
        try:
            async with asyncio.timeout(limit):
                await self.lease.attempt()
        except (MoxwellError, TimeoutError) as error:
            log.info("lease not renewed", lease=self.lease.name, error=str(error))
        self._gauge.set(self.lease.held)
        return self.lease.held

    def pause(self) -> float:
        """Seconds until the next try: jittered, and never later than the end of the held lease."""
        period = self._times.retry_period
        if not self.active:
            return period * (1 + JITTER * self._rng.random())
        return max(0.0, min(period * (0.8 + 0.4 * self._rng.random()), self.lease.seconds_left))


class Leader:
    """One lease for all shards."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        settings: ManagerSettings,
        rng: random.Random,
        metrics: Metrics,
    ) -> None:
        settings.lease_times.check()
        self.on = Callbacks()
        self._clock = clock
        lease = LeaderLease(
            kube,
            clock,
            namespace=settings.namespace,
            name=settings.lease_name,
            identity=settings.identity,
            times=settings.lease_times,
        )
        self._keeper = LeaseKeeper(lease, clock, settings, rng, metrics)

    def holds(self, shard: str) -> bool:
        return self._keeper.lease.held

    async def run(self) -> None:
        keeper = self._keeper
        while True:
            held = await keeper.step()
            if held and not keeper.active:
                keeper.active = True
                log.info("lease gained", lease=keeper.lease.name)
                await self.on.gained(None)
            elif keeper.active and not held:
                keeper.active = False
                log.warning("lease lost", lease=keeper.lease.name)
                await self.on.lost(None)
            await self._clock.sleep(keeper.pause())

    async def release(self) -> None:
        await self._keeper.lease.release()


def deal(regions: Collection[str], members: Collection[str]) -> dict[str, str]:
    """
    Distribute regions over members evenly, with few changes when the members change.

    Each region ranks the members by a hash of both and goes to the first that has capacity.
    """
    if not members:
        return {}
    room = dict.fromkeys(members, math.ceil(len(regions) / len(members)))
    out: dict[str, str] = {}
    for region in sorted(regions):
        ranked = sorted(room, key=lambda member: _rank(region, member), reverse=True)
        chosen = next(member for member in ranked if room[member] > 0)
        room[chosen] -= 1
        out[region] = chosen
    return out


def lease_name(prefix: str, word: str, shard: str) -> str:
    """A valid lease name, unique per shard."""
    plain = re.sub(r"[^a-z0-9-]+", "-", shard.lower()).strip("-")[:PLAIN_LENGTH]
    mark = hashlib.blake2b(shard.encode(), digest_size=4).hexdigest()
    return "-".join(part for part in (prefix, word, plain, mark) if part)


def _rank(region: str, member: str) -> bytes:
    return hashlib.blake2b(f"{region}\n{member}".encode(), digest_size=8).digest()


class Shards:
    """One lease per region, distributed over the live replicas."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        settings: ManagerSettings,
        rng: random.Random,
        metrics: Metrics,
        *,
        regions: Callable[[], Collection[str]],
    ) -> None:
        settings.lease_times.check()
        self.on = Callbacks()
        self._kube, self._clock, self._settings = kube, clock, settings
        self._rng, self._metrics, self._regions = rng, metrics, regions
        self._keepers: dict[str, LeaseKeeper] = {}
        self._leases: dict[str, LeaderLease] = {}  # every lease seen, by name
        self._member = self._keeper("member", settings.identity)

    def holds(self, shard: str) -> bool:
        keeper = self._keepers.get(shard)
        return keeper is not None and keeper.active and keeper.lease.held

    async def run(self) -> None:
        """Each round: renew the member lease, list members, acquire or release regions."""
        while True:
            self._member.active = await self._member.step(THIRD)
            mine = await self._dealt()
            async with asyncio.TaskGroup() as group:
                for shard in sorted({*mine, *self._keepers}):
                    group.create_task(self._tend(shard, shard in mine))
            keepers = [self._member, *(k for k in self._keepers.values() if k.active)]
            await self._clock.sleep(min(keeper.pause() for keeper in keepers))

    async def release(self) -> None:
        for keeper in (*self._keepers.values(), self._member):
            await keeper.lease.release()

    async def _dealt(self) -> set[str]:
        """The shards assigned to this replica; the current ones if the API cannot be reached."""
        try:
            async with asyncio.timeout(self._settings.lease_times.renew_deadline * THIRD):
                members = await self._members()
        except (MoxwellError, TimeoutError) as error:
            log.info("members unknown", error=str(error))
            return {shard for shard, keeper in self._keepers.items() if keeper.active}
        regions = {"", *self._regions()}  # the empty shard: objects without a region
        return {r for r, m in deal(regions, members).items() if m == self._settings.identity}

    async def _members(self) -> set[str]:
        """
        The live members: this replica, and each whose member lease changed within its duration.

        Region leases are read here too, so that the leases of a dead replica have been observed for
        their whole duration when they are distributed again.
        """
        labels = {LABEL: self._settings.lease_name}
        page = await self._kube.list(LEASES, self._settings.namespace, labels=labels)
        found = {record["metadata"]["name"]: record for record in page.items}
        for name in {*found, *self._leases}:
            lease = self._lease(name)
            if not lease.held:
                lease.observe(found.get(name))
        prefix = f"{self._settings.lease_name}-member-"
        holders = {self._lease(name).holder for name in found if name.startswith(prefix)}
        return {self._settings.identity, *holders} - {""}

    async def _tend(self, shard: str, wanted: bool) -> None:
        """Acquire or keep an assigned shard, release another."""
        keeper = self._keepers.get(shard)
        if keeper is None:
            keeper = self._keepers[shard] = self._keeper("region", shard)
        if not wanted and not keeper.active:
            del self._keepers[shard]
            return
        held = await keeper.step(THIRD)
        if held and wanted and not keeper.active:
            keeper.active = True
            log.info("shard gained", shard=shard)
            await self.on.gained(shard)
        elif keeper.active and not (held and wanted):
            keeper.active = False
            log.info("shard lost", shard=shard, held=held)
            await self.on.lost(shard)
            await keeper.lease.release()

    def _keeper(self, word: str, shard: str) -> LeaseKeeper:
        lease = self._lease(lease_name(self._settings.lease_name, word, shard))
        return LeaseKeeper(lease, self._clock, self._settings, self._rng, self._metrics)

    def _lease(self, name: str) -> LeaderLease:
        settings, lease = self._settings, self._leases.get(name)
        if lease is None:
            lease = self._leases[name] = LeaderLease(
                self._kube,
                self._clock,
                namespace=settings.namespace,
                name=name,
                identity=settings.identity,
                times=settings.lease_times,
                labels={LABEL: settings.lease_name},
            )
        return lease
