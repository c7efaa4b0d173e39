"""Reads one Proxmox region: its lists, the configurations of our guests, clocks, certificates."""

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
from moxwell.pve.model import ObservedGuest, ObservedStorage
from moxwell.pve.regions import Region
from moxwell.verify.host_names import resolve_host
from moxwell.verify.model import ObservedRegion, StoredVolume, Validity

CONCURRENT_READS = 8
T = TypeVar("T")


async def observe_region(
    region: Region, machines: Iterable[ProxmoxMachine], clock: Clock
) -> ObservedRegion:
    """Read what the checks need of a region; one with ``error`` if it does not answer."""
    await region.inventory.refresh()
    health = region.inventory.health
    if not health.reachable:
        return ObservedRegion(region.name, error=health.error or "no answer")
    try:
        return await _observe(region, tuple(machines), clock)
    except MoxwellError as error:
        return ObservedRegion(region.name, error=str(error))


async def _observe(
    region: Region, machines: tuple[ProxmoxMachine, ...], clock: Clock
) -> ObservedRegion:
    view, pve, optional = region.inventory.view, region.reader, _OptionalReads()
    guests = _our_guests(region, machines)
    images, isos, unlisted = await _volumes(region)
    hosts = [h.name for h in view.hosts.values() if h.online]
    groups = await optional.read("firewall groups", pve.firewall.groups()) or ()
    has_rules = await pve.has_ha_rules()
    current = await _each(guests, lambda g: _current(region, g))
    return ObservedRegion(
        region.name,
        hosts=view.hosts,
        guests={**view.guests, **{g.vmid: g for g in current.values()}},
        configs=await _each(guests, lambda g: _config(region, g)),
        applied_groups=await _each(
            _with_firewall(guests, machines), lambda g: _applied_groups(region, g)
        ),
        security_groups={g.group: g.comment for g in groups},
        ha=await optional.read("HA entries", pve.ha.resources()) or (),
        rules=(await optional.read("HA entries", pve.ha.rules()) or ()) if has_rules else (),
        images=images,
        isos=isos,
        unlisted=unlisted,
        clocks=await _each_host(
            hosts, lambda h: optional.read("clocks", _seconds_ahead(region, h, clock))
        ),
        certificates=await _each_host(
            hosts, lambda h: optional.read("certificates", _certificate(region, h))
        ),
        interfaces=await _each_host(
            hosts, lambda h: optional.read("networks", pve.nodes.network(h, type="any_bridge"))
        ),
        storage_servers={
            row.storage: await _addresses(row.servers)
            for row in await optional.read("networks", pve.storage.definitions()) or ()
        },
        denied=optional.denied,
    )


async def _addresses(servers: Iterable[str]) -> tuple[str, ...]:
    found = [await resolve_host(server) for server in servers]
    return tuple(sorted(frozenset[str]().union(*found)))


def _our_guests(region: Region, machines: Iterable[ProxmoxMachine]) -> list[ObservedGuest]:
    """VMs on hosts that are online with an owner mark or a VMID that a machine claims."""
    claimed = {m.spec.virtual_machine_id for m in machines}
    return [
        g
        for g in region.inventory.view.guests.values()
        if g.kind == "qemu" and not g.template
        if (g.owner_keys or g.vmid in claimed) and _online(region, g)
    ]


def _with_firewall(
    guests: Iterable[ObservedGuest], machines: Iterable[ProxmoxMachine]
) -> list[ObservedGuest]:
    wanted = {m.spec.virtual_machine_id for m in machines if m.spec.firewall_groups}
    return [g for g in guests if g.vmid in wanted]


class _OptionalReads:
    """Reads, and records what the credentials may not read instead of failing."""

    def __init__(self) -> None:
        self.denied: dict[str, str] = {}

    async def read(self, what: str, result: Awaitable[T]) -> T | None:
        try:
            return await result
        except errors.PermissionDenied as error:
            self.denied[what] = str(error)
            return None


def _online(region: Region, guest: ObservedGuest) -> bool:
    host = region.inventory.hosts.get(guest.host)
    return host is not None and host.online


