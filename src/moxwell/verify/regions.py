"""One region looked at closely: its lists, the configurations of our guests, its clocks."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.errors import MoxwellError
from moxwell.pve import errors
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import GuestSeen, StorageSeen
from moxwell.pve.regions import Region
from moxwell.verify.model import RegionWorld, Stored

AT_A_TIME = 8
T = TypeVar("T")


async def look_at(region: Region, machines: Iterable[ProxmoxMachine], clock: Clock) -> RegionWorld:
    """Everything the checks ask of a region; an answer of its own if it does not answer."""
    await region.inventory.refresh()
    health = region.inventory.health
    if not health.reachable:
        return RegionWorld(region.name, error=health.error or "no answer")
    try:
        return await _look(region, tuple(machines), clock)
    except MoxwellError as error:
        return RegionWorld(region.name, error=str(error))


async def _look(region: Region, machines: tuple[ProxmoxMachine, ...], clock: Clock) -> RegionWorld:
    view, pve = region.inventory.view, region.pve
    claimed = {m.spec.virtual_machine_id for m in machines}
    walled = {m.spec.virtual_machine_id for m in machines if m.spec.firewall_groups}
    guests = [g for g in view.guests.values() if g.kind == "qemu" and not g.template]
    near = [g for g in guests if (g.owner_keys or g.vmid in claimed) and _online(region, g)]
    configs = await _each(near, lambda g: _config(region, g))
    fresh = await _each(near, lambda g: _fresh(region, g))
    walls = await _each([g for g in near if g.vmid in walled], lambda g: _walls(region, g))
    images, isos, unlisted = await _volumes(region)
    hosts = [h.name for h in view.hosts.values() if h.online]
    allowed = _Allowed()
    clocks = await _each_host(
        hosts, lambda h: allowed.ask("clocks", _ahead(region, h, clock), None)
    )
    ends = await _each_host(
        hosts, lambda h: allowed.ask("certificates", _certificate(region, h), None)
    )
    groups = await allowed.ask("firewall groups", pve.firewall.groups(), ())
    entries = await allowed.ask("HA entries", pve.ha.resources(), ())
    rules = await allowed.ask("HA entries", _or_none(pve.ha.rules()), ())
    return RegionWorld(
        region.name,
        hosts=view.hosts,
        guests={**view.guests, **{g.vmid: g for g in fresh}},
        configs={g.vmid: c for g, c in zip(near, configs, strict=True) if c is not None},
        walls={
            g.vmid: w
            for g, w in zip([g for g in near if g.vmid in walled], walls, strict=True)
            if w is not None
        },
        security_groups={g.group: g.comment for g in groups},
        ha=entries,
        rules=rules or (),
        images=images,
        isos=isos,
        unlisted=unlisted,
        denied=allowed.denied,
        clocks={h: s for h, s in clocks.items() if s is not None},
        certificates={h: at for h, at in ends.items() if at is not None},
    )


class _Allowed:
    """Asks, and remembers what these credentials may not read: the rest is still looked at."""

    def __init__(self) -> None:
        self.denied: dict[str, str] = {}

    async def ask(self, what: str, asked: Awaitable[T], otherwise: T) -> T:
        try:
            return await asked
        except errors.Forbidden as error:
            self.denied[what] = str(error)
            return otherwise


def _online(region: Region, guest: GuestSeen) -> bool:
    host = region.inventory.hosts.get(guest.host)
    return host is not None and host.online


async def _or_none(asked: Awaitable[T]) -> T | None:
    """An answer, or None where this Proxmox cannot, or no longer has what was asked about."""
    try:
        return await asked
    except (errors.CannotHere, errors.GuestMissing, errors.HostUnreachable):
        return None


async def _config(region: Region, guest: GuestSeen) -> GuestConfig | None:
    return await _or_none(region.pve.qemu.config(guest.host, guest.vmid))


async def _fresh(region: Region, guest: GuestSeen) -> GuestSeen:
    """The guest as its host tells it now; the list may be ten seconds old."""
    said = await _or_none(region.pve.qemu.status(guest.host, guest.vmid))
    return replace(guest, status=said.status) if said is not None and said.status else guest


async def _walls(region: Region, guest: GuestSeen) -> frozenset[str] | None:
    rules = await _or_none(region.pve.firewall.rules(guest.host, guest.vmid))
    if rules is None:
        return None
    return frozenset(r.action for r in rules if r.type == "group" and r.enable)


async def _ahead(region: Region, host: str, clock: Clock) -> float | None:
    before = clock.now().timestamp()
    said = await _or_none(region.pve.nodes.time(host))
    after = clock.now().timestamp()
    if said is None:
        return None
    middle = (before + after) / 2
    return 0.0 if before - 1 <= said.time <= after + 1 else said.time - middle


async def _certificate(region: Region, host: str) -> datetime | None:
    rows = await _or_none(region.pve.nodes.certificates(host))
    served = [r for r in rows or () if r.filename in ("pveproxy-ssl.pem", "pve-ssl.pem")]
    first = min(served, key=lambda r: r.filename != "pveproxy-ssl.pem", default=None)
    return datetime.fromtimestamp(first.notafter, UTC) if first and first.notafter else None


async def _volumes(
    region: Region,
) -> tuple[tuple[Stored, ...], tuple[Stored, ...], tuple[str, ...]]:
    """Disks and ISOs of every storage, shared ones once; and the storages that did not answer."""
    images: list[Stored] = []
    isos: list[Stored] = []
    unlisted: list[str] = []
    for store in _shelves(region):
        for content, into in (("images", images), ("iso", isos)):
            if content not in store.content:
                continue
            try:
                rows = await region.pve.storage.content(store.host, store.name, content=content)
            except MoxwellError:
                unlisted.append(f"{store.host}/{store.name}")
                continue
            into += [
                Stored(store.host, store.name, v.volid, v.vmid or 0, store.shared, v.size)
                for v in rows
            ]
    return tuple(images), tuple(isos), tuple(dict.fromkeys(unlisted))


def _shelves(region: Region) -> list[StorageSeen]:
    seen: set[str] = set()
    found = []
    for (host, name), store in sorted(region.inventory.storages.items()):
        at = region.inventory.hosts.get(host)
        if at is None or not at.online or not store.available or (store.shared and name in seen):
            continue
        seen.add(name)
        found.append(store)
    return found


async def _each(guests: list[GuestSeen], ask: Callable[[GuestSeen], Awaitable[T]]) -> list[T]:
    """Ask about every guest, a few at a time."""
    gate = asyncio.Semaphore(AT_A_TIME)

    async def one(guest: GuestSeen) -> T:
        async with gate:
            return await ask(guest)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(g)) for g in guests]
    return [t.result() for t in tasks]


async def _each_host(hosts: list[str], ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
    return {host: await ask(host) for host in hosts}
