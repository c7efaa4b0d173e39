"""
Steps on volumes outside a guest's configuration: ISOs, images, detached disks.

The owner's key must be part of a volume's name. Proxmox deletes a volume that a guest uses without
an error, reports success for one that does not exist, and overwrites on upload.
"""

import re
from pathlib import Path

from msgspec import Struct

from moxwell.pve.client import PveWriter
from moxwell.pve.effects import Owned, file_name
from moxwell.pve.ownership import Foreign, Mark
from moxwell.pve.steps.contract import Step, same_region
from moxwell.pve.transport import FileUpload
from moxwell.pve.values import Blob, Upid


def iso_name(mark: Mark, purpose: str = "user-data") -> str:
    """Return the file name of an owner's ISO, unique over all regions."""
    bound = f"-{mark.cluster_key}" if mark.cluster else ""
    return f"moxwell-{purpose}-{mark.key}{bound}.iso"


class StorageOnHost(Struct, frozen=True):
    """A storage and the host that it is accessed through."""

    region: str
    host: str
    storage: str


class VolumeStep(Step, frozen=True, kw_only=True):
    """A step on a volume whose name contains its owner's key."""

    storage: StorageOnHost
    mark: Mark

    @property
    def region(self) -> str:
        return self.storage.region

    @property
    def target(self) -> str:
        """The file name or volume id of the volume that it changes."""
        raise NotImplementedError

    @property
    def owned(self) -> Owned:
        return Owned(self.mark.line, volumes=(self.target,))

    def refuse_foreign(self) -> None:
        """Raise unless the owner's key is a whole part of the file name."""
        keys = (self.mark.key, self.mark.owner_uid.lower())
        name = file_name(self.target).lower()
        bound = not self.mark.cluster or _is_part(self.mark.cluster_key, name)
        if not bound or not any(key and _is_part(key, name) for key in keys):
            raise Foreign(f"{name} is not marked as owned by {self.mark.owner_uid}")


def _is_part(text: str, name: str) -> bool:
    """Whether ``text`` is in ``name`` and is not a piece of a longer word there."""
    return re.search(rf"(?<![a-z0-9]){re.escape(text)}(?![a-z0-9])", name) is not None


class UploadIso(VolumeStep, frozen=True, kw_only=True):
    """Upload an ISO; an existing one with the same name is replaced."""

    filename: str
    content: Blob

    @property
    def target(self) -> str:
        return self.filename

    @property
    def volid(self) -> str:
        return f"{self.storage.storage}:iso/{self.filename}"

    async def perform(self, pve: PveWriter) -> Upid | None:
        same_region(pve, self.storage.region)
        self.refuse_foreign()
        file = FileUpload.of(self.filename, self.content.data)
        return await pve.storage.upload(self.storage.host, self.storage.storage, file)


class DownloadImage(VolumeStep, frozen=True, kw_only=True):
    """Let the host download an image unless the file exists."""

    url: str
    filename: str
    content: str = "import"
    checksum: str = ""
    checksum_algorithm: str = ""
    verify_certificates: bool = True

    @property
    def target(self) -> str:
        return self.filename

    @property
    def volid(self) -> str:
        return f"{self.storage.storage}:{self.content}/{self.filename}"

    async def perform(self, pve: PveWriter) -> Upid | None:
        same_region(pve, self.storage.region)
        self.refuse_foreign()
        there = await pve.storage.content(
            self.storage.host, self.storage.storage, content=self.content
        )
        if any(volume.volid == self.volid for volume in there):
            return None
        return await pve.storage.download_url(
            self.storage.host,
            self.storage.storage,
            url=self.url,
            filename=self.filename,
            content=self.content,
            checksum=self.checksum or None,
            checksum_algorithm=self.checksum_algorithm or None,
            verify_certificates=self.verify_certificates,
        )


class UploadImage(VolumeStep, frozen=True, kw_only=True):
    """Upload an image file of this machine unless the file exists; Proxmox compares the hash."""

    filename: str
    path: str
    size_bytes: int
    sha256: str

    @property
    def target(self) -> str:
        return self.filename

    @property
    def volid(self) -> str:
        return f"{self.storage.storage}:import/{self.filename}"

    async def perform(self, pve: PveWriter) -> Upid | None:
        same_region(pve, self.storage.region)
        self.refuse_foreign()
        host, storage = self.storage.host, self.storage.storage
        there = await pve.storage.content(host, storage, content="import")
        if any(volume.volid == self.volid for volume in there):
            return None
        return await pve.storage.upload(
            host,
            storage,
            FileUpload.of_path(self.filename, Path(self.path), self.size_bytes),
            content="import",
            checksum=self.sha256,
            checksum_algorithm="sha256",
        )


class DeleteVolume(VolumeStep, frozen=True, kw_only=True):
    """Delete a volume; a missing one is no error."""

    volid: str

    @property
    def target(self) -> str:
        return self.volid

    async def perform(self, pve: PveWriter) -> Upid | None:
        same_region(pve, self.storage.region)
        self.refuse_foreign()
        return await pve.storage.delete(self.storage.host, self.storage.storage, self.volid)
