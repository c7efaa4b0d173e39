"""
Endpoints of snapshots of virtual machines and containers.

Creating a snapshot whose name exists, or deleting one that does not, is accepted and fails in the
task. A name needs two characters.
"""

from typing import Literal

from msgspec import Struct

from moxwell.pve.caller import ReadEndpoints, WriteEndpoints
from moxwell.pve.values import Params, Upid, path

Kind = Literal["qemu", "lxc"]


class SnapshotRow(Struct, frozen=True, kw_only=True):
    """A snapshot; the row named ``current`` is the guest itself."""

    name: str
    description: str = ""
    parent: str = ""
    snaptime: int = 0
    vmstate: bool = False


class SnapshotsReader(ReadEndpoints):
    """GET requests below ``/nodes/{node}/qemu|lxc/{vmid}/snapshot``."""

    async def list(self, host: str, vmid: int, *, kind: Kind = "qemu") -> tuple[SnapshotRow, ...]:
        where = path("nodes", host, kind, vmid, "snapshot")
        rows = await self._caller.read(tuple[SnapshotRow, ...], where)
        return tuple(row for row in rows if row.name != "current")


class SnapshotsWriter(WriteEndpoints, SnapshotsReader):
    """POST, PUT and DELETE requests below ``/nodes/{node}/qemu|lxc/{vmid}/snapshot``."""

    async def create(
        self,
        host: str,
        vmid: int,
        name: str,
        *,
        description: str | None = None,
        vmstate: bool | None = None,
        kind: Kind = "qemu",
    ) -> Upid:
        params: Params = {"snapname": name, "description": description}
        if kind == "qemu":
            params = {**params, "vmstate": vmstate}
        return await self._caller.start_task(
            "POST", path("nodes", host, kind, vmid, "snapshot"), params
        )

    async def delete(
        self, host: str, vmid: int, name: str, *, force: bool | None = None, kind: Kind = "qemu"
    ) -> Upid:
        where = path("nodes", host, kind, vmid, "snapshot", name)
        return await self._caller.start_task("DELETE", where, {"force": force})
