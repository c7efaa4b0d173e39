"""
Finds the guest of a node in the inventories of the regions. Reads only.

The result is found, gone, not a guest of ours, or unknown with a reason. ``GuestGone`` needs proof
about a VMID: the region answers, and reports that the VMID is free or belongs to a guest of another
name and UUID. A UUID that no listed guest has proves nothing, because a token that lost a privilege
sees fewer guests. Only candidates are read, except that an unknown UUID is searched once in every
guest whose configuration was not read yet.
"""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from moxwell.api.core.nodes import Node
from moxwell.clock import Clock
from moxwell.controllers.cloud.guest_facts import GuestFacts, GuestFactsReader
from moxwell.controllers.cloud.identity import INSTANCE_ID, PVE, REGION
from moxwell.errors import MoxwellError
from moxwell.pve.errors import GuestMissing
from moxwell.pve.model import InventoryChange, InventoryEvent, ObservedGuest
from moxwell.pve.regions import Region, Regions

_ID = re.compile(r"^proxmox://([^/]+)/(\d+)$")
_UUID = re.compile(r"^proxmox://([0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})$")
NEW_SECONDS = 12.0  # how long the list may show another name of a new guest
GONE_SECONDS = 5.0  # how long an unused VMID is not asked for again
HIDDEN_SECONDS = 60.0  # between checks of a guest that exists but is not listed


@dataclass(frozen=True, slots=True)
class GuestFound:
    """The guest of a node and the facts of its configuration."""

    region: Region
    guest: ObservedGuest
    facts: GuestFacts


@dataclass(frozen=True, slots=True)
class GuestGone:
    """The guest does not exist any more."""

    what: str


