"""
Steps that clone, create, convert, migrate and destroy guests.

A running clone shows neither its mark nor its name. A guest that is missing on a host may have
migrated; a step without effect does not prove that the guest is gone from the region.
"""

from collections.abc import Mapping

from moxwell.pve import errors, ownership
from moxwell.pve.client import PveWriter
from moxwell.pve.steps.contract import (
    Expectation,
    GuestRef,
    GuestStep,
    own_config,
    own_free_config,
    same_region,
)
from moxwell.pve.values import Upid


class Clone(GuestStep, frozen=True, kw_only=True):
    """
    Clone a template to the claimed VMID, with the mark in the description.

    ``guest.host`` is the target host, ``template_host`` the host of the template.
    """

    template: int
    template_host: str
    name: str
    description: str = ""
    full: bool = False
    storage: str = ""
    format: str = ""
    pool: str = ""
    snapshot: str = ""

    async def perform(self, pve: PveWriter) -> Upid | None:
        same_region(pve, self.guest.region)
        moved = self.guest.host != self.template_host
        try:
            return await pve.qemu.clone(
                self.template_host,
                self.template,
                self.guest.vmid,
                name=self.name,
                description=self.guest.mark.describe(self.description),
                full=self.full,
                target=self.guest.host if moved else None,
                storage=self.storage or None,
                format=self.format or None,
                pool=self.pool or None,
                snapname=self.snapshot or None,
            )
        except errors.Exists:
            await own_config(pve, self.guest)  # the owner's own guest: an earlier call succeeded
            return None

    def expects(self) -> Expectation:
        fields = {"host": self.guest.host, "name": self.name, "status": "stopped", "lock": ""}
        return Expectation(self.guest.vmid, {**fields, "template": False})


class CreateGuest(GuestStep, frozen=True, kw_only=True):
    """Create a guest from a configuration with the mark; disks may use ``import-from``."""

    name: str
    config: Mapping[str, str]
    description: str = ""
    tags: tuple[str, ...] = ()

    async def perform(self, pve: PveWriter) -> Upid | None:
        same_region(pve, self.guest.region)
        mark = self.guest.mark
        form = {
            **self.config,
            "name": self.name,
            "description": mark.describe(self.description),
            "tags": mark.tags(self.tags),
        }
        try:
            return await pve.qemu.create(self.guest.host, self.guest.vmid, form)
        except errors.Exists:
            await own_config(pve, self.guest)
            return None

    def expects(self) -> Expectation:
        fields = {"host": self.guest.host, "name": self.name, "status": "stopped", "lock": ""}
        return Expectation(self.guest.vmid, fields)


class MakeTemplate(GuestStep, frozen=True):
    """Convert a stopped guest to a template."""

    certain = True

    async def perform(self, pve: PveWriter) -> Upid | None:
        config = await own_free_config(pve, self.guest)
        if config.template:
            return None
        return await pve.qemu.template(self.guest.host, self.guest.vmid)

    def expects(self) -> Expectation:
        return Expectation(self.guest.vmid, {"template": True})


class Migrate(GuestStep, frozen=True, kw_only=True):
    """Migrate a guest to another host."""

    certain = True

    target: str
    online: bool = False
    with_local_disks: bool = False
    target_storage: str = ""

    async def perform(self, pve: PveWriter) -> Upid | None:
        if self.guest.host == self.target:
            return None
        try:
            await own_free_config(pve, self.guest)
        except errors.GuestMissing:
            await self._arrived(pve)
            return None
        return await pve.qemu.migrate(
            self.guest.host,
            self.guest.vmid,
            self.target,
            online=self.online or None,
            with_local_disks=self.with_local_disks or None,
            targetstorage=self.target_storage or None,
        )

    async def _arrived(self, pve: PveWriter) -> None:
        there = GuestRef(self.guest.region, self.target, self.guest.vmid, self.guest.mark)
        await own_config(pve, there)

    def expects(self) -> Expectation:
        return Expectation(self.guest.vmid, {"host": self.target})


class RemoveStaleClone(GuestStep, frozen=True, kw_only=True):
    """
    Destroy the rest of a clone whose host died, at the VMID that was claimed for it.

    It has no mark: the caller holds the claim and has checked that no clone runs on the host.
    Anything but an empty clone or the owner's own guest is refused. A lock is respected unless
    ``skip_lock``, which only root@pam with a password may use.
    """

    skip_lock: bool = False

    async def perform(self, pve: PveWriter) -> Upid | None:
        same_region(pve, self.guest.region)
        try:
            config = await pve.qemu.config(self.guest.host, self.guest.vmid)
        except errors.GuestMissing:
            return None
        if not config.is_stale_clone:
            ownership.verify(config, self.guest.mark, str(self.guest))
        if config.lock and not self.skip_lock:
            raise errors.Locked(f"{self.guest} is locked ({config.lock})")
        return await pve.qemu.delete(
            self.guest.host,
            self.guest.vmid,
            purge=True,
            destroy_unreferenced_disks=True,
            skiplock=self.skip_lock or None,
        )

    def expects(self) -> Expectation:
        return Expectation(self.guest.vmid, None)


class Destroy(GuestStep, frozen=True, kw_only=True):
    """Destroy a stopped guest with its disks, HA resource, replication and backup jobs."""

    unreferenced_disks: bool = False

    async def perform(self, pve: PveWriter) -> Upid | None:
        try:
            await own_free_config(pve, self.guest)
        except errors.GuestMissing:
            return None
        return await pve.qemu.delete(
            self.guest.host,
            self.guest.vmid,
            purge=True,
            destroy_unreferenced_disks=self.unreferenced_disks,
        )

    def expects(self) -> Expectation:
        return Expectation(self.guest.vmid, None)
