"""
Details of Proxmox templates: storages, NICs, disk sizes, architecture.

Reads a template's configuration from Proxmox and caches it; a template whose inventory row changes
is read again. A template without ``arch`` has the architecture of its host, which is read once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from moxwell.clock import Clock
from moxwell.pve import property_strings
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import ObservedGuest
from moxwell.pve.ownership import user_tags
from moxwell.pve.regions import Region
from moxwell.scheduling.inventory_model import HostKey, Template
from moxwell.scheduling.well_known_labels import architecture

KEEP_SECONDS = 600.0
_NO_LINKED_CLONES = frozenset({"lvm", "iscsi", "iscsidirect"})


@dataclass(frozen=True, slots=True)
class TemplateDetails:
    """A template with its configuration."""

    template: Template
    config: Mapping[str, str]
    linkable: bool

    @property
    def nics(self) -> Mapping[str, str]:
        return {k: v for k, v in self.config.items() if k.startswith("net") and k[3:].isdigit()}


@dataclass(frozen=True, slots=True)
class _Entry:
    at: float
    guest: ObservedGuest
    details: TemplateDetails


class TemplateCache:
    """The templates of all regions asked for so far."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[tuple[str, int], _Entry] = {}
        self._host_architectures: dict[tuple[str, str], str] = {}  # by region and host

    async def get(self, region: Region, guest: ObservedGuest) -> TemplateDetails:
        """The details of a template."""
        now = self._clock.monotonic()
        entry = self._entries.get((region.key, guest.vmid))
        if entry is not None and entry.guest == guest and now - entry.at < KEEP_SECONDS:
            return entry.details
        config = await region.reader.qemu.config(guest.host, guest.vmid)
        details = template_details_of(region, guest, config)
        self._entries[(region.key, guest.vmid)] = _Entry(now, guest, details)
        return details

    async def architecture(self, region: Region, guest: ObservedGuest) -> str:
        """The ``kubernetes.io/arch`` of guests cloned from a template; empty if unknown."""
        arch = (await self.get(region, guest)).config.get("arch", "")
        at = (region.key, guest.host)
        if not arch and at not in self._host_architectures:
            status = await region.reader.nodes.status(guest.host)
            self._host_architectures[at] = status.current_kernel.machine
        arch = arch or self._host_architectures[at]
        return architecture(arch)


def template_of(region: str, guest: ObservedGuest) -> Template:
    """A template as the inventory shows it: enough to match its name and the tags of its user."""
    tags = frozenset(user_tags(guest.tags))
    return Template(HostKey(region, guest.host), guest.vmid, guest.name, tags)


def template_details_of(
    region: Region, guest: ObservedGuest, config: GuestConfig
) -> TemplateDetails:
    """A template with the details of its configuration."""
    drives = {s: v for s, v in config.disks.items() if not _is_media(v)}
    used = frozenset(property_strings.volume(v).partition(":")[0] for v in drives.values()) - {""}
    rows = [region.inventory.storage(guest.host, name) for name in used]
    template = Template(
        HostKey(region.name, guest.host),
        guest.vmid,
        guest.name,
        frozenset(user_tags(guest.tags)),
        used,
        shared=bool(rows) and all(row is not None and row.shared for row in rows),
        disk_bytes=sum(config.size_bytes(s) for s in drives),
    )
    linkable = bool(rows) and all(
        row is not None and row.type not in _NO_LINKED_CLONES for row in rows
    )
    return TemplateDetails(template, dict(config.raw), linkable)


def _is_media(drive: str) -> bool:
    return "media=cdrom" in drive or "cloudinit" in drive