@dataclass(frozen=True, slots=True)
class NotAGuest:
    """No guest of a configured region; ``why`` if that is only likely."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class GuestUnknown:
    """It cannot be decided now."""

    why: str


LookupResult = GuestFound | GuestGone | NotAGuest | GuestUnknown


def guest_of(node: Node) -> tuple[str, int] | None:
    """Region and VMID from the provider ID, or from the labels and annotation we set."""
    if named := _ID.match(node.spec.provider_id):
        return named[1], int(named[2])
    instance_id = node.metadata.annotations.get(INSTANCE_ID, "")
    region = node.metadata.labels.get(f"{PVE}region") or node.metadata.labels.get(REGION, "")
    return (region, int(instance_id)) if instance_id.isdigit() and region else None


class GuestLookup:
    """Finds the guests of nodes."""

    def __init__(self, regions: Regions, clock: Clock) -> None:
        self._regions, self._clock = regions, clock
        self._reader = GuestFactsReader()
        self._hidden: dict[tuple[str, int], float] = {}  # when each was last confirmed to exist
        self._gone: dict[tuple[str, int], float] = {}  # when Proxmox called each VMID unused
        self._new: dict[tuple[str, int], float] = {}  # when each guest was listed first
        self.close = regions.subscribe(self._inventory_changed)  # ends the subscription

    async def find(self, node: Node) -> LookupResult:
        """The guest of a node, or why it is not found."""
        provider = node.spec.provider_id
        named = _UUID.match(provider)
        if provider and not named and not _ID.match(provider):
            return NotAGuest()
        try:
            if place := guest_of(node):
                return await self._by_id(node, *place, _uuid(node) or (named[1] if named else ""))
            if named:
                return await self._by_uuid(named[1].lower(), certain=True)
            return await self._unnamed(node)
        except MoxwellError as error:
            return GuestUnknown(str(error))

    def _inventory_changed(self, event: InventoryEvent) -> None:
        self._reader.inventory_changed(event)
        if not isinstance(event, InventoryChange) or event.before is not None:
            return
        if isinstance(event.after, ObservedGuest) and self._is_synced(event.region):
            now = self._clock.monotonic()
            self._new = {k: at for k, at in self._new.items() if now - at < NEW_SECONDS}
            self._new[event.region, event.after.vmid] = now

    def _is_synced(self, name: str) -> bool:
        region = self._regions.find(name)
        return region is not None and region.inventory.synced

    async def confirm(self, node: Node, found: GuestFound) -> LookupResult:
        """The same guest with its status from its own host; the inventory may be one poll old."""
        guest, inventory = found.guest, found.region.inventory
        try:
            status = (await found.region.reader.qemu.status(guest.host, guest.vmid)).status
        except GuestMissing:
            return await self._missing(node, found.region, guest.vmid, found.facts.uuid)
        except MoxwellError as error:
            return GuestUnknown(str(error))
        if status != guest.status:
            inventory.learn(guest.vmid, status=status)
        return GuestFound(found.region, replace(guest, status=status), found.facts)

    def expect(self) -> None:
        """Poll the regions soon, because a new guest is expected."""
        for region in self._regions.values():
            region.inventory.poll_frequently(5.0)

    def expect_change(self, region: Region, at: datetime | None) -> None:
        """Poll a region soon if its list may be older than what happened to a node."""
        if at is not None:
            region.inventory.expect_change((self._clock.now() - at).total_seconds())

    async def _by_id(self, node: Node, name: str, vmid: int, uuid: str) -> LookupResult:
        region = self._regions.find(name)
        if region is None:
            return GuestUnknown(f"region {name!r} is not configured")
        guest = region.inventory.find(vmid)
        if guest is None:
            return await self._missing(node, region, vmid, uuid)
        self._hidden.pop((name, vmid), None)
        facts = await self._reader.read(region, guest)
        if facts is not None and not _is_same_guest(node.name, uuid, facts):
            facts = await self._reader.read(region, guest, fresh=True)
        if facts is None:
            return GuestUnknown(f"guest {vmid} in {name} cannot be read")
        if _is_same_guest(node.name, uuid, facts):
            return GuestFound(region, guest, facts)
        return await self._another(node, region, guest, facts, uuid)

    async def _another(
        self, node: Node, region: Region, guest: ObservedGuest, facts: GuestFacts, uuid: str
    ) -> LookupResult:
        """The VMID belongs to a guest that does not look like the node's."""
        label = f"guest {guest.vmid} in {region.name}"
        if not uuid or _short(facts.name) == _short(node.name):
            return GuestUnknown(
                f"{label} is {facts.name} with UUID {facts.uuid}, not {uuid or 'known'}"
            )
        moved = await self._by_uuid(uuid, certain=False)
        return GuestGone(f"{label}, now {facts.name},") if isinstance(moved, NotAGuest) else moved

    async def _missing(self, node: Node, region: Region, vmid: int, uuid: str) -> LookupResult:
        """The VMID is not listed: deleted, not listed yet, or not visible to the token."""
        if not _answers(region):
            return GuestUnknown(f"region {region.name} does not answer")
        now, key = self._clock.monotonic(), (region.name, vmid)
        pause = max(HIDDEN_SECONDS, float(len(self._hidden)))  # at most one check per second
        if key not in self._hidden or now - self._hidden[key] >= pause:
            if await self._is_gone(region, vmid):
                self._hidden.pop(key, None)
                moved = await self._by_name(node.name, uuid, new=True) if uuid else None
                return moved or GuestGone(f"guest {vmid} of region {region.name}")
            self._hidden[key] = now
        return GuestUnknown(
            f"guest {vmid} of region {region.name} exists but is not visible: "
            "either it is new, or the token has no VM.Audit on it"
        )

    async def _is_gone(self, region: Region, vmid: int) -> bool:
        """Whether a VMID is unused; the passes of several controllers share an answer."""
        now, key = self._clock.monotonic(), (region.name, vmid)
        self._gone = {k: at for k, at in self._gone.items() if now - at < GONE_SECONDS}
        if key in self._gone:
            return True
        gone = await region.inventory.is_gone(vmid)
        if gone:
            self._gone[key] = now
        return gone

    async def _by_name(self, name: str, uuid: str, *, new: bool = False) -> GuestFound | None:
        """
        A guest of that name and UUID under another VMID, perhaps in another region.

        With ``new`` also guests whose name may not be listed yet.
        """
        for region in self._regions.values():
            for guest in (*_called(region, name), *(self._new_guests(region) if new else ())):
                facts = await self._reader.read(region, guest)
                if facts is not None and facts.uuid in _spellings(uuid):
                    return GuestFound(region, guest, facts)
        return None

    def _new_guests(self, region: Region) -> list[ObservedGuest]:
        """Guests that are listed since a few seconds, perhaps without their name."""
        now = self._clock.monotonic()
        new = [v for (r, v), at in self._new.items() if r == region.name and now - at < NEW_SECONDS]
        return [guest for vmid in new if (guest := region.inventory.find(vmid)) is not None]

    async def _by_uuid(self, uuid: str, *, certain: bool) -> LookupResult:
        """Search a UUID; ``certain``: it belongs to a guest of a configured region."""
        unreachable = []
        for region in self._regions.values():
            if not _answers(region):
                unreachable.append(region.name)
            elif found := await self._in_region(region, uuid):
                return found
        if unreachable:
            return GuestUnknown(f"no answer from {', '.join(unreachable)}, where the guest may be")
        why = f"no listed guest has UUID {uuid}"
        return (
            GuestUnknown(f"{why}, which does not prove that it is deleted")
            if certain
            else NotAGuest(why)
        )

    async def _in_region(self, region: Region, uuid: str) -> GuestFound | None:
        for spelling in _spellings(uuid):
            guest = await region.inventory.find_by_uuid(spelling)
            facts = await self._reader.read(region, guest) if guest is not None else None
            if guest is not None and facts is not None and facts.uuid == spelling:
                return GuestFound(region, guest, facts)
        return None

    async def _unnamed(self, node: Node) -> LookupResult:
        """A node without provider ID: by name and UUID, else by UUID."""
        uuid = _uuid(node)
        if not uuid:
            return GuestUnknown("the node reports no system UUID yet")
        if found := await self._by_name(node.name, uuid):
            return found
        answer = await self._by_uuid(uuid, certain=False)
        if not isinstance(answer, NotAGuest):
            return answer
        alike = await self._without_uuid(node.name)
        if len(alike) > 1:
            return GuestUnknown(f"{len(alike)} guests without UUID have the name {node.name}")
        return alike[0] if alike else answer

    async def _without_uuid(self, name: str) -> list[GuestFound]:
        """Guests of that name without a UUID in their configuration, as old guests are."""
        found = []
        for region in self._regions.values():
            for guest in _called(region, name):
                facts = await self._reader.read(region, guest)
                if facts is not None and not facts.uuid:
                    found.append(GuestFound(region, guest, facts))
        return found


def _answers(region: Region) -> bool:
    return region.inventory.synced and region.inventory.health.reachable


def _called(region: Region, name: str) -> tuple[ObservedGuest, ...]:
    names = dict.fromkeys((name, _short(name)))
    return tuple(g for n in names for g in region.inventory.find_by_name(n) if not g.template)


def _short(name: str) -> str:
    return name.partition(".")[0].lower()


def _uuid(node: Node) -> str:
    text = node.status.node_info.system_uuid
    try:
        return str(UUID(text))
    except ValueError:
        return ""


def _spellings(uuid: str) -> tuple[str, ...]:
    """The UUID, and the form in which some firmware swaps the first bytes."""
    plain = UUID(uuid)
    return str(plain), str(UUID(bytes=plain.bytes_le))


def _is_same_guest(name: str, uuid: str, facts: GuestFacts) -> bool:
    """Compare UUIDs if both have one, else names."""
    if not facts.uuid or not uuid:
        return _short(name) == _short(facts.name)
    return facts.uuid in _spellings(uuid)
