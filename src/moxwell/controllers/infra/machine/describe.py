"""
Computes the status of a ProxmoxMachine from what was observed and decided. Pure.

Fields that this pass could not observe (the region does not answer, a stopped guest has no agent)
are left out, and the status writer leaves them as they are. So is ``initialization`` until the
machine is provisioned: Cluster API's contract demands that it never changes back.
"""

from typing import Any

import msgspec

from moxwell.api.capi.shared import MachineAddress
from moxwell.api.conditions import Condition, ConditionStatus
from moxwell.api.infra.machine import (
    Initialization,
    IPAddresses,
    ProxmoxMachine,
    ProxmoxMachineStatus,
)
from moxwell.api.infra.machine_reasons import ProxmoxMachineReason
from moxwell.controllers.infra.machine import in_place
from moxwell.controllers.infra.machine.moves import (
    ForgetStaleClone,
    Move,
    SetAddressesAside,
    TakeStep,
    name_of,
)
from moxwell.controllers.infra.machine.observed import ObservedProxmoxMachine
from moxwell.runtime.move import Done, Wait

READY, PROVISIONED = "Ready", "VirtualMachineProvisioned"
NO_STALE_CLONES, UP_TO_DATE = "NoStaleClones", "UpToDate"
LEGACY_CONDITIONS = ("Tidy",)  # the earlier name of NoStaleClones; the runtime removes it
READY_WAITS = frozenset({ProxmoxMachineReason.WAITING_FOR_NODE, ProxmoxMachineReason.STALE_CLONE})
BUSY = frozenset(
    {ProxmoxMachineReason.TASK_RUNNING, ProxmoxMachineReason.LOCKED}
)  # backup, migration
UNKNOWN = frozenset({
    ProxmoxMachineReason.REGION_UNREACHABLE,
    ProxmoxMachineReason.REGION_UNKNOWN,
    ProxmoxMachineReason.HOST_DOWN,
})  # fmt: skip
REASONS = {
    "ReserveVMID": ProxmoxMachineReason.PLACING,
    "AdoptGuest": ProxmoxMachineReason.ADOPTING,
    "Clone": ProxmoxMachineReason.CLONING,
    "Migrate": ProxmoxMachineReason.MIGRATING,
    "ClaimAddresses": ProxmoxMachineReason.WAITING_FOR_ADDRESSES,
    "SetAddressesAside": ProxmoxMachineReason.WAITING_FOR_ADDRESSES,
    "UploadIso": ProxmoxMachineReason.BOOTSTRAPPING,
    "ResizeDisk": ProxmoxMachineReason.CONFIGURING,
    "SetFirewall": ProxmoxMachineReason.CONFIGURING,
    "RecordApplied": ProxmoxMachineReason.CONFIGURING,
    "Configure": ProxmoxMachineReason.CONFIGURING,
    "RegisterHa": ProxmoxMachineReason.STARTING,
    "AddToHaRule": ProxmoxMachineReason.STARTING,
    "Start": ProxmoxMachineReason.STARTING,
    "SetProviderID": ProxmoxMachineReason.STARTING,
}


def describe(obj: ProxmoxMachine, seen: ObservedProxmoxMachine, move: Move) -> dict[str, Any]:
    """The status fields that this pass observed; unset ones are explicit nulls."""
    conditions = _conditions(obj, seen, move)
    if not _guest_observed(obj, seen):
        return {"conditions": msgspec.to_builtins(conditions), "nextMove": name_of(move) or None}
    guest = seen.guest.seen if seen.guest and seen.guest.ours else None
    addresses = _addresses(obj, seen)
    status = ProxmoxMachineStatus(
        conditions=conditions,
        initialization=Initialization(provisioned=True),
        addresses=addresses or (),
        ip_addresses=_by_device(seen),
        failure_domain=seen.failure_domain,
        vm_status="notfound" if guest is None else "ready" if guest.running else "pending",
        power_state=guest.status if guest else "",
        proxmox_node=guest.host if guest else "",
        ha_state=guest.hastate if guest else "",
        bootstrap_data_provided=True if guest and seen.guest and seen.guest.marked else None,
        next_move=name_of(move),
        observed_generation=obj.metadata.generation,
    )
    fields: dict[str, Any] = dict.fromkeys(status.__struct_encode_fields__) | msgspec.to_builtins(
        status
    )
    if not is_provisioned(obj, seen):
        del fields["initialization"]
    if addresses is None:
        del fields["addresses"]
    return fields


