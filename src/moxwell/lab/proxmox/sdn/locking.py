"""
The lock of the SDN configuration, and its rollback.

Every change runs under the lock: an error in it carries the name of the change, and on PVE 9 the
holder of the global lock must send its token with each request.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from moxwell.lab.proxmox.errors import die, failing_as
from moxwell.lab.proxmox.qemu.identity import new_uuid
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import perm
from moxwell.lab.proxmox.sdn.objects import is_pending

APPLIED = ("zones", "vnets", "subnets", "controllers")  # what an apply makes the running one
_FILE = "/usr/share/perl5/PVE"


@contextmanager
def locked(call: PveCall, failure: str) -> Iterator[None]:
    """A change of the SDN configuration; its errors begin with ``failure``."""
    token, held = call.params.pop("lock-token", None), call.region.sdn.lock
    with failing_as(failure):
        if held and held != token:
            raise die(f"invalid lock token provided! at {_FILE}/Network/SDN.pm line 299.")
        yield


def acquire(call: PveCall) -> str:
    """POST lock: the token that later changes must carry."""
    sdn = call.region.sdn
    with locked(call, "could not acquire lock for SDN config"):
        if not call.get("allow-pending") and any(is_pending(sdn, kind) for kind in APPLIED):
            where = f"at {_FILE}/API2/Network/SDN.pm line 145."
            raise die(f"configuration has pending changes {where}")
        sdn.lock = new_uuid(call.runtime)
    return sdn.lock


def release(call: PveCall) -> None:
    """DELETE lock."""
    if call.get("force"):
        call.region.sdn.lock = ""
        return
    with locked(call, "could not release lock"):
        call.region.sdn.lock = ""


def release_with_change(call: PveCall, token: str | None) -> None:
    """Release the lock after an apply or a rollback that was given its token."""
    if token and call.get("release-lock"):
        call.region.sdn.lock = ""


def rollback(call: PveCall) -> None:
    """POST rollback: the running configuration replaces the edited one."""
    sdn, token = call.region.sdn, call.get("lock-token")
    with locked(call, "could not rollback SDN configuration"):
        for kind in APPLIED:
            setattr(sdn, kind, copy.deepcopy(sdn.running.get(kind, {})))
        release_with_change(call, token)


_ALLOCATE = perm("/sdn", "SDN.Allocate")
ROUTES = (
    ApiRoute("POST", "/cluster/sdn/lock", acquire, permission=_ALLOCATE, version=9),
    ApiRoute("DELETE", "/cluster/sdn/lock", release, permission=_ALLOCATE, version=9),
    ApiRoute("POST", "/cluster/sdn/rollback", rollback, permission=_ALLOCATE, version=9),
)
