"""
What hosts are fitted with that the inventory does not show: bridges, devices by mapping, firewall
and HA groups of their region; and which of them are in maintenance.

In: hosts of a region. Out: the names a guest may ask for there, or None where nobody could tell.
Read once per host and kept for a while, however many machines are placed; several that are placed
at once wait for one reading. What cannot be read is not known, and unknown is no reason against a
host: Proxmox would say so itself, only later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from moxwell.clock import Clock
from moxwell.errors import Retryable, Terminal
from moxwell.pve import errors, property_strings
from moxwell.pve.regions import Region

KEEP_SECONDS, KEEP_UNKNOWN_SECONDS = 600.0, 60.0
QUICK_SECONDS = 10.0  # as old as the list that hosts are judged by
Names = frozenset[str] | None
T = TypeVar("T")


@dataclass(slots=True)
class _Shelf:
    """What is known of one region."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    bridges: dict[str, tuple[float, Names]] = field(default_factory=dict)  # by host, until when
    mapped: tuple[float, Mapping[str, frozenset[str]] | None] = (0.0, None)  # host -> mappings
    maintained: tuple[float, Names] = (0.0, None)
    groups: dict[str, tuple[float, Names]] = field(default_factory=dict)  # when read


class Fittings:
    """The fittings of all hosts that somebody asked about."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Shelf] = {}

    async def bridges(self, region: Region, hosts: Iterable[str]) -> dict[str, Names]:
        """The bridges and VNets that we may use, by host."""
        known = self._known.setdefault(region.name, _Shelf())
        async with known.lock:
            stale = [h for h in hosts if self._is_over(known.bridges.get(h, (0.0, None))[0])]
            found = await asyncio.gather(*(_bridges(region, host) for host in stale))
            for host, names in zip(stale, found, strict=True):
                known.bridges[host] = (self._until(names is not None), names)
        return {host: names for host, (_, names) in known.bridges.items()}

    async def mappings(self, region: Region) -> Mapping[str, frozenset[str]] | None:
        """The PCI mappings with a device on a host, by host; None if nobody can tell."""
        known = self._known.setdefault(region.name, _Shelf())
        async with known.lock:
            if self._is_over(known.mapped[0]):
                found = await _mappings(region)
                known.mapped = (self._until(found is not None), found)
        return known.mapped[1]

    async def maintained(self, region: Region) -> frozenset[str]:
        """The hosts in maintenance; none where we may not know (Sys.Audit on ``/``)."""
        known = self._known.setdefault(region.name, _Shelf())
        async with known.lock:
            if self._is_over(known.maintained[0]):
                found = await _maintained(region)
                keep = KEEP_UNKNOWN_SECONDS if found is None else QUICK_SECONDS
                known.maintained = (self._clock.monotonic() + keep, found)
        return known.maintained[1] or frozenset()

    async def firewall_groups(self, region: Region, wanted: frozenset[str]) -> Names:
        """The security groups of a region; None if nobody can tell, or nobody asks."""
        return await self._groups(region, "firewall", wanted, _firewall_groups)

    async def ha_groups(self, region: Region, wanted: frozenset[str]) -> Names:
        """The HA groups of a region, or on 9 its rules; None if nobody can tell, or asks."""
        return await self._groups(region, "ha", wanted, _ha_groups)

    async def _groups(
        self,
        region: Region,
        kind: str,
        wanted: frozenset[str],
        read: Callable[[Region], Awaitable[Names]],
    ) -> Names:
        """Kept for long while all that is wanted is there; one that is missing may come soon."""
        if not wanted:
            return None
        known = self._known.setdefault(region.name, _Shelf())
        async with known.lock:
            at, names = known.groups.get(kind, (None, None))
            keep = KEEP_UNKNOWN_SECONDS if names is None else KEEP_SECONDS
            if names is not None and wanted - names:
                keep = QUICK_SECONDS
            if at is None or self._is_over(at + keep):
                names = await read(region)
                known.groups[kind] = (self._clock.monotonic(), names)
        return names

    def _is_over(self, until: float) -> bool:
        return self._clock.monotonic() >= until

    def _until(self, known: bool) -> float:
        return self._clock.monotonic() + (KEEP_SECONDS if known else KEEP_UNKNOWN_SECONDS)


async def _told(asked: Awaitable[T]) -> T | None:
    """What a region tells; what it does not tell is not known."""
    try:
        return await asked
    except (Retryable, Terminal):
        return None


async def _bridges(region: Region, host: str) -> Names:
    rows = await _told(region.pve.nodes.network(host, type="any_bridge"))
    return None if rows is None else frozenset(row.iface for row in rows)


async def _maintained(region: Region) -> Names:
    manager = await _told(region.pve.ha.manager())
    return None if manager is None else manager.in_maintenance


async def _firewall_groups(region: Region) -> Names:
    groups = await _told(region.pve.firewall.groups())
    return None if groups is None else frozenset(group.group for group in groups)


async def _ha_groups(region: Region) -> Names:
    try:
        rules = await region.pve.ha.rules()
    except errors.CannotHere:  # before 9
        groups = await _told(region.pve.ha.groups())
        return None if groups is None else frozenset(group.group for group in groups)
    except (Retryable, Terminal):
        return None
    return frozenset(rule.rule for rule in rules)


async def _mappings(region: Region) -> dict[str, frozenset[str]] | None:
    rows = await _told(region.pve.cluster.pci_mappings())
    if rows is None:
        return None
    found: dict[str, set[str]] = {}
    for row in rows:
        for text in row.map:
            host = property_strings.parse(text).get("node", "")
            found.setdefault(host, set()).add(row.id)
    return {host: frozenset(names) for host, names in found.items()}
