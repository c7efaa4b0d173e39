"""
Decides the next move of a ProxmoxMachine that is being deleted, and of stale clones. Pure.

The order: shut down or stop, destroy, delete the bootstrap ISO, release the addresses, remove stale
clones.
"""

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.machine_reasons import ProxmoxMachineReason
from moxwell.api.infra.template import Claim
from moxwell.controllers.infra.guest_names import KEPT, iso_storage_of, iso_volid, mark_of
from moxwell.controllers.infra.machine import steps
from moxwell.controllers.infra.machine.moves import (
    ForgetStaleClone,
    MachineVersion,
    Move,
    ReleaseAddresses,
)
from moxwell.controllers.infra.machine.observed import MachineGuest, ObservedProxmoxMachine
from moxwell.controllers.infra.machine.replacement import is_stale
from moxwell.controllers.infra.machine.waits import backoff, host_down, locked
from moxwell.controllers.infra.owners import keeps_guest
from moxwell.pve import errors
from moxwell.pve.steps import (
    Configure,
    DeleteVolume,
    Destroy,
    GuestRef,
    RemoveStaleClone,
    Shutdown,
    Step,
    Stop,
)
from moxwell.runtime.move import Done, Wait

SHUTDOWN_SECONDS = 60
Decision = Move | Step


def remove_stale_clones(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> Decision | None:
    """One move to remove or forget a stale clone; None if there is none."""
    recorded = obj.spec.claim.stale_clones if obj.spec.claim else ()
    gone = {c.name for c in seen.stale_clones if c.state == "gone"}
    if gone & set(recorded):
        rest = tuple(name for name in recorded if name not in gone)
        return ForgetStaleClone(MachineVersion.of(obj), rest)
    remaining = [c for c in seen.stale_clones if c.state != "gone"]
    for clone in remaining:
        if clone.state == "removable" and not seen.backoff_seconds:
            guest = GuestRef(clone.region, clone.host, clone.vmid, mark_of(obj))
            return RemoveStaleClone(guest, skip_lock=clone.skip_lock)
    message = "; ".join(map(str, remaining))
    return Wait(ProxmoxMachineReason.STALE_CLONE, message) if remaining else None


def delete(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> Decision:
    guest = seen.guest
    if is_stale(obj, seen):
        return _delete_stale(obj, seen)
    if guest is None or not (guest.ours or guest.cloning):
        if not seen.vmid_free:
            message = f"guest {obj.spec.virtual_machine_id} exists, but is not in the inventory yet"
            return Wait(ProxmoxMachineReason.WAITING_FOR_GUEST, message)
        return _delete_rest(obj, seen)
    if not guest.host_online:
        return host_down(guest, "the guest cannot be removed")
    if guest.cloning:
        message = f"guest {guest.seen.vmid} is being cloned; it is removed afterwards"
        return Wait(ProxmoxMachineReason.CLONING, message)
    if guest.config is not None and (guest.unbound or _is_adopted(obj, guest)):
        return steps.set_mark(obj, guest)
    if keeps_guest(obj):
        return _keep(obj, seen, guest)
    if seen.task_running:
        return _deleting(f"a task runs on guest {guest.seen.vmid}")
    return _remove(obj, seen, guest)


def _is_adopted(obj: ProxmoxMachine, guest: MachineGuest) -> bool:
    return not guest.marked and bool(obj.spec.provider_id)


def _delete_stale(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> Decision:
    if keeps_guest(obj):
        return Done()
    return remove_stale_clones(obj, seen) or _deleting("the clone is removed; reading again")


def _remove(obj: ProxmoxMachine, seen: ObservedProxmoxMachine, guest: MachineGuest) -> Decision:
    if wait := backoff(seen):
        return wait
    if guest.seen.lock:
        return locked(guest)
    if not guest.seen.has_process:
        return Destroy(steps.guest(obj, guest), unreferenced_disks=True)
    if guest.seen.hastate in {"request_stop", "stopped"}:
        return _deleting(f"the HA manager stops guest {guest.seen.vmid}")
    seconds = obj.spec.shutdown_seconds
    limit = SHUTDOWN_SECONDS if seconds is None else seconds
    failed = seen.failure is not None and isinstance(seen.failure.error, errors.WrongState)
    if limit == 0 or failed or not guest.seen.running:
        return Stop(steps.guest(obj, guest))
    return Shutdown(steps.guest(obj, guest), timeout_seconds=limit, force=True)


def _keep(obj: ProxmoxMachine, seen: ObservedProxmoxMachine, guest: MachineGuest) -> Decision:
    """Keep the guest and its addresses; a tag excludes it from the orphans."""
    if KEPT not in guest.seen.tags:
        tags = mark_of(obj).tags([*guest.seen.tags, KEPT])
        return Configure(steps.guest(obj, guest), changes={"tags": tags})
    if seen.owned_claims:
        return ReleaseAddresses(obj.namespace, seen.owned_claims, keep=True)
    return Done()


def _delete_rest(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> Decision:
    """Delete what remains of a machine without guest: ISO, addresses, stale clones."""
    claim = obj.spec.claim
    if seen.task_running:
        return _deleting("a task of the machine is running")
    if seen.iso_exists and claim is not None:
        if not seen.claim_host_online:
            message = f"host {claim.host} is down; the bootstrap ISO cannot be deleted"
            return Wait(ProxmoxMachineReason.HOST_DOWN, message)
        return delete_iso(obj, claim)
    if seen.owned_claims:
        return ReleaseAddresses(obj.namespace, seen.owned_claims)
    return Done() if keeps_guest(obj) else remove_stale_clones(obj, seen) or Done()


def delete_iso(obj: ProxmoxMachine, claim: Claim) -> DeleteVolume:
    return DeleteVolume(
        storage=iso_storage_of(obj.spec.region or "", claim),
        mark=mark_of(obj),
        volid=iso_volid(obj, claim),
    )


def _deleting(message: str) -> Wait:
    return Wait(ProxmoxMachineReason.DELETING, message)
