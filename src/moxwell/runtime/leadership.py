"""
Who may work on which share: everybody, one leader, or each replica its own regions.

``Leadership`` answers ``holds(share)`` from the leases themselves, at the moment of asking, and
tells ``gained`` and ``lost`` (None means every share). Losing is told before the lease ends, and
whoever is told has stopped when its callback returns; only then is a lease given back.

Shards: every replica renews a member lease, so all know who lives. Regions are dealt out over the
members by a pure function that all compute alike; each region has its own lease, and that lease
alone makes it safe. The deal is only a wish: two replicas that see different members may both try,
and one of them gets it. When a replica dies its leases run out and the others deal again.
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
from moxwell.runtime.lease import LEASES, Lease
from moxwell.runtime.metrics import Metrics
from moxwell.runtime.settings import Settings

LABEL = "moxwell.dev/lease-of"
THIRD = 1 / 3  # of the deadline: a round of shards asks three times in a row
JITTER = 1.2  # of the retry period while waiting for somebody else's lease

log = structlog.get_logger(__name__)


async def _nothing(share: str | None) -> None:
    """The callback of whoever does not care."""


@dataclass(slots=True)
class Callbacks:
    """What to do when shares come and go; set once by the manager."""

    gained: Callable[[str | None], Awaitable[None]] = field(default=_nothing)
    lost: Callable[[str | None], Awaitable[None]] = field(default=_nothing)


class Leadership(Protocol):
    """Who may work on which share."""

    on: Callbacks

    def holds(self, share: str) -> bool:
        """Whether we may have effects on this share, this very moment."""
        ...

    async def run(self) -> None:
        """Try to hold what we should until cancelled."""
        ...

    async def release(self) -> None:
        """Give everything back; nothing of ours runs any more."""
        ...


class Alone:
    """No election: this process is the only one."""

    def __init__(self) -> None:
        self.on = Callbacks()

    def holds(self, share: str) -> bool:
        return True

    async def run(self) -> None:
        await self.on.gained(None)
        await asyncio.Event().wait()

    async def release(self) -> None:
        return


class Keeper:
    """Keeps one lease: tries, renews, and says when it is gained and lost."""

    def __init__(
        self, lease: Lease, clock: Clock, settings: Settings, rng: random.Random, metrics: Metrics
    ) -> None:
        self.lease, self._clock, self._times, self._rng = lease, clock, settings.lease_times, rng
        self._gauge = metrics.leader.labels(lease.name)
        self.active = False

    async def step(self, share_of_deadline: float = 1.0) -> bool:
        """One try, never longer than we may still act; whether we hold it now."""
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
        """Seconds until the next try: jittered, and never past the end of what we hold."""
        period = self._times.retry_period
        if not self.active:
            return period * (1 + JITTER * self._rng.random())
        return max(0.0, min(period * (0.8 + 0.4 * self._rng.random()), self.lease.seconds_left))


class Leader:
    """One lease for everything."""

    def __init__(
        self, kube: Kube, clock: Clock, settings: Settings, rng: random.Random, metrics: Metrics
    ) -> None:
        settings.lease_times.check()
        self.on = Callbacks()
        self._clock = clock
        lease = Lease(
            kube,
            clock,
            namespace=settings.namespace,
            name=settings.lease_name,
            identity=settings.identity,
            times=settings.lease_times,
        )
        self._keeper = Keeper(lease, clock, settings, rng, metrics)

    def holds(self, share: str) -> bool:
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
    Which member should have which region: evenly, and with few moves when somebody comes or goes.

    Each region ranks the members by a hash of both; it goes to the first that has room.
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


def lease_name(prefix: str, word: str, share: str) -> str:
    """A name Kubernetes accepts, different for different shares."""
    plain = re.sub(r"[^a-z0-9-]+", "-", share.lower()).strip("-")[:40]
    mark = hashlib.blake2b(share.encode(), digest_size=4).hexdigest()
    return "-".join(part for part in (prefix, word, plain, mark) if part)


def _rank(region: str, member: str) -> bytes:
    return hashlib.blake2b(f"{region}\n{member}".encode(), digest_size=8).digest()


class Shards:
    """A lease per region, dealt out over the living replicas."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        settings: Settings,
        rng: random.Random,
        metrics: Metrics,
        *,
        regions: Callable[[], Collection[str]],
    ) -> None:
        settings.lease_times.check()
        self.on = Callbacks()
        self._kube, self._clock, self._settings = kube, clock, settings
        self._rng, self._metrics, self._regions = rng, metrics, regions
        self._keepers: dict[str, Keeper] = {}
        self._leases: dict[str, Lease] = {}  # all we have seen, ours and others', by name
        self._member = self._keeper("member", settings.identity)

    def holds(self, share: str) -> bool:
        keeper = self._keepers.get(share)
        return keeper is not None and keeper.active and keeper.lease.held

    async def run(self) -> None:
        """Each round: say that we live, see who else does, keep what is dealt to us."""
        while True:
            self._member.active = await self._member.step(THIRD)
            mine = await self._dealt()
            async with asyncio.TaskGroup() as group:
                for share in sorted({*mine, *self._keepers}):
                    group.create_task(self._tend(share, share in mine))
            keepers = [self._member, *(k for k in self._keepers.values() if k.active)]
            await self._clock.sleep(min(keeper.pause() for keeper in keepers))

    async def release(self) -> None:
        for keeper in (*self._keepers.values(), self._member):
            await keeper.lease.release()

    async def _dealt(self) -> set[str]:
        """The shares that should be ours; those we have, if nobody can be asked."""
        try:
            async with asyncio.timeout(self._settings.lease_times.renew_deadline * THIRD):
                members = await self._members()
        except (MoxwellError, TimeoutError) as error:
            log.info("members unknown", error=str(error))
            return {share for share, keeper in self._keepers.items() if keeper.active}
        regions = {"", *self._regions()}  # the empty share: what belongs to no region
        return {r for r, m in deal(regions, members).items() if m == self._settings.identity}

    async def _members(self) -> set[str]:
        """
        Who lives: ourselves, and whoever's member lease has changed within its duration.

        Leases of regions are seen here too, so that a dead replica's have been watched for their
        whole duration by the time they are dealt out anew.
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

    async def _tend(self, share: str, wanted: bool) -> None:
        """Take or keep a share that is ours, hand over one that is not."""
        keeper = self._keepers.get(share)
        if keeper is None:
            keeper = self._keepers[share] = self._keeper("region", share)
        if not wanted and not keeper.active:
            del self._keepers[share]
            return
        held = await keeper.step(THIRD)
        if held and wanted and not keeper.active:
            keeper.active = True
            log.info("share gained", share=share)
            await self.on.gained(share)
        elif keeper.active and not (held and wanted):
            keeper.active = False
            log.info("share lost", share=share, held=held)
            await self.on.lost(share)
            await keeper.lease.release()

    def _keeper(self, word: str, share: str) -> Keeper:
        lease = self._lease(lease_name(self._settings.lease_name, word, share))
        return Keeper(lease, self._clock, self._settings, self._rng, self._metrics)

    def _lease(self, name: str) -> Lease:
        settings, lease = self._settings, self._leases.get(name)
        if lease is None:
            lease = self._leases[name] = Lease(
                self._kube,
                self._clock,
                namespace=settings.namespace,
                name=name,
                identity=settings.identity,
                times=settings.lease_times,
                labels={LABEL: settings.lease_name},
            )
        return lease
