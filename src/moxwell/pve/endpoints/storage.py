"""
Endpoints of storages: definitions, volumes, uploads, downloads.

Proxmox checks little: a volume may belong to a VMID without a guest, and a volume that a guest uses
or that does not exist can be deleted. The caller must check.
"""

from msgspec import Struct

from moxwell.pve.caller import ReadEndpoints, WriteEndpoints
from moxwell.pve.endpoints.nodes import HostStorageStatus
from moxwell.pve.transport import FileUpload
from moxwell.pve.values import Params, Upid, path


class StorageDefinition(Struct, frozen=True, kw_only=True):
    """A storage in the cluster's configuration."""

    storage: str
    type: str = ""
    content: str = ""
    nodes: str = ""
    shared: bool = False
    disable: bool = False
    path: str = ""
    pool: str = ""
    vgname: str = ""
    thinpool: str = ""
    server: str = ""  # of nfs, cifs, pbs
    monhost: str = ""  # of an external Ceph
    portal: str = ""  # of iscsi
    digest: str = ""

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that hosts read the storage from."""
        texts = f"{self.server} {self.monhost} {self.portal}".replace(",", " ").split()
        return tuple(text.partition(":")[0] for text in texts)


class VolumeRow(Struct, frozen=True, kw_only=True):
    """A volume in a list."""

    volid: str
    content: str = ""
    format: str = ""
    size: int = 0
    used: int | None = None
    vmid: int | None = None
    ctime: int | None = None
    parent: str | None = None
    notes: str | None = None
    protected: bool = False


class VolumeDetail(Struct, frozen=True, kw_only=True):
    """Attributes of one volume."""

    path: str = ""
    format: str = ""
    size: int = 0
    used: int = 0
    notes: str | None = None
    protected: bool = False


def _volume(host: str, storage: str, volid: str) -> str:
    return path("nodes", host, "storage", storage, "content") + path(volid).replace("%2F", "/")


class StorageReader(ReadEndpoints):
    """GET requests below ``/storage`` and ``/nodes/{node}/storage/{storage}``."""

    async def definitions(self, *, type: str | None = None) -> tuple[StorageDefinition, ...]:
        return await self._caller.read(tuple[StorageDefinition, ...], "/storage", {"type": type})

    async def status(self, host: str, storage: str) -> HostStorageStatus:
        return await self._caller.read(
            HostStorageStatus, path("nodes", host, "storage", storage, "status")
        )

    async def content(
        self, host: str, storage: str, *, content: str | None = None, vmid: int | None = None
    ) -> tuple[VolumeRow, ...]:
        """List the volumes of a storage, optionally of one content type or guest."""
        where = path("nodes", host, "storage", storage, "content")
        return await self._caller.read(
            tuple[VolumeRow, ...], where, {"content": content, "vmid": vmid}
        )

    async def volume(self, host: str, storage: str, volid: str) -> VolumeDetail:
        return await self._caller.read(VolumeDetail, _volume(host, storage, volid))


class StorageWriter(WriteEndpoints, StorageReader):
    """POST, PUT and DELETE requests below ``/storage`` and ``/nodes/{node}/storage/{storage}``."""

    async def allocate(
        self,
        host: str,
        storage: str,
        *,
        vmid: int,
        filename: str,
        size: str,
        format: str | None = None,
    ) -> str:
        """Allocate an empty disk and return its volume id; ``size`` as ``1G`` or in KiB."""
        params: Params = {"vmid": vmid, "filename": filename, "size": size, "format": format}
        where = path("nodes", host, "storage", storage, "content")
        return await self._caller.write_for(str, "POST", where, params)

    async def copy(
        self, host: str, storage: str, volid: str, target: str, *, target_host: str | None = None
    ) -> Upid:
        """Copy a volume (root@pam only)."""
        params: Params = {"target": target, "target_node": target_host}
        return await self._caller.start_task("POST", _volume(host, storage, volid), params)

    async def delete(
        self, host: str, storage: str, volid: str, *, delay_seconds: int | None = None
    ) -> Upid | None:
        """Delete a volume; with a delay (1..30 s) it returns None if that was enough."""
        params: Params = {"delay": delay_seconds}
        return await self._caller.maybe_start_task("DELETE", _volume(host, storage, volid), params)

    async def upload(
        self,
        host: str,
        storage: str,
        file: FileUpload,
        *,
        content: str = "iso",
        checksum: str | None = None,
        checksum_algorithm: str | None = None,
    ) -> Upid:
        """Upload an ``iso``, ``vztmpl`` or ``import`` file; an existing one is overwritten."""
        params: Params = {  # in the order that Proxmox reads them
            "content": content, "checksum-algorithm": checksum_algorithm, "checksum": checksum,
        }  # fmt: skip
        return await self._caller.upload(
            path("nodes", host, "storage", storage, "upload"), params, file
        )

    async def download_url(
        self,
        host: str,
        storage: str,
        *,
        url: str,
        filename: str,
        content: str = "import",
        checksum: str | None = None,
        checksum_algorithm: str | None = None,
        compression: str | None = None,
        verify_certificates: bool | None = None,
    ) -> Upid:
        """Let the host download a file."""
        params: Params = {
            "url": url, "filename": filename, "content": content, "checksum": checksum,
            "checksum-algorithm": checksum_algorithm, "compression": compression,
            "verify-certificates": verify_certificates,
        }  # fmt: skip
        return await self._caller.start_task(
            "POST", path("nodes", host, "storage", storage, "download-url"), params
        )
