"""
What Proxmox hosts offer beyond the inventory: bridges, PCI mappings, firewall groups, HA groups
or rules, maintenance mode, architecture.

Reads Proxmox and caches the answers per region, so that concurrent placements cause one request.
``None`` means unknown (no permission, no answer); placement does not reject a host for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from moxwell.clock import Clock
from moxwell.errors import Retryable, Terminal
from moxwell.pve import property_strings
from moxwell.pve.endpoints.nodes import HostInterface
from moxwell.pve.regions import Region
from moxwell.scheduling.numa.devices import split_addresses
from moxwell.scheduling.well_known_labels import architecture

KEEP_SECONDS, KEEP_UNKNOWN_SECONDS = 600.0, 60.0
QUICK_SECONDS = 10.0  # the age of the inventory
Names = frozenset[str] | None
Bridges = Mapping[str, HostInterface] | None  # by name
MappedDevices = Mapping[str, Mapping[str, frozenset[str]]]  # PCI addresses by host and mapping
T = TypeVar("T")


@dataclass(slots=True)
class _RegionCapabilities:
    """The cached answers of one region."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    bridges: dict[str, tuple[float, Bridges]] = field(default_factory=dict)  # by host, with expiry
    mapped: tuple[float, MappedDevices | None] = (0.0, None)
    maintenance: tuple[float, Names] = (0.0, None)
    groups: dict[str, tuple[float, Names]] = field(default_factory=dict)  # with time of reading
    architectures: dict[str, tuple[float, str]] = field(default_factory=dict)  # with expiry


