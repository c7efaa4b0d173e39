"""
From a node to its guest, through the shared inventories.

The answer is one of four: found, certainly gone, not ours, or unknown with a reason. Gone needs
proof about a VMID: the region answers, and says freshly that nobody has that VMID, or that a guest
of another name and UUID has it now. That no guest *we are shown* has a UUID proves nothing: a token
that lost a privilege is shown fewer. Indices answer; no guest is read that is not a candidate,
except that a UUID nobody knows is looked for once in every guest that nobody has read.
"""

import re
from dataclasses import dataclass, replace
from uuid import UUID

from moxwell.api.core.nodes import Node
from moxwell.clock import Clock
from moxwell.controllers.cloud.guest_facts import Facts, Reader
from moxwell.controllers.cloud.identity import INSTANCE_ID, PVE, REGION
from moxwell.errors import MoxwellError
from moxwell.pve.model import GuestSeen
from moxwell.pve.regions import Region, Regions

_ID = re.compile(r"^proxmox://([^/]+)/(\d+)$")
_UUID = re.compile(r"^proxmox://([0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})$")
HIDDEN_SECONDS = 60.0  # a guest that exists but is not shown is asked about this seldom


@dataclass(frozen=True, slots=True)
class Found:
    """The guest of a node, and what its configuration says."""

    region: Region
    guest: GuestSeen
    facts: Facts


@dataclass(frozen=True, slots=True)
class Gone:
    """There was a guest, and there is none any more."""

    what: str


@dataclass(frozen=True, slots=True)
class NotOurs:
    """A machine of another cloud, or of none; ``why`` where that is only a guess."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can say now."""

    why: str


Answer = Found | Gone | NotOurs | Unknown


def guest_of(node: Node) -> tuple[str, int] | None:
    """Region and VMID, as its provider ID says, or as we once noted on it."""
    if named := _ID.match(node.spec.provider_id):
        return named[1], int(named[2])
    noted = node.metadata.annotations.get(INSTANCE_ID, "")
    where = node.metadata.labels.get(f"{PVE}region") or node.metadata.labels.get(REGION, "")
    return (where, int(noted)) if noted.isdigit() and where else None


