"""
Steps on a guest's configuration: options, CD-ROMs, disks, pending changes.

Each sends one request with only the values that differ, guarded by the digest of the configuration
that was read. A new drive and the boot order in one request give either order at random, so the
boot order is left for the next time.
"""

from collections.abc import Mapping

from moxwell.errors import Conflict
from moxwell.pve import errors, property_strings
from moxwell.pve.client import PveWriter
from moxwell.pve.guests import GuestConfig
from moxwell.pve.steps.contract import (
    Expectation,
    GuestStep,
    own_free_config,
    same_region,
)
from moxwell.pve.values import Upid

EMPTY_DRIVE = "none,media=cdrom"


class SlotTaken(Conflict):
    """The slot of a disk holds another volume."""

    reason = "SlotTaken"


def changed_values(config: GuestConfig, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the desired values that differ from the current ones."""
    return {
        key: value
        for key, value in wanted.items()
        if not property_strings.satisfied(key, value, config.raw.get(key))
    }


def keys_to_delete(config: GuestConfig, unwanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys to delete that are present."""
    return tuple(key for key in unwanted if key in config)


class Configure(GuestStep, frozen=True, kw_only=True):
    """
    Change a guest's configuration in one request.

    With the ``digest`` of a configuration whose owner was verified, nothing is read again.
    """

    certain = True

    changes: Mapping[str, str]
    delete: tuple[str, ...] = ()
    digest: str = ""

    def is_needed(self, config: GuestConfig) -> bool:
        """Report whether the step would change anything."""
        return bool(changed_values(config, self.changes) or keys_to_delete(config, self.delete))

    async def perform(self, pve: PveWriter) -> Upid | None:
        if self.digest:
            same_region(pve, self.guest.region)
            return await _write(pve, self, _boot_apart(self.changes, {}), self.delete, self.digest)
        config = await own_free_config(pve, self.guest)
        changes = _boot_apart(changed_values(config, self.changes), config.raw)
        delete = keys_to_delete(config, self.delete)
        if not changes and not delete:
            return None
        return await _write(pve, self, changes, delete, config.digest)

    def expects(self) -> Expectation | None:
        known: dict[str, object] = {}
        if "tags" in self.changes:
            known["tags"] = property_strings.tags(self.changes["tags"])
        if "name" in self.changes:
            known["name"] = self.changes["name"]
        return Expectation(self.guest.vmid, known) if known else None


def _boot_apart(changes: Mapping[str, str], current: Mapping[str, str]) -> dict[str, str]:
    """Return the changes without the boot order if they add a drive."""
    new = [key for key in changes if key in property_strings.DISK_KEYS and key not in current]
    return {key: value for key, value in changes.items() if key != "boot" or not new}


async def _write(
    pve: PveWriter,
    step: GuestStep,
    changes: Mapping[str, str],
    delete: tuple[str, ...],
    digest: str,
) -> Upid | None:
    """Send one request: synchronous, or a task if a volume is allocated."""
    guest = step.guest
    slow = any(
        key in property_strings.DISK_KEYS | {"efidisk0", "tpmstate0"}
        and (property_strings.is_allocation(value) or "import-from=" in value)
        for key, value in changes.items()
    )
    if slow:
        return await pve.qemu.configure_task(
            guest.host, guest.vmid, changes, delete=delete, digest=digest
        )
    await pve.qemu.configure(guest.host, guest.vmid, changes, delete=delete, digest=digest)
    return None


class AttachIso(GuestStep, frozen=True, kw_only=True):
    """Insert an ISO into a CD-ROM drive, which is created if it does not exist."""

    slot: str
    volid: str

    async def perform(self, pve: PveWriter) -> Upid | None:
        config = await own_free_config(pve, self.guest)
        held = config.get(self.slot)
        if property_strings.volume(held) == self.volid:
            return None
        if held and "media=cdrom" not in held:
            raise SlotTaken(f"{self.guest}: {self.slot} is a disk, not a CD-ROM drive")
        return await _write(pve, self, {self.slot: f"{self.volid},media=cdrom"}, (), config.digest)


class EjectIso(GuestStep, frozen=True, kw_only=True):
    """Eject an ISO; the empty drive stays, because IDE drives cannot be unplugged."""

    slot: str
    volid: str = ""  # if set, only this ISO

    async def perform(self, pve: PveWriter) -> Upid | None:
        config = await own_free_config(pve, self.guest)
        held = property_strings.volume(config.get(self.slot))
        if held in {"", "none"} or (self.volid and held != self.volid):
            return None
        return await _write(pve, self, {self.slot: EMPTY_DRIVE}, (), config.digest)


class ResizeDisk(GuestStep, frozen=True, kw_only=True):
    """Grow a disk to a size."""

    slot: str
    size_gib: int
    digest: str = ""

    def is_needed(self, config: GuestConfig) -> bool:
        return config.size_bytes(self.slot) < self.size_gib << 30

    async def perform(self, pve: PveWriter) -> Upid | None:
        digest = self.digest
        if not digest:
            config = await own_free_config(pve, self.guest)
            if self.slot not in config:
                raise errors.ObjectMissing(f"{self.guest} has no disk {self.slot}")
            if not self.is_needed(config):
                return None
            digest = config.digest
        same_region(pve, self.guest.region)
        return await pve.qemu.resize(
            self.guest.host, self.guest.vmid, self.slot, f"{self.size_gib}G", digest=digest
        )


class RemoveDisk(GuestStep, frozen=True, kw_only=True):
    """Detach a disk and delete its volume; another volume in the slot is kept."""

    slot: str
    volid: str

    async def perform(self, pve: PveWriter) -> Upid | None:
        config = await own_free_config(pve, self.guest)
        if self.slot not in config or property_strings.volume(config[self.slot]) != self.volid:
            return None
        await pve.qemu.configure(
            self.guest.host,
            self.guest.vmid,
            {},
            delete=(self.slot,),
            digest=config.digest,
            force=True,
        )
        return None
