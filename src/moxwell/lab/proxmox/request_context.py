"""
The context of one API call, passed to every handler.

:class:`PveCall` holds the caller, the converted parameters, the state of the region and its
:class:`RegionRuntime` (clock, workers, lock files, guest operating systems). Handlers check
permissions through it and do not read users or ACLs themselves.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from moxwell.clock import Clock
from moxwell.lab.proxmox.access import permissions
from moxwell.lab.proxmox.errors import PveException, forbidden
from moxwell.lab.proxmox.guest import GuestOs
from moxwell.lab.proxmox.load_history import LoadHistory
from moxwell.lab.proxmox.state import SimGuest, SimHost, SimRegion
from moxwell.lab.proxmox.tasks import FileLocks, Worker, Workers


class AnsweredRequests:
    """Lets a worker wait for the next answer to a request about its guest."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}

    def answered(self, vmid: int) -> None:
        for waiting in self._waiting.pop(vmid, ()):
            if not waiting.done():
                waiting.set_result(None)

    async def wait(self, vmid: int, seconds: float) -> None:
        """Return after the next answer, or after some seconds without one."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(vmid, []).append(waiting)
        await asyncio.wait({waiting}, timeout=seconds)


@dataclass(slots=True)
class RegionRuntime:
    """
    The parts of one region that are not saved: clock, workers, locks, guest operating systems.
    """

    region: SimRegion
    clock: Clock
    workers: Workers
    locks: FileLocks
    guest_os: GuestOs
    random: random.Random
    run_in_background: Callable[[Any], None]  # runs a coroutine in the background (boots, HA, ...)
    silent_agents: set[int] = field(default_factory=set)  # fault: agents that do not answer
    module_data: dict[str, Any] = field(default_factory=dict)  # in-memory data of endpoint modules
    loads: LoadHistory = field(default_factory=LoadHistory)
    requests: AnsweredRequests = field(default_factory=AnsweredRequests)

    def now(self) -> float:
        """Epoch seconds."""
        return self.clock.now().timestamp()

    def mark_changed(self, vmid: int) -> None:
        """Mark a guest as changed, so that the next pvestatd update includes it."""
        self.region.changed.add(vmid)
        self.loads.note(self.region, vmid, self.now())


@dataclass(frozen=True, slots=True)
class PagedList:
    """A page of a list, with the properties beside ``data``."""

    data: Any
    total: int | None = None
    beside: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file uploaded as multipart form data."""

    filename: str
    data: bytes


@dataclass(slots=True)
class PveCall:
    """One verified request."""

    runtime: RegionRuntime
    user: str  # root@pam or joe@pve
    token: str | None  # id of the API token, without the user
    node: str  # where it runs: the {node} of the path, else the node that received it
    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)  # converted; only those sent
    given: dict[str, Any] = field(default_factory=dict)  # the same as sent
    upload: UploadedFile | None = None
    cached_permissions: permissions.CallerPermissions | None = None
    via_ha: bool = False  # from the HA manager: do not delegate again

    @property
    def region(self) -> SimRegion:
        return self.runtime.region

    @property
    def host(self) -> SimHost:
        return self.region.hosts[self.node]

    @property
    def authid(self) -> str:
        """The user as in UPIDs and logs: ``root@pam!token`` for a token."""
        return f"{self.user}!{self.token}" if self.token else self.user

    @property
    def major(self) -> int:
        return self.region.major

    @property
    def is_root(self) -> bool:
        """root@pam itself, not one of its tokens."""
        return self.user == "root@pam" and self.token is None

    def get(self, name: str, default: Any = None) -> Any:
        return self.params.get(name, default)

    def pop(self, name: str, default: Any = None) -> Any:
        return self.params.pop(name, default)

    # ------------------------------------------------------------------ permissions

    def has_privileges(self, path: str, *privs: str, any_of: bool = False) -> bool:
        """Whether the caller has all (or any) of these privileges on a path."""
        if self.is_root:
            return True
        if self.cached_permissions is None:
            self.cached_permissions = permissions.CallerPermissions(
                self.region, self.user, self.token
            )
        granted = self.cached_permissions.privileges_on(path)
        return any(p in granted for p in privs) if any_of else all(p in granted for p in privs)

    def filter(self, prefix: str, priv: str) -> Callable[[object], bool]:
        """``may`` for many names below one path."""
        if self.is_root:
            return lambda name: True
        return permissions.CallerPermissions(self.region, self.user, self.token).checker_for(
            prefix, priv
        )

    def check(self, path: str, *privs: str, any_of: bool = False) -> None:
        """Raise PVE's 403 unless the caller has the privileges."""
        if self.has_privileges(path, *privs, any_of=any_of):
            return
        if any_of:
            raise forbidden(f"{path}, {'|'.join(privs)}")
        raise forbidden(f"{path}, {next(p for p in privs if not self.has_privileges(path, p))}")

    def check_vm(self, vmid: int, *privs: str, any_of: bool = False) -> None:
        """Check privileges on a guest, including those through its pool."""
        self.check(f"/vms/{vmid}", *privs, any_of=any_of)

    # ------------------------------------------------------------------ services

    def spawn(self, kind: str, ident: str | int, worker: Worker) -> str:
        """Start a worker on the call's node and return its UPID."""
        return self.runtime.workers.spawn(self.node, kind, ident, self.authid, worker)

    def hold(
        self, kind: str, name: str | int, seconds: float | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Hold a lock file: ``async with call.hold("qemu", vmid): ...``."""
        limit = self.region.pace.file_lock if seconds is None else seconds
        return self.runtime.locks.hold(kind, name, limit)

    def now(self) -> float:
        return self.runtime.now()

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            await self.runtime.clock.sleep(seconds)

    def find_guest(self, vmid: int, kind: str | None = None) -> SimGuest | None:
        """Find a guest on the call's node, or None."""
        guest = self.region.guests.get(vmid)
        if guest is None or guest.node != self.node or (kind and guest.kind != kind):
            return None
        return guest

    def get_guest(self, vmid: int, kind: str = "qemu") -> SimGuest:
        """Get a guest on the call's node; raises PVE's 500 if it does not exist."""
        guest = self.find_guest(vmid, kind)
        if guest is None:
            folder = "qemu-server" if kind == "qemu" else "lxc"
            file = f"nodes/{self.node}/{folder}/{vmid}.conf"
            raise PveException(500, f"Configuration file '{file}' does not exist")
        return guest