class Lookup:
    """Finds guests of nodes."""

    def __init__(self, regions: Regions, clock: Clock) -> None:
        self._regions, self._clock = regions, clock
        self._reader = Reader()
        self._hidden: dict[tuple[str, int], float] = {}  # when each was last seen to exist
        self.close = regions.subscribe(self._reader.heard)  # to hear no more

    async def find(self, node: Node) -> Answer:
        """The guest of a node."""
        provider = node.spec.provider_id
        named = _UUID.match(provider)
        if provider and not named and not _ID.match(provider):
            return NotOurs()
        try:
            if place := guest_of(node):
                return await self._by_id(node, *place, _uuid(node) or (named[1] if named else ""))
            if named:
                return await self._by_uuid(named[1].lower(), whose=True)
            return await self._unnamed(node)
        except MoxwellError as error:
            return Unknown(str(error))

    async def confirm(self, found: Found) -> Answer:
        """The same guest with its status asked of its own host: the list is up to a poll old."""
        guest, inventory = found.guest, found.region.inventory
        try:
            status = (await found.region.pve.qemu.status(guest.host, guest.vmid)).status
        except MoxwellError as error:
            return Unknown(str(error))
        if status != guest.status:
            inventory.learn(guest.vmid, status=status)
        return Found(found.region, replace(guest, status=status), found.facts)

    def expect(self) -> None:
        """A guest must be about to be listed: look at the regions soon."""
        for region in self._regions.values():
            region.inventory.work_is_under_way(5.0)

    async def _by_id(self, node: Node, name: str, vmid: int, uuid: str) -> Answer:
        region = self._regions.find(name)
        if region is None:
            return Unknown(f"region {name!r} is not configured")
        guest = region.inventory.find(vmid)
        if guest is None:
            return await self._missing(node, region, vmid, uuid)
        self._hidden.pop((name, vmid), None)
        facts = await self._reader.read(region, guest)
        if facts is not None and not _is_same(node.name, uuid, facts):
            facts = await self._reader.read(region, guest, fresh=True)
        if facts is None:
            return Unknown(f"guest {vmid} in {name} cannot be read")
        if _is_same(node.name, uuid, facts):
            return Found(region, guest, facts)
        return await self._another(node, region, guest, facts, uuid)

    async def _another(
        self, node: Node, region: Region, guest: GuestSeen, facts: Facts, uuid: str
    ) -> Answer:
        """The VMID has a guest that does not seem to be the node's."""
        whose = f"guest {guest.vmid} in {region.name}"
        if not uuid or _short(facts.name) == _short(node.name):
            return Unknown(f"{whose} is {facts.name} with UUID {facts.uuid}, not {uuid or 'known'}")
        moved = await self._by_uuid(uuid, whose=False)
        return Gone(f"{whose}, now {facts.name},") if isinstance(moved, NotOurs) else moved

    async def _missing(self, node: Node, region: Region, vmid: int, uuid: str) -> Answer:
        """Not in the list: it may be gone, or the list may be old, filtered or silent."""
        if not _answers(region):
            return Unknown(f"region {region.name} does not answer")
        now, key = self._clock.monotonic(), (region.name, vmid)
        rest = max(HIDDEN_SECONDS, float(len(self._hidden)))  # at most one question a second
        if key not in self._hidden or now - self._hidden[key] >= rest:
            if await region.inventory.is_gone(vmid):
                self._hidden.pop(key, None)
                moved = await self._by_name(node.name, uuid) if uuid else None
                return moved or Gone(f"guest {vmid} of region {region.name}")
            self._hidden[key] = now
        return Unknown(
            f"guest {vmid} of region {region.name} exists but is not shown to us: "
            "either it is very new, or the token has no VM.Audit on it"
        )

    async def _by_name(self, name: str, uuid: str) -> Found | None:
        """A guest of that name and UUID: under another VMID, perhaps in another region."""
        for region in self._regions.values():
            for guest in _called(region, name):
                facts = await self._reader.read(region, guest)
                if facts is not None and facts.uuid in _spellings(uuid):
                    return Found(region, guest, facts)
        return None

    async def _by_uuid(self, uuid: str, *, whose: bool) -> Answer:
        """``whose``: the UUID is certainly one of a guest of ours."""
        silent = []
        for region in self._regions.values():
            if not _answers(region):
                silent.append(region.name)
            elif found := await self._in_region(region, uuid):
                return found
        if silent:
            return Unknown(f"no answer from {', '.join(silent)}, where the guest may be")
        why = f"no guest that we are shown has UUID {uuid}"
        return Unknown(f"{why}; that does not prove it gone") if whose else NotOurs(why)

    async def _in_region(self, region: Region, uuid: str) -> Found | None:
        for spelling in _spellings(uuid):
            guest = await region.inventory.find_by_uuid(spelling)
            facts = await self._reader.read(region, guest) if guest is not None else None
            if guest is not None and facts is not None and facts.uuid == spelling:
                return Found(region, guest, facts)
        return None

    async def _unnamed(self, node: Node) -> Answer:
        """A node nobody has named yet: by name, confirmed by UUID; else by UUID."""
        uuid = _uuid(node)
        if not uuid:
            return Unknown("the node says no system UUID yet")
        if found := await self._by_name(node.name, uuid):
            return found
        answer = await self._by_uuid(uuid, whose=False)
        if not isinstance(answer, NotOurs):
            return answer
        alike = await self._without_uuid(node.name)
        if len(alike) > 1:
            return Unknown(f"{len(alike)} guests without UUID are called {node.name}")
        return alike[0] if alike else answer

    async def _without_uuid(self, name: str) -> list[Found]:
        """Old guests have no UUID in their configuration; their name must do."""
        found = []
        for region in self._regions.values():
            for guest in _called(region, name):
                facts = await self._reader.read(region, guest)
                if facts is not None and not facts.uuid:
                    found.append(Found(region, guest, facts))
        return found


def _answers(region: Region) -> bool:
    return region.inventory.synced and region.inventory.health.reachable


def _called(region: Region, name: str) -> tuple[GuestSeen, ...]:
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
    """Some firmware swaps the first bytes."""
    plain = UUID(uuid)
    return str(plain), str(UUID(bytes=plain.bytes_le))


def _is_same(name: str, uuid: str, facts: Facts) -> bool:
    """By UUID where both have one, else by name."""
    if not facts.uuid or not uuid:
        return _short(name) == _short(facts.name)
    return facts.uuid in _spellings(uuid)