def _guest_observed(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> bool:
    """Whether the guest, or its absence, was observed; a deleted guest leaves its last status."""
    if obj.deleting:
        return seen.guest is not None
    return seen.region.usable and seen.owners is not None


def is_provisioned(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> bool:
    """Whether the bootstrap has finished, now or according to the Machine at some time before."""
    machine = seen.machine
    before = machine is not None and machine.status.initialization.infrastructure_provisioned
    return bool(before) or (bool(obj.spec.provider_id) and seen.bootstrapped)


def _conditions(
    obj: ProxmoxMachine, seen: ObservedProxmoxMachine, move: Move
) -> tuple[Condition, ...]:
    status, reason, message = _ready(obj, seen, move)
    provisioned = not obj.deleting and (status == "True" or is_provisioned(obj, seen))
    if provisioned:
        first = _condition(obj, PROVISIONED, "True", ProxmoxMachineReason.PROVISIONED)
    else:
        truth: ConditionStatus = "False" if obj.deleting else status
        first = _condition(obj, PROVISIONED, truth, reason, message)
    ready = _condition(obj, READY, status, reason, message)
    return (ready, first, *_no_stale_clones(obj, seen, move), *_up_to_date(obj, seen, move))


def _condition(
    obj: ProxmoxMachine, type_: str, status: ConditionStatus, reason: str, message: str = ""
) -> Condition:
    return Condition(
        type=type_,
        status=status,
        reason=str(reason),
        message=message,
        observed_generation=obj.metadata.generation,
    )


def _up_to_date(
    obj: ProxmoxMachine, seen: ObservedProxmoxMachine, move: Move
) -> tuple[Condition, ...]:
    """Whether the spec is applied to a running guest; omitted if that was not read."""
    if obj.spec.provider_id and isinstance(move, Wait) and move.reason in in_place.NOT_UP_TO_DATE:
        return (_condition(obj, UP_TO_DATE, "False", move.reason, move.message),)
    guest = seen.guest
    read = guest is not None and guest.marked and guest.config is not None
    if guest is None or not read or not obj.spec.provider_id or guest.booting:
        return ()
    if obj.spec.changes != "InPlace" or in_place.change(obj, guest) is not None:
        return ()
    return (_condition(obj, UP_TO_DATE, "True", ProxmoxMachineReason.UP_TO_DATE),)


def _no_stale_clones(
    obj: ProxmoxMachine, seen: ObservedProxmoxMachine, move: Move
) -> tuple[Condition, ...]:
    """False while the claim lists stale clones; omitted before there is a claim."""
    if obj.spec.claim is None:
        return ()
    names = obj.spec.claim.stale_clones
    if isinstance(move, ForgetStaleClone):
        names = move.stale_clones
    if not names:
        return (_condition(obj, NO_STALE_CLONES, "True", ProxmoxMachineReason.NO_STALE_CLONES),)
    blocked = [str(c) for c in seen.stale_clones if c.state in {"locked", "unknown"}]
    message = "; ".join(blocked) or f"next: remove {', '.join(names)}"
    return (_condition(obj, NO_STALE_CLONES, "False", ProxmoxMachineReason.STALE_CLONE, message),)


def _ready(
    obj: ProxmoxMachine, seen: ObservedProxmoxMachine, move: Move
) -> tuple[ConditionStatus, str, str]:
    provisioned: tuple[ConditionStatus, str, str] = ("True", ProxmoxMachineReason.PROVISIONED, "")
    runs = seen.guest is not None and seen.guest.seen.running and bool(obj.spec.provider_id)
    healthy = runs and seen.bootstrapped and not obj.deleting
    if isinstance(move, Wait):
        if move.reason in READY_WAITS and not obj.deleting:
            return provisioned
        if move.reason in BUSY | in_place.NOT_UP_TO_DATE and healthy:
            return provisioned
        return ("Unknown" if move.reason in UNKNOWN else "False"), move.reason, move.message
    if obj.deleting:
        return "False", ProxmoxMachineReason.DELETING, f"next: {name_of(move)}"
    if isinstance(move, Done) or healthy:
        return provisioned
    name = name_of(move)
    message = move.message if isinstance(move, SetAddressesAside) else f"next: {name}"
    if seen.failure is not None and isinstance(move, TakeStep):
        message += f"; the last task failed: {seen.failure.error}"
    return "False", REASONS.get(name, name), message


def _addresses(
    obj: ProxmoxMachine, seen: ObservedProxmoxMachine
) -> tuple[MachineAddress, ...] | None:
    """The addresses; None if they cannot be observed but may be known from an earlier pass."""
    if seen.guest is None or not seen.guest.ours:
        return None if obj.spec.provider_id else ()
    found = [a.address for given in seen.addresses.given.values() for a in given]
    found += [a for given in seen.agent_addresses.values() for a in given]
    if not found:
        return None if seen.guest.marked else ()
    name = MachineAddress(type="Hostname", address=obj.name)
    return (name, *(MachineAddress(type="InternalIP", address=a) for a in dict.fromkeys(found)))


def _by_device(seen: ObservedProxmoxMachine) -> tuple[IPAddresses, ...]:
    return tuple(
        IPAddresses(
            net=device,
            ipv4=tuple(a.address for a in given if not a.is6),
            ipv6=tuple(a.address for a in given if a.is6),
        )
        for device, given in sorted(seen.addresses.given.items())
    )
