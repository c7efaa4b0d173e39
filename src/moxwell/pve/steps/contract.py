"""
What every step promises, and how it makes sure that the guest is the one it was meant for.

In: a frozen value that names its target by region, id *and* mark. Out: at most one change in
Proxmox, and the task it goes on as. The promises, checked for every step against the simulator:
taking it twice is harmless, it makes progress, it never waits, it refuses a foreign mark.
The surprise: a digest seen on the guest's own configuration is as good as reading it again, because
Proxmox compares it under the lock; so a step that is given one saves a request.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from moxwell.errors import Bug
from moxwell.pve import errors, ownership
from moxwell.pve.client import PveReader, PveWriter
from moxwell.pve.effects import Owned
from moxwell.pve.endpoints.guest import GuestStatus
from moxwell.pve.guests import GuestConfig
from moxwell.pve.ownership import Mark
from moxwell.pve.values import Upid


class GuestRef(Struct, frozen=True):
    """A guest as a step names it."""

    region: str
    host: str
    vmid: int
    mark: Mark

    def __str__(self) -> str:
        return f"guest {self.vmid} in region {self.region}"


class Expectation(Struct, frozen=True):
    """What will be true of a guest once a step's task went well; no fields: it is gone."""

    vmid: int
    fields: Mapping[str, Any] | None


class Step(Struct, frozen=True, tag=True, tag_field="step"):
    """One change in Proxmox, as a value."""

    certain: ClassVar[bool] = False  # does "nothing to do" prove that what it expects is true?

    async def perform(self, pve: PveWriter) -> Upid | None:
        """Make the change unless it is made; a task if it goes on as one."""
        raise NotImplementedError

    @property
    def region(self) -> str:
        """The region it belongs to."""
        raise NotImplementedError

    @property
    def vmid(self) -> int | None:
        """The guest it changes, if any."""
        return None

    @property
    def owned(self) -> Owned:
        """What it may touch; every write to anything else is refused."""
        raise NotImplementedError

    def expects(self) -> Expectation | None:
        """What the inventory may believe when it went well."""
        return None


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
        """The pools and HA rules that it changes beside its guest."""
        return ()

    @property
    def owned(self) -> Owned:
        return Owned(self.guest.mark.line, vmids=(self.guest.vmid,), names=self.shared_names)


def same_region(pve: PveReader, region: str) -> None:
    """A step never reaches another region than its own."""
    if pve.region != region:
        raise Bug(f"a step for region {region} met the client of region {pve.region}")


async def own_config(pve: PveReader, guest: GuestRef) -> GuestConfig:
    """The guest's configuration, after a look at its mark."""
    same_region(pve, guest.region)
    config = await pve.qemu.config(guest.host, guest.vmid)
    ownership.verify(config, guest.mark, str(guest))
    return config


async def own_free_config(pve: PveReader, guest: GuestRef) -> GuestConfig:
    """The same, of a guest that nobody has locked: Proxmox would let us wait for the lock."""
    config = await own_config(pve, guest)
    if config.lock:
        raise errors.Locked(f"{guest} is locked ({config.lock})")
    return config


async def own_status(pve: PveReader, guest: GuestRef) -> GuestStatus:
    """The guest's power state, after a look at its mark; one request if its tags tell."""
    same_region(pve, guest.region)
    status = await pve.qemu.status(guest.host, guest.vmid)
    if ownership.keys_in_tags(status.tags) != (guest.mark.key,):
        await own_config(pve, guest)
    return status
