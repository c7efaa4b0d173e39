"""
Endpoints of LXC containers: create, clone, configure, migrate, power.

There is no POST of the configuration, the conversion to a template answers null while it still
runs, and the interfaces of a stopped container are null.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from moxwell.pve.endpoints.guest import AnyGuestReader, AnyGuestWriter, merged
from moxwell.pve.values import Params, Upid, Value, path


class ContainerInterface(Struct, frozen=True, kw_only=True):
    name: str
    hwaddr: str = ""
    inet: str = ""
    inet6: str = ""


class LxcReader(AnyGuestReader):
    """GET requests below ``/nodes/{node}/lxc``."""

    _family = "lxc"

    async def interfaces(self, host: str, vmid: int) -> tuple[ContainerInterface, ...]:
        rows: tuple[ContainerInterface, ...] | None = await self._caller.read(
            tuple[ContainerInterface, ...] | None, self._at(host, vmid, "interfaces")
        )
        return rows or ()


class LxcWriter(AnyGuestWriter, LxcReader):
    """POST, PUT and DELETE requests below ``/nodes/{node}/lxc``."""

    async def create(
        self, host: str, vmid: int, ostemplate: str, params: Mapping[str, Value]
    ) -> Upid:
        form = {"vmid": vmid, "ostemplate": ostemplate, **params}
        return await self._caller.start_task("POST", path("nodes", host, "lxc"), form)

    async def clone(
        self,
        host: str,
        vmid: int,
        newid: int,
        *,
        hostname: str | None = None,
        description: str | None = None,
        full: bool | None = None,
        target: str | None = None,
        storage: str | None = None,
        pool: str | None = None,
        snapname: str | None = None,
    ) -> Upid:
        params: Params = {
            "newid": newid, "hostname": hostname, "description": description, "full": full,
            "target": target, "storage": storage, "pool": pool, "snapname": snapname,
        }  # fmt: skip
        return await self._caller.start_task("POST", self._at(host, vmid, "clone"), params)

    async def delete(
        self,
        host: str,
        vmid: int,
        *,
        purge: bool | None = None,
        force: bool | None = None,
        destroy_unreferenced_disks: bool | None = None,
    ) -> Upid:
        params: Params = {
            "purge": purge, "force": force,
            "destroy-unreferenced-disks": destroy_unreferenced_disks,
        }  # fmt: skip
        return await self._caller.start_task("DELETE", self._at(host, vmid), params)

    async def configure(
        self,
        host: str,
        vmid: int,
        changes: Mapping[str, Value],
        *,
        delete: Sequence[str] = (),
        revert: Sequence[str] = (),
        digest: str | None = None,
    ) -> None:
        params = merged(changes, delete, revert, digest)
        await self._caller.write("PUT", self._at(host, vmid, "config"), params)

    async def move_volume(
        self,
        host: str,
        vmid: int,
        volume: str,
        *,
        storage: str | None = None,
        delete: bool | None = None,
        digest: str | None = None,
        target_vmid: int | None = None,
        target_volume: str | None = None,
    ) -> Upid:
        params: Params = {
            "volume": volume, "storage": storage, "delete": delete, "digest": digest,
            "target-vmid": target_vmid, "target-volume": target_volume,
        }  # fmt: skip
        return await self._caller.start_task("POST", self._at(host, vmid, "move_volume"), params)

    async def template(self, host: str, vmid: int) -> None:
        await self._caller.write("POST", self._at(host, vmid, "template"))

    async def migrate(
        self,
        host: str,
        vmid: int,
        target: str,
        *,
        online: bool | None = None,
        restart: bool | None = None,
        target_storage: str | None = None,
        timeout_seconds: int | None = None,
    ) -> Upid:
        params: Params = {
            "target": target, "online": online, "restart": restart,
            "target-storage": target_storage, "timeout": timeout_seconds,
        }  # fmt: skip
        return await self._caller.start_task("POST", self._at(host, vmid, "migrate"), params)

    async def start(self, host: str, vmid: int) -> Upid:
        return await self._caller.start_task("POST", self._at(host, vmid, "status", "start"))

    async def stop(self, host: str, vmid: int, *, overrule_shutdown: bool | None = None) -> Upid:
        params: Params = {"overrule-shutdown": overrule_shutdown}
        return await self._caller.start_task("POST", self._at(host, vmid, "status", "stop"), params)

    async def suspend(self, host: str, vmid: int) -> Upid:
        return await self._caller.start_task("POST", self._at(host, vmid, "status", "suspend"))
