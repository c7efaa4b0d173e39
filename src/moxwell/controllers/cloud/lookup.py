"""
From a node to its guest, through the shared inventories.

The answer is one of four: found, certainly gone, not ours, or unknown with a reason. Only what was
asked freshly of a region that answers can be gone; whatever else goes wrong is unknown. A VMID that
now belongs to another guest is seen by its UUID. Indices answer; no guest is read that is not a
candidate, except that a UUID nobody knows is looked for once in every guest that nobody has read.
"""

import re
from dataclasses import dataclass
from uuid import UUID

from moxwell.api.core.nodes import Node
from moxwell.controllers.cloud.identity import INSTANCE_ID, PVE, REGION
from moxwell.errors import MoxwellError
from moxwell.pve import errors
from moxwell.pve.guests import GuestConfig
from moxwell.pve.regions import Region, Regions
from moxwell.pve.seen import GuestSeen

_ID = re.compile(r"^proxmox://([^/]+)/(\d+)$")
_UUID = re.compile(r"^proxmox://([0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})$")


@dataclass(frozen=True, slots=True)
class Found:
    """The guest of a node, and its configuration."""

    region: Region
    guest: GuestSeen
    config: GuestConfig


@dataclass(frozen=True, slots=True)
class Gone:
    """There was a guest, and there is none any more."""

    what: str


@dataclass(frozen=True, slots=True)
class NotOurs:
    """A machine of another cloud, or of none."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can say now."""

    why: str


Answer = Found | Gone | NotOurs | Unknown


class Lookup:
    """Finds guests of nodes."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    async def find(self, node: Node) -> Answer:
        """The guest of a node."""
        provider = node.spec.provider_id
        try:
            if named := _ID.match(provider):
                return await self._by_id(node, named[1], int(named[2]))
            if named := _UUID.match(provider):
                return await self._by_uuid(node, named[1], known=True)
            if provider:
                return NotOurs()
            return await self._unnamed(node)
        except MoxwellError as error:
            return Unknown(str(error))

    async def _by_id(self, node: Node, name: str, vmid: int) -> Answer:
        region = self._regions.find(name)
        if region is None:
            return Unknown(f"region {name!r} is not configured")
        guest = region.inventory.find(vmid)
        if guest is not None:
            found = await self._read(region, guest)
            if found is None or _is_same(node, found.config):
                return found or Unknown(f"guest {vmid} in {name} cannot be read")
            if not _uuid(node):
                return Unknown(f"guest {vmid} in {name} is called {found.config.name}, not so")
            return await self._by_uuid(node, _uuid(node), known=True)
        return await self._missing(region, vmid)

    async def _missing(self, region: Region, vmid: int) -> Answer:
        """Not in the list: it may be gone, or the list may be old, filtered or silent."""
        health = region.inventory.health
        if not region.inventory.synced or (health is not None and not health.reachable):
            return Unknown(f"region {region.name} does not answer")
        if await region.inventory.is_gone(vmid):
            return Gone(f"guest {vmid} of region {region.name}")
        return Unknown(
            f"guest {vmid} of region {region.name} exists but is not shown to us: "
            "does the token still have VM.Audit?"
        )

    async def _by_uuid(self, node: Node, uuid: str, *, known: bool) -> Answer:
        silent = []
        for region in self._regions.values():
            health = region.inventory.health
            if not region.inventory.synced or (health is not None and not health.reachable):
                silent.append(region.name)
                continue
            guest = await region.inventory.find_by_uuid(uuid)
            if guest is not None:
                found = await self._read(region, guest)
                if found is not None and found.config.uuid.lower() == uuid.lower():
                    return found
        if silent:
            return Unknown(f"regions {', '.join(silent)} do not answer")
        return Gone(f"the guest with UUID {uuid}") if known else NotOurs()

    async def _unnamed(self, node: Node) -> Answer:
        """A node without provider ID: by annotation, by name, by UUID."""
        noted = node.metadata.annotations.get(INSTANCE_ID, "")
        where = node.metadata.labels.get(f"{PVE}region") or node.metadata.labels.get(REGION, "")
        if noted.isdigit() and where:
            return await self._by_id(node, where, int(noted))
        for region in self._regions.values():
            for guest in region.inventory.find_by_name(_short(node.name)):
                found = await self._read(region, guest)
                if found is not None and _is_same(node, found.config):
                    return found
        uuid = _uuid(node)
        if not uuid:
            return Unknown("the node says no system UUID yet")
        return await self._by_uuid(node, uuid, known=False)

    async def _read(self, region: Region, guest: GuestSeen) -> Found | None:
        if guest.kind != "qemu":
            return None
        try:
            config = await region.pve.qemu.config(guest.host, guest.vmid)
        except errors.GuestMissing:
            return None
        region.inventory.uuids.learn(guest.vmid, config)
        return Found(region, guest, config)


def _short(name: str) -> str:
    return name.partition(".")[0]


def _uuid(node: Node) -> str:
    text = node.status.node_info.system_uuid
    try:
        return str(UUID(text))
    except ValueError:
        return ""


def _is_same(node: Node, config: GuestConfig) -> bool:
    """By UUID where both have one; some firmware swaps the first bytes."""
    ours, theirs = config.uuid.lower(), _uuid(node)
    if not ours or not theirs:
        return _short(node.name) == config.name.partition(".")[0]
    swapped = str(UUID(bytes=UUID(theirs).bytes_le))
    return ours in {theirs, swapped}
