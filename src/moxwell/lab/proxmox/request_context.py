"""
One request under way: what a handler gets.

``Call`` holds who asks, the coerced parameters, the state of the region and the services of its
running half (:class:`Desk`: clock, workers, lock files, the plug for guests). Rights are asked
through it, so that a handler never looks at users or ACLs itself.
"""

import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from moxwell.clock import Clock
from moxwell.lab.proxmox.access import permissions
from moxwell.lab.proxmox.errors import PveError, forbidden
from moxwell.lab.proxmox.guest import Inside
from moxwell.lab.proxmox.state import Guest, Host, Region
from moxwell.lab.proxmox.tasks import FileLocks, Worker, Workers


@dataclass(slots=True)
class Desk:
    """The running half of one region: everything that a save file does not hold."""

    region: Region
    clock: Clock
    workers: Workers
    locks: FileLocks
    inside: Inside
    random: random.Random
    later: Callable[[Any], None]  # keep a coroutine running beside everything (boots, HA, ...)
    silenced: set[int] = field(default_factory=set)  # fault: agents that do not answer
    extras: dict[str, Any] = field(default_factory=dict)  # running parts of endpoint modules

    def now(self) -> float:
        """Epoch seconds."""
        return self.clock.now().timestamp()

    def touch(self, vmid: int) -> None:
        """Say that a guest changed, so that pvestatd looks at it at its next round."""
        self.region.changed.add(vmid)


@dataclass(frozen=True, slots=True)
class Paged:
    """A list of which only a part is shown, with what stands beside ``data``."""

    data: Any
    total: int | None = None
    beside: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that came as multipart form."""

    filename: str
    data: bytes


@dataclass(slots=True)
class Call:
    """One verified request."""

    desk: Desk
    user: str  # root@pam or joe@pve
    token: str | None  # id of the token that asks, without the user
    node: str  # where it runs: the {node} of the path, else the node it arrived at
    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)  # coerced, only what was given
    given: dict[str, Any] = field(default_factory=dict)  # the same as they were sent
    upload: Upload | None = None
    cached_rights: permissions.Rights | None = None
    via_ha: bool = False  # the HA manager itself asks: do it, do not delegate again

    @property
    def region(self) -> Region:
        return self.desk.region

    @property
    def host(self) -> Host:
        return self.region.hosts[self.node]

    @property
    def authid(self) -> str:
        """The user as UPIDs and logs name it: ``root@pam!token`` for a token."""
        return f"{self.user}!{self.token}" if self.token else self.user

    @property
    def major(self) -> int:
        return self.region.major

    @property
    def is_root(self) -> bool:
        """root@pam itself; its tokens are not, whatever they may do."""
        return self.user == "root@pam" and self.token is None

    def get(self, name: str, default: Any = None) -> Any:
        return self.params.get(name, default)

    def pop(self, name: str, default: Any = None) -> Any:
        return self.params.pop(name, default)

    # ------------------------------------------------------------------ rights

    def may(self, path: str, *privs: str, any_of: bool = False) -> bool:
        """Has the caller all (or any) of these privileges on a path?"""
        if self.is_root:
            return True
        if self.cached_rights is None:
            self.cached_rights = permissions.Rights(self.region, self.user, self.token)
        held = self.cached_rights.on(path)
        return any(p in held for p in privs) if any_of else all(p in held for p in privs)

    def filter(self, prefix: str, priv: str) -> Callable[[object], bool]:
        """``may`` for many names below one path, as lists need it."""
        if self.is_root:
            return lambda name: True
        return permissions.Rights(self.region, self.user, self.token).each(prefix, priv)

    def check(self, path: str, *privs: str, any_of: bool = False) -> None:
        """Raise PVE's 403 unless the caller has the privileges."""
        if self.may(path, *privs, any_of=any_of):
            return
        if any_of:
            raise forbidden(f"{path}, {'|'.join(privs)}")
        raise forbidden(f"{path}, {next(p for p in privs if not self.may(path, p))}")

    def check_vm(self, vmid: int, *privs: str, any_of: bool = False) -> None:
        """The rights on a guest, also through its pool."""
        self.check(f"/vms/{vmid}", *privs, any_of=any_of)

    # ------------------------------------------------------------------ services

    def spawn(self, kind: str, ident: str | int, worker: Worker) -> str:
        """Start a worker on the call's node and return its UPID."""
        return self.desk.workers.spawn(self.node, kind, ident, self.authid, worker)

    def hold(
        self, kind: str, name: str | int, seconds: float | None = None
    ) -> AbstractAsyncContextManager[None]:
        """A lock file: ``async with call.hold("qemu", vmid): ...``."""
        limit = self.region.pace.file_lock if seconds is None else seconds
        return self.desk.locks.hold(kind, name, limit)

    def now(self) -> float:
        return self.desk.now()

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            await self.desk.clock.sleep(seconds)

    def find_guest(self, vmid: int, kind: str | None = None) -> Guest | None:
        """A guest on the call's own node, or None."""
        guest = self.region.guests.get(vmid)
        if guest is None or guest.node != self.node or (kind and guest.kind != kind):
            return None
        return guest

    def get_guest(self, vmid: int, kind: str = "qemu") -> Guest:
        """A guest on the call's own node; else PVE's 500."""
        guest = self.find_guest(vmid, kind)
        if guest is None:
            folder = "qemu-server" if kind == "qemu" else "lxc"
            file = f"nodes/{self.node}/{folder}/{vmid}.conf"
            raise PveError(500, f"Configuration file '{file}' does not exist")
        return guest
