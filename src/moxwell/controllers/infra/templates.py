"""
Templates as the kernel wants them: where their disks lie, what NICs they have.

In: a template in the inventory. Out: its details, from its configuration. Read once and kept for a
while, however many machines are cloned from it; a template that looks different is read again. The
surprise: a guest without ``arch`` is what its host is, so that host is asked, once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from moxwell.clock import Clock
from moxwell.pve import property_strings
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import GuestSeen
from moxwell.pve.regions import Region
from moxwell.scheduling.guest_hardware import boot_disk
from moxwell.scheduling.inventory_model import HostKey, Template

KEEP_SECONDS = 600.0
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_WHOLE = frozenset({"lvm", "iscsi", "iscsidirect"})  # storages that cannot share a base image


@dataclass(frozen=True, slots=True)
class Mould:
    """A template and its insides."""

    template: Template
    config: Mapping[str, str]
    boot_bytes: int
    linkable: bool

    @property
    def nics(self) -> Mapping[str, str]:
        return {k: v for k, v in self.config.items() if k.startswith("net") and k[3:].isdigit()}


@dataclass(frozen=True, slots=True)
class _Kept:
    at: float
    seen: GuestSeen
    mould: Mould


class Moulds:
    """The templates of all regions that somebody asked for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, int], _Kept] = {}
        self._machines: dict[tuple[str, str], str] = {}  # by region and host

    async def get(self, region: Region, seen: GuestSeen) -> Mould:
        """The details of a template."""
        now = self._clock.monotonic()
        kept = self._kept.get((region.name, seen.vmid))
        if kept is not None and kept.seen == seen and now - kept.at < KEEP_SECONDS:
            return kept.mould
        config = await region.pve.qemu.config(seen.host, seen.vmid)
        mould = mould_of(region, seen, config)
        self._kept[(region.name, seen.vmid)] = _Kept(now, seen, mould)
        return mould

    async def architecture(self, region: Region, seen: GuestSeen) -> str:
        """What a guest cloned from a template is, in Kubernetes' words; empty: nobody can tell."""
        word = (await self.get(region, seen)).config.get("arch", "")
        at = (region.name, seen.host)
        if not word and at not in self._machines:
            status = await region.pve.nodes.status(seen.host)
            self._machines[at] = status.current_kernel.machine
        word = word or self._machines[at]
        return ARCHITECTURES.get(word, word)


def bare(region: str, seen: GuestSeen) -> Template:
    """What the inventory alone tells of a template: enough to match its name and tags."""
    return Template(HostKey(region, seen.host), seen.vmid, seen.name, frozenset(seen.tags))


def mould_of(region: Region, seen: GuestSeen, config: GuestConfig) -> Mould:
    """A template and its insides, as values."""
    drives = {s: v for s, v in config.disks.items() if not _is_media(v)}
    used = frozenset(property_strings.volume(v).partition(":")[0] for v in drives.values()) - {""}
    rows = [region.inventory.storage(seen.host, name) for name in used]
    slot = boot_disk(config.raw)
    template = Template(
        HostKey(region.name, seen.host),
        seen.vmid,
        seen.name,
        frozenset(seen.tags),
        used,
        shared=bool(rows) and all(row is not None and row.shared for row in rows),
        disk_bytes=sum(config.size_bytes(s) for s in drives),
    )
    linkable = bool(rows) and all(row is not None and row.type not in _WHOLE for row in rows)
    return Mould(template, dict(config.raw), config.size_bytes(slot), linkable)


def _is_media(drive: str) -> bool:
    return "media=cdrom" in drive or "cloudinit" in drive
