"""
Endpoints that QEMU virtual machines and LXC containers share: list, configuration, state, power.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from moxwell.pve import run_states
from moxwell.pve.caller import ReadEndpoints, WriteEndpoints
from moxwell.pve.guests import GuestConfig
from moxwell.pve.values import Number, Params, Upid, Value, path


class GuestRow(Struct, frozen=True, kw_only=True):
    """A guest in a host's list."""

    vmid: int
    status: str = ""
    name: str = ""
    template: bool = False
    tags: str = ""
    lock: str = ""
    cpus: Number = 0
    maxmem: int = 0
    maxdisk: int = 0
    uptime: int = 0


class HaState(Struct, frozen=True, kw_only=True):
    """The HA state; a resource without a group has null there."""

    managed: bool = False
    state: str | None = None
    group: str | None = None


class GuestStatus(Struct, frozen=True, kw_only=True):
    """State of a guest, read from its own host and therefore current."""

    status: str
    vmid: int = 0
    qmpstatus: str = ""
    name: str = ""
    tags: str = ""
    lock: str = ""
    template: bool = False
    uptime: int = 0
    cpus: Number = 0
    maxmem: int = 0
    agent: bool = False
    ha: HaState = HaState()

    @property
    def running(self) -> bool:
        """Whether a process exists for it; it may be paused."""
        return self.status == "running"

    @property
    def executes(self) -> bool:
        """Whether it can shut down by itself; ``qmpstatus`` is empty for containers."""
        return self.running and run_states.executes(self.qmpstatus or self.status)


class PendingRow(Struct, frozen=True, kw_only=True):
    """A configuration key with its current and pending value; ``delete``: it will be removed."""

    key: str
    value: Any = None
    pending: Any = None
    delete: int = 0

    @property
    def is_pending(self) -> bool:
        return self.pending is not None or bool(self.delete)


class AnyGuestReader(ReadEndpoints):
    """GET requests below ``/nodes/{node}/{family}``."""

    _family: ClassVar[str]

    def _at(self, host: str, vmid: int, *more: str) -> str:
        return path("nodes", host, self._family, vmid, *more)

    async def list(self, host: str) -> tuple[GuestRow, ...]:
        return await self._caller.read(tuple[GuestRow, ...], path("nodes", host, self._family))

    async def config(
        self, host: str, vmid: int, *, current: bool | None = None, snapshot: str | None = None
    ) -> GuestConfig:
        """Return the configuration after the next stop; with ``current`` the one in effect."""
        params: Params = {"current": current, "snapshot": snapshot}
        data = await self._caller.read(dict[str, Any], self._at(host, vmid, "config"), params)
        return GuestConfig.of(data)

    async def pending(self, host: str, vmid: int) -> tuple[PendingRow, ...]:
        return await self._caller.read(tuple[PendingRow, ...], self._at(host, vmid, "pending"))

    async def status(self, host: str, vmid: int) -> GuestStatus:
        return await self._caller.read(GuestStatus, self._at(host, vmid, "status", "current"))


class AnyGuestWriter(WriteEndpoints, AnyGuestReader):
    """POST, PUT and DELETE requests below ``/nodes/{node}/{family}``."""

    async def resize(
        self, host: str, vmid: int, disk: str, size: str, *, digest: str | None = None
    ) -> Upid | None:
        """Grow a disk to ``size`` (``32G``) or by it (``+4G``)."""
        params: Params = {"disk": disk, "size": size, "digest": digest}
        return await self._caller.maybe_start_task("PUT", self._at(host, vmid, "resize"), params)

    async def shutdown(
        self,
        host: str,
        vmid: int,
        *,
        timeout_seconds: int | None = None,
        force_stop: bool | None = None,
    ) -> Upid:
        params: Params = {"timeout": timeout_seconds, "forceStop": force_stop}
        return await self._caller.start_task(
            "POST", self._at(host, vmid, "status", "shutdown"), params
        )


def merged(
    changes: Mapping[str, Value],
    delete: Sequence[str],
    revert: Sequence[str],
    digest: str | None,
) -> dict[str, Value]:
    """Return a change of the configuration as parameters."""
    return {
        **changes,
        "delete": ",".join(delete) or None,
        "revert": ",".join(revert) or None,
        "digest": digest,
    }
