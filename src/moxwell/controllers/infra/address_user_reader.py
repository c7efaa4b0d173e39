"""
Reads who uses which address in a region: guests, their agents and the IPAM of the SDN.

Nothing is read until an address of a pool is about to be used. The answers are kept for ten
minutes, so that launches after the first send no request. Guests of ProxmoxMachines with
IPAddressClaims are not read: their addresses are known. What cannot be read counts as using no
address, and an agent that does not answer in time as reporting what it reported before: whoever
stops the agents of many guests must not stop the launches of others.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from moxwell.clock import Clock
from moxwell.controllers.infra.address_users import (
    AddressUser,
    configured,
    guest_name,
    leased,
    reported,
)
from moxwell.errors import Retryable, Terminal
from moxwell.pve.endpoints.sdn import IpamEntry
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import ObservedGuest
from moxwell.pve.regions import Region

KEEP_SECONDS = 600.0
AT_ONCE = 8  # configurations that are read at the same time
AGENTS_AT_ONCE = 32
AGENT_SECONDS = 4.0  # Proxmox itself waits three for an agent that does not run
IPAM = "pve"  # the only one whose addresses Proxmox lists


@dataclass(frozen=True, slots=True)
class _GuestAddresses:
    """What was read of one guest; a stopped guest keeps what its agent reported before."""

    expiry: float
    running: bool
    host: str
    configured: tuple[AddressUser, ...]
    reported: tuple[AddressUser, ...]


@dataclass(slots=True)
class _RegionAddresses:
    """The cached answers of one region."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    guests: dict[int, _GuestAddresses] = field(default_factory=dict)  # by VMID
    entries: tuple[float, tuple[IpamEntry, ...]] = (0.0, ())  # with expiry


class AddressUserReader:
    """The users of addresses in all regions asked for so far."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _RegionAddresses] = {}

    async def read(
        self, region: Region, known_guests: Collection[int], own: int = 0
    ) -> tuple[AddressUser, ...]:
        """The users in a region, without the guests of ``known_guests`` and the guest ``own``."""
        known = self._known.setdefault(region.key, _RegionAddresses())
        view = region.inventory.view
        async with known.lock:
            known.guests = {v: g for v, g in known.guests.items() if v in view.guests}
            others = [
                guest
                for vmid, guest in sorted(view.guests.items())
                if vmid != own and vmid not in known_guests and not guest.template
            ]
            users = await self._guests(region, known, others)
            entries = await self._entries(region, known)
        return (*users, *leased(entries, own))

    async def _guests(
        self, region: Region, known: _RegionAddresses, guests: Iterable[ObservedGuest]
    ) -> tuple[AddressUser, ...]:
        limits = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(AGENTS_AT_ONCE)

        async def read(guest: ObservedGuest) -> tuple[AddressUser, ...]:
            before = known.guests.get(guest.vmid)
            if before is None or self._is_old(before, guest):
                before = await self._guest(region, guest, before, *limits)
                known.guests[guest.vmid] = before
            return (*before.configured, *before.reported)

        found = await asyncio.gather(*map(read, guests))
        return tuple(user for users in found for user in users)

    def _is_old(self, before: _GuestAddresses, guest: ObservedGuest) -> bool:
        now = (guest.running, guest.host)
        expired = before.expiry <= self._clock.monotonic()
        return expired or (before.running, before.host) != now

    async def _guest(
        self,
        region: Region,
        guest: ObservedGuest,
        before: _GuestAddresses | None,
        configs: asyncio.Semaphore,
        agents: asyncio.Semaphore,
    ) -> _GuestAddresses:
        async with configs:
            config = await _config(region, guest)
        found = before.configured if before else ()
        heard = before.reported if before else ()
        if config is not None:
            found = tuple(configured(guest_name(guest), config))
            async with agents:
                heard = await _reported(region, guest, config, heard)
        expiry = self._clock.monotonic() + KEEP_SECONDS
        return _GuestAddresses(expiry, guest.running, guest.host, found, heard)

    async def _entries(self, region: Region, known: _RegionAddresses) -> tuple[IpamEntry, ...]:
        expiry, entries = known.entries
        if expiry <= self._clock.monotonic():
            try:
                entries = await region.reader.sdn.leases(IPAM)
            except (Retryable, Terminal):  # no SDN, or no privilege
                entries = ()
            known.entries = (self._clock.monotonic() + KEEP_SECONDS, entries)
        return entries


async def _config(region: Region, guest: ObservedGuest) -> GuestConfig | None:
    reader = region.reader.lxc if guest.kind == "lxc" else region.reader.qemu
    try:
        return await reader.config(guest.host, guest.vmid)
    except (Retryable, Terminal):
        return None


async def _reported(
    region: Region, guest: ObservedGuest, config: GuestConfig, before: tuple[AddressUser, ...]
) -> tuple[AddressUser, ...]:
    if not (guest.kind == "qemu" and guest.running and config.agent):
        return before
    try:
        async with asyncio.timeout(AGENT_SECONDS):
            interfaces = await region.reader.agent.interfaces(guest.host, guest.vmid)
    except (Retryable, Terminal, TimeoutError):
        return before
    return tuple(reported(guest_name(guest), config, interfaces))
