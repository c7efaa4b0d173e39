"""
Contract of steps, and the checks that the guest on the server is the one a step names.

A step names its guest by region, VMID and owner mark and makes at most one change, perhaps as a
task. Tests check for every step: it may be performed twice, makes progress, never waits and refuses
a guest with another mark. A digest replaces the check, because Proxmox compares it under the
guest's lock.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from moxwell.errors import Bug
from moxwell.pve import errors, ownership, property_strings
from moxwell.pve.client import PveReader, PveWriter
from moxwell.pve.effects import Owned
from moxwell.pve.endpoints.guest import GuestStatus
from moxwell.pve.guests import GuestConfig
from moxwell.pve.ownership import Foreign, Mark
from moxwell.pve.values import Upid


class GuestRef(Struct, frozen=True):
    """Reference to a guest: where it is and whose it is."""

    region: str
    host: str
    vmid: int
    mark: Mark

    def __str__(self) -> str:
        return f"guest {self.vmid} in region {self.region}"


class Expectation(Struct, frozen=True):
    """State of a guest after a step's task succeeded; ``fields`` None: it is destroyed."""

    vmid: int
    fields: Mapping[str, Any] | None


class Step(Struct, frozen=True, tag=True, tag_field="step"):
    """One change in Proxmox as a value."""

    certain: ClassVar[bool] = False  # does a step without effect prove its expectation?

    async def perform(self, pve: PveWriter) -> Upid | None:
        """Make the change if it is needed; returns its task, if any."""
        raise NotImplementedError

    @property
    def region(self) -> str:
        """The region of the target."""
        raise NotImplementedError

    @property
    def vmid(self) -> int | None:
        """The guest it changes, if any."""
        return None

    @property
    def owned(self) -> Owned:
        """What it may write to; every other write is refused."""
        raise NotImplementedError

    def expects(self) -> Expectation | None:
        """The state that the inventory may assume after success."""
        return None


class RegionStep(Step, frozen=True, kw_only=True):
    """A step on something of a whole region that is no guest."""

    region_name: str

    @property
    def region(self) -> str:
        return self.region_name


class GuestStep(Step, frozen=True):
    """A step on one guest."""

    guest: GuestRef

    @property
    def region(self) -> str:
        return self.guest.region

    @property
    def vmid(self) -> int | None:
        return self.guest.vmid

    @property
    def shared_names(self) -> tuple[str, ...]:
        """Pools and HA rules that it changes besides its guest."""
        return ()

    @property
    def owned(self) -> Owned:
        return Owned(self.guest.mark.line, vmids=(self.guest.vmid,), names=self.shared_names)


def same_region(pve: PveReader, region: str) -> None:
    """Raise ``Bug`` if the client is of another region than the step."""
    if pve.region != region:
        raise Bug(f"a step for region {region} met the client of region {pve.region}")


def verify_words(text: str, mark: str, what: str) -> None:
    """Raise ``Foreign`` unless a comment or alias contains the mark of the owner."""
    if mark not in text.split():
        raise Foreign(f"{what} has another owner")


async def own_config(pve: PveReader, guest: GuestRef) -> GuestConfig:
    """Read the configuration and verify the owner."""
    same_region(pve, guest.region)
    config = await pve.qemu.config(guest.host, guest.vmid)
    ownership.verify(config, guest.mark, str(guest))
    return config


async def own_free_config(pve: PveReader, guest: GuestRef) -> GuestConfig:
    """Read the configuration, verify the owner, and raise ``Locked`` if the guest is locked."""
    config = await own_config(pve, guest)
    if config.lock:
        raise errors.Locked(f"{guest} is locked ({config.lock})")
    return config


async def own_status(pve: PveReader, guest: GuestRef) -> GuestStatus:
    """Read the power state and verify the owner, by tags if possible and else by configuration."""
    same_region(pve, guest.region)
    status = await pve.qemu.status(guest.host, guest.vmid)
    if not ownership.has_mark_tags(property_strings.tags(status.tags), guest.mark):
        await own_config(pve, guest)
    return status