class HostCapabilityCache:
    """The capabilities of all hosts asked for so far."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _RegionCapabilities] = {}

    async def bridges(self, region: Region, hosts: Iterable[str]) -> dict[str, Names]:
        """The bridges and VNets that the token may use, by host."""
        found = await self._bridge_rows(region, hosts)
        return {h: None if rows is None else frozenset(rows) for h, rows in found.items()}

    async def host_bridges(self, region: Region, host: str) -> Mapping[str, HostInterface]:
        """The bridges of one host with their addresses; empty if they are unknown."""
        return (await self._bridge_rows(region, [host])).get(host) or {}

    async def _bridge_rows(self, region: Region, hosts: Iterable[str]) -> dict[str, Bridges]:
        known = self._known.setdefault(region.key, _RegionCapabilities())
        async with known.lock:
            stale = [h for h in hosts if self._expired(known.bridges.get(h, (0.0, None))[0])]
            found = await asyncio.gather(*(_bridges(region, host) for host in stale))
            for host, rows in zip(stale, found, strict=True):
                known.bridges[host] = (self._expiry(bool(rows)), rows)  # none: no privilege
        return {host: rows for host, (_, rows) in known.bridges.items()}

    async def architectures(self, region: Region, hosts: Iterable[str]) -> dict[str, str]:
        """The ``kubernetes.io/arch`` of the hosts by their kernels; empty if unknown."""
        known = self._known.setdefault(region.key, _RegionCapabilities())
        async with known.lock:
            stale = [h for h in hosts if self._expired(known.architectures.get(h, (0.0, ""))[0])]
            found = await asyncio.gather(*(_architecture(region, host) for host in stale))
            for host, arch in zip(stale, found, strict=True):
                known.architectures[host] = (self._expiry(bool(arch)), arch)
        return {host: arch for host, (_, arch) in known.architectures.items()}

    async def mappings(self, region: Region) -> Mapping[str, frozenset[str]] | None:
        """The PCI resource mappings with a device on each host; None if unknown."""
        found = await self.mapped_devices(region)
        return None if found is None else {host: frozenset(names) for host, names in found.items()}

    async def mapped_devices(self, region: Region) -> MappedDevices | None:
        """The PCI addresses of each mapping on each host; None if unknown."""
        known = self._known.setdefault(region.key, _RegionCapabilities())
        async with known.lock:
            if self._expired(known.mapped[0]):
                found = await _mappings(region)
                known.mapped = (self._expiry(found is not None), found)
        return known.mapped[1]

    async def in_maintenance(self, region: Region) -> frozenset[str]:
        """The hosts in maintenance mode; empty without Sys.Audit on ``/``."""
        known = self._known.setdefault(region.key, _RegionCapabilities())
        async with known.lock:
            if self._expired(known.maintenance[0]):
                found = await _maintenance(region)
                keep = KEEP_UNKNOWN_SECONDS if found is None else QUICK_SECONDS
                known.maintenance = (self._clock.monotonic() + keep, found)
        return known.maintenance[1] or frozenset()

    async def firewall_groups(self, region: Region, wanted: frozenset[str]) -> Names:
        """The security groups of a region; None if unknown or none is wanted."""
        return await self._groups(region, "firewall", wanted, _firewall_groups)

    async def ha_groups(self, region: Region, wanted: frozenset[str]) -> Names:
        """The HA groups of a region, from 9 on its rules; None if unknown or none is wanted."""
        return await self._groups(region, "ha", wanted, _ha_groups)

    async def _groups(
        self,
        region: Region,
        kind: str,
        wanted: frozenset[str],
        read: Callable[[Region], Awaitable[Names]],
    ) -> Names:
        """Cache longer if every wanted group exists; read again soon if one is missing."""
        if not wanted:
            return None
        known = self._known.setdefault(region.key, _RegionCapabilities())
        async with known.lock:
            at, names = known.groups.get(kind, (None, None))
            keep = KEEP_UNKNOWN_SECONDS if names is None else KEEP_SECONDS
            if names is not None and wanted - names:
                keep = QUICK_SECONDS
            if at is None or self._expired(at + keep):
                names = await read(region)
                known.groups[kind] = (self._clock.monotonic(), names)
        return names

    def _expired(self, until: float) -> bool:
        return self._clock.monotonic() >= until

    def _expiry(self, known: bool) -> float:
        return self._clock.monotonic() + (KEEP_SECONDS if known else KEEP_UNKNOWN_SECONDS)


async def _or_none(request: Awaitable[T]) -> T | None:
    """The answer to a request; None if it fails."""
    try:
        return await request
    except (Retryable, Terminal):
        return None


async def _bridges(region: Region, host: str) -> Bridges:
    """The bridges and VNets that are up: Proxmox also lists those that are not applied yet."""
    rows = await _or_none(region.reader.nodes.network(host, type="any_bridge"))
    if rows is None:
        return None
    return {row.iface: row for row in rows if row.active or row.type == "vnet"}


async def _architecture(region: Region, host: str) -> str:
    status = await _or_none(region.reader.nodes.status(host))
    return architecture(status.current_kernel.machine) if status else ""


async def _maintenance(region: Region) -> Names:
    manager = await _or_none(region.reader.ha.manager())
    return None if manager is None else manager.in_maintenance


async def _firewall_groups(region: Region) -> Names:
    groups = await _or_none(region.reader.firewall.groups())
    return None if groups is None else frozenset(group.group for group in groups)


async def _ha_groups(region: Region) -> Names:
    has_rules = await _or_none(region.reader.has_ha_rules())
    if has_rules is None:
        return None
    if has_rules:
        rules = await _or_none(region.reader.ha.rules())
        return None if rules is None else frozenset(rule.rule for rule in rules)
    groups = await _or_none(region.reader.ha.groups())
    return None if groups is None else frozenset(group.group for group in groups)


async def _mappings(region: Region) -> MappedDevices | None:
    rows = await _or_none(region.reader.cluster.pci_mappings())
    if not rows:  # Proxmox lists only mappings that the token may use: none proves nothing
        return None
    found: dict[str, dict[str, frozenset[str]]] = {}
    for row in rows:
        for text in row.map:
            parts = property_strings.parse(text)
            names = found.setdefault(parts.get("node", ""), {})
            devices = split_addresses(parts.get("path", ""))
            names[row.id] = names.get(row.id, frozenset()) | devices
    return found
