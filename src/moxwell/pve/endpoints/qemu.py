"""
Endpoints of QEMU virtual machines: create, clone, configure, disks, migrate, power.

Many failures come later, as the exit status of an accepted task. PUT of the configuration is
complete when it is answered, POST starts a task; neither tells whether a running guest applied the
change (see ``pending``).
"""

from collections.abc import Mapping, Sequence

from moxwell.pve.endpoints.guest import AnyGuestReader, AnyGuestWriter, merged
from moxwell.pve.values import Params, Upid, Value, path


class QemuReader(AnyGuestReader):
    """GET requests below ``/nodes/{node}/qemu``."""

    _family = "qemu"


class QemuWriter(AnyGuestWriter, QemuReader):
    """POST, PUT and DELETE requests below ``/nodes/{node}/qemu``."""

    async def create(self, host: str, vmid: int, params: Mapping[str, Value]) -> Upid:
        """Create a guest from a configuration; disks may use ``import-from``."""
        return await self._caller.start_task(
            "POST", path("nodes", host, "qemu"), {"vmid": vmid, **params}
        )

    async def clone(
        self,
        host: str,
        vmid: int,
        newid: int,
        *,
        name: str | None = None,
        description: str | None = None,
        full: bool | None = None,
        target: str | None = None,
        storage: str | None = None,
        format: str | None = None,
        pool: str | None = None,
        snapname: str | None = None,
        bwlimit_kib: int | None = None,
    ) -> Upid:
        """Clone guest ``vmid`` to ``newid``; clones take no tags, only a description."""
        params: Params = {
            "newid": newid, "name": name, "description": description, "full": full,
            "target": target, "storage": storage, "format": format, "pool": pool,
            "snapname": snapname, "bwlimit": bwlimit_kib,
        }  # fmt: skip
        return await self._caller.start_task("POST", self._at(host, vmid, "clone"), params)

    async def delete(
        self,
        host: str,
        vmid: int,
        *,
        purge: bool | None = None,
        destroy_unreferenced_disks: bool | None = None,
        skiplock: bool | None = None,
    ) -> Upid:
        """Destroy a guest; ``skiplock`` is refused to API tokens, only root@pam may use it."""
        params: Params = {
            "purge": purge, "destroy-unreferenced-disks": destroy_unreferenced_disks,
            "skiplock": skiplock,
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
        force: bool | None = None,
    ) -> None:
        """Change the configuration synchronously."""
        params = merged(changes, delete, revert, digest) | {"force": force}
        await self._caller.write("PUT", self._at(host, vmid, "config"), params)

    async def configure_task(
        self,
        host: str,
        vmid: int,
        changes: Mapping[str, Value],
        *,
        delete: Sequence[str] = (),
        revert: Sequence[str] = (),
        digest: str | None = None,
        force: bool | None = None,
        background_delay: int | None = None,
    ) -> Upid | None:
        """Change the configuration as a task; with a delay (1..30 s) None if done by then."""
        params = merged(changes, delete, revert, digest)
        params |= {"force": force, "background_delay": background_delay}
        return await self._caller.maybe_start_task("POST", self._at(host, vmid, "config"), params)

    async def template(self, host: str, vmid: int, *, disk: str | None = None) -> Upid | None:
        """Make the guest a template, for good."""
        return await self._caller.maybe_start_task(
            "POST", self._at(host, vmid, "template"), {"disk": disk}
        )

    async def migrate(
        self,
        host: str,
        vmid: int,
        target: str,
        *,
        online: bool | None = None,
        with_local_disks: bool | None = None,
        targetstorage: str | None = None,
        bwlimit_kib: int | None = None,
    ) -> Upid:
        params: Params = {
            "target": target, "online": online, "with-local-disks": with_local_disks,
            "targetstorage": targetstorage, "bwlimit": bwlimit_kib,
        }  # fmt: skip
        return await self._caller.start_task("POST", self._at(host, vmid, "migrate"), params)

    async def start(self, host: str, vmid: int, *, timeout_seconds: int | None = None) -> Upid:
        params: Params = {"timeout": timeout_seconds}
        return await self._caller.start_task(
            "POST", self._at(host, vmid, "status", "start"), params
        )

    async def stop(
        self,
        host: str,
        vmid: int,
        *,
        timeout_seconds: int | None = None,
        overrule_shutdown: bool | None = None,
    ) -> Upid:
        params: Params = {"timeout": timeout_seconds, "overrule-shutdown": overrule_shutdown}
        return await self._caller.start_task("POST", self._at(host, vmid, "status", "stop"), params)