async def _or_none(result: Awaitable[T]) -> T | None:
    """The result, or None if this version lacks the endpoint or the guest or host is away."""
    try:
        return await result
    except (errors.NotSupported, errors.GuestMissing, errors.HostUnreachable):
        return None


async def _config(region: Region, guest: ObservedGuest) -> GuestConfig | None:
    return await _or_none(region.reader.qemu.config(guest.host, guest.vmid))


async def _current(region: Region, guest: ObservedGuest) -> ObservedGuest:
    """The guest with its current status; the inventory may be ten seconds old."""
    found = await _or_none(region.reader.qemu.status(guest.host, guest.vmid))
    return replace(guest, status=found.status) if found is not None and found.status else guest


async def _applied_groups(region: Region, guest: ObservedGuest) -> frozenset[str] | None:
    rules = await _or_none(region.reader.firewall.rules(guest.host, guest.vmid))
    if rules is None:
        return None
    return frozenset(r.action for r in rules if r.type == "group" and r.enable)


async def _seconds_ahead(region: Region, host: str, clock: Clock) -> float | None:
    before = clock.now().timestamp()
    found = await _or_none(region.reader.nodes.time(host))
    after = clock.now().timestamp()
    if found is None:
        return None
    middle = (before + after) / 2
    return 0.0 if before - 1 <= found.time <= after + 1 else found.time - middle


async def _certificate(region: Region, host: str) -> Validity | None:
    rows = await _or_none(region.reader.nodes.certificates(host))
    served = [r for r in rows or () if r.filename in ("pveproxy-ssl.pem", "pve-ssl.pem")]
    first = min(served, key=lambda r: r.filename != "pveproxy-ssl.pem", default=None)
    if first is None or not first.notafter:
        return None
    since, until = (datetime.fromtimestamp(at, UTC) for at in (first.notbefore, first.notafter))
    return Validity(since, until)


async def _volumes(
    region: Region,
) -> tuple[tuple[StoredVolume, ...], tuple[StoredVolume, ...], tuple[str, ...]]:
    """Disks and ISOs of every storage, shared ones once, and the storages without an answer."""
    images: list[StoredVolume] = []
    isos: list[StoredVolume] = []
    unlisted: list[str] = []
    for store in _storages(region):
        for content, into in (("images", images), ("iso", isos)):
            if content not in store.content:
                continue
            try:
                rows = await region.reader.storage.content(store.host, store.name, content=content)
            except MoxwellError:
                unlisted.append(f"{store.host}/{store.name}")
                continue
            into += [
                StoredVolume(store.host, store.name, v.volid, v.vmid or 0, store.shared, v.size)
                for v in rows
            ]
    return tuple(images), tuple(isos), tuple(dict.fromkeys(unlisted))


def _storages(region: Region) -> list[ObservedStorage]:
    seen: set[str] = set()
    found = []
    for (host, name), store in sorted(region.inventory.storages.items()):
        at = region.inventory.hosts.get(host)
        if at is None or not at.online or not store.available or (store.shared and name in seen):
            continue
        seen.add(name)
        found.append(store)
    return found


async def _each(
    guests: Iterable[ObservedGuest], read: Callable[[ObservedGuest], Awaitable[T | None]]
) -> dict[int, T]:
    """Read something of every guest, a few at a time; by VMID, without those that had none."""
    limit = asyncio.Semaphore(CONCURRENT_READS)

    async def one(guest: ObservedGuest) -> T | None:
        async with limit:
            return await read(guest)

    async with asyncio.TaskGroup() as group:
        tasks = {g.vmid: group.create_task(one(g)) for g in guests}
    found = {vmid: task.result() for vmid, task in tasks.items()}
    return {vmid: value for vmid, value in found.items() if value is not None}


async def _each_host(
    hosts: Iterable[str], read: Callable[[str], Awaitable[T | None]]
) -> dict[str, T]:
    found = {host: await read(host) for host in hosts}
    return {host: value for host, value in found.items() if value is not None}
