"""
The status: from what was seen and decided to what people and Cluster API read. Pure.

Computed from scratch in every pass, with one exception that Cluster API's contract demands: once a
machine was provisioned it stays so, and what was known of it stays known while its region is
silent.
"""

from msgspec import structs

from moxwell.api.conditions import Condition, Truth
from moxwell.api.infra.machine import (
    Initialization,
    IPAddresses,
    MachineAddress,
    MachineStatus,
    ProxmoxMachine,
)
from moxwell.controllers.infra.machine import in_place
from moxwell.controllers.infra.machine.observed import Seen
from moxwell.controllers.infra.machine.plan import LEFT_BEHIND, WAITING_FOR_NODE, Move
from moxwell.runtime.move import Done, Wait
from moxwell.scheduling import guest_hardware

READY, PROVISIONED, TIDY = "Ready", "VirtualMachineProvisioned", "Tidy"
UP_TO_DATE = "UpToDate"  # is the guest as the spec says, where it may be changed in place?
FINE = frozenset({WAITING_FOR_NODE, LEFT_BEHIND})  # the machine itself lacks nothing
BUSY = frozenset({"TaskRunning", "Locked"})  # a backup or a migration of a guest that runs
UNKNOWN = frozenset({"RegionUnreachable", "RegionUnknown", "HostDown"})
REASONS = {
    "TakeClaim": "Placing",
    "Clone": "Cloning",
    "Migrate": "Migrating",
    "AskAddresses": "WaitingForAddresses",
    "UploadIso": "Bootstrapping",
    "Resize": "Configuring",
    "SetFirewall": "Configuring",
    "Configure": "Configuring",
    "RegisterHa": "Starting",
    "JoinHaRule": "Starting",
    "Start": "Starting",
    "NameIt": "Starting",
    "Adopt": "Adopting",
}


def describe(obj: ProxmoxMachine, seen: Seen, move: Move) -> MachineStatus:
    """What is true of the machine."""
    conditions = _conditions(obj, seen, move)
    if seen.region_down or (obj.deleting and seen.guest is None):
        return structs.replace(obj.status, conditions=conditions, next_move=_next(move))
    guest = seen.guest.seen if seen.guest and seen.guest.ours else None
    return MachineStatus(
        conditions=conditions,
        initialization=Initialization(provisioned=is_provisioned(obj, seen) or None),
        addresses=_addresses(obj, seen),
        ip_addresses=_by_device(seen),
        failure_domain=seen.location,
        vm_status="notfound" if guest is None else "ready" if guest.running else "pending",
        power_state=guest.status if guest else "",
        proxmox_node=guest.host if guest else "",
        ha_state=guest.hastate if guest else "",
        bootstrap_data_provided=True if guest and seen.guest and seen.guest.marked else None,
        next_move=_next(move),
        hardware=_hardware(obj, seen),
        applied=in_place.memory(obj, seen.guest),
        observed_generation=obj.metadata.generation,
    )


def _hardware(obj: ProxmoxMachine, seen: Seen) -> str:
    """Moves on when the guest's configuration was read and nothing was left to change."""
    found = seen.guest
    read = found is not None and found.marked and found.config is not None
    if found is None or not read or obj.spec.changes != "InPlace":
        return obj.status.hardware
    done = in_place.is_done(in_place.change(obj, found))
    return guest_hardware.meaning(obj.spec) if done else obj.status.hardware


def is_provisioned(obj: ProxmoxMachine, seen: Seen) -> bool:
    """Once true, always true; lost with a move, it is seen again."""
    before = bool(obj.status.initialization.provisioned)
    return before or (bool(obj.spec.provider_id) and seen.bootstrapped)


def _conditions(obj: ProxmoxMachine, seen: Seen, move: Move) -> tuple[Condition, ...]:
    truth, reason, message = _verdict(obj, seen, move)
    made: Truth = "True" if truth == "True" or is_provisioned(obj, seen) else truth
    generation = obj.metadata.generation
    first = Condition(
        type=PROVISIONED,
        status="False" if obj.deleting else made,
        reason=reason if made != "True" or obj.deleting else "Provisioned",
        message=message if made != "True" or obj.deleting else "",
        observed_generation=generation,
    )
    ready = Condition(
        type=READY, status=truth, reason=reason, message=message, observed_generation=generation
    )
    return (ready, first, *_tidiness(obj, seen), *_sameness(obj, seen, move))


def _sameness(obj: ProxmoxMachine, seen: Seen, move: Move) -> tuple[Condition, ...]:
    """What could not be changed, or was kept; said while it is so, and once when it is over."""
    before = [c for c in obj.status.conditions if c.type == UP_TO_DATE]
    generation = obj.metadata.generation
    if obj.spec.provider_id and isinstance(move, Wait) and move.reason in in_place.TOLD:
        return (
            Condition(
                type=UP_TO_DATE,
                status="False",
                reason=move.reason,
                message=move.message,
                observed_generation=generation,
            ),
        )
    read = seen.guest is not None and seen.guest.marked and seen.guest.config is not None
    if not before or not read or not isinstance(move, Done):
        return tuple(before)
    return (
        Condition(type=UP_TO_DATE, status="True", reason="AsAsked", observed_generation=generation),
    )


def _tidiness(obj: ProxmoxMachine, seen: Seen) -> tuple[Condition, ...]:
    """What a clone left that died; said for as long as it lies there, and once when it is gone."""
    left = obj.spec.claim.left if obj.spec.claim else ()
    known = any(c.type == TIDY for c in obj.status.conditions)
    if not left and not known:
        return ()
    said = [str(c) for c in seen.carcasses if c.state in {"locked", "unknown"}]
    return (
        Condition(
            type=TIDY,
            status="False" if left else "True",
            reason=LEFT_BEHIND if left else "NothingLeftBehind",
            message="; ".join(said) or (f"next: remove {', '.join(left)}" if left else ""),
            observed_generation=obj.metadata.generation,
        ),
    )


def _verdict(obj: ProxmoxMachine, seen: Seen, move: Move) -> tuple[Truth, str, str]:
    if isinstance(move, Wait) and move.reason in FINE and not obj.deleting:
        return "True", "Provisioned", ""
    alive = seen.guest is not None and seen.guest.seen.running and bool(obj.spec.provider_id)
    well = alive and seen.bootstrapped and not obj.deleting
    if isinstance(move, Wait) and move.reason in BUSY | in_place.TOLD and well:
        return "True", "Provisioned", ""
    if isinstance(move, Wait):
        return ("Unknown" if move.reason in UNKNOWN else "False"), move.reason, move.message
    if obj.deleting:
        return "False", "Deleting", f"next: {_next(move)}"
    if isinstance(move, Done) or well:
        return "True", "Provisioned", ""
    name = type(move).__name__
    message = f"next: {name}"
    if seen.setback is not None:
        message += f"; before that: {seen.setback.error}"
    return "False", REASONS.get(name, name), message


def _next(move: Move) -> str:
    if isinstance(move, Done):
        return ""
    return f"wait: {move.reason}" if isinstance(move, Wait) else type(move).__name__


def _addresses(obj: ProxmoxMachine, seen: Seen) -> tuple[MachineAddress, ...]:
    if seen.guest is None or not seen.guest.ours:
        return obj.status.addresses if obj.spec.provider_id else ()
    found = [a.address for given in seen.addresses.given.values() for a in given]
    found += [a for given in seen.inside.values() for a in given]
    if not found and seen.guest.marked and obj.status.addresses:
        return obj.status.addresses  # a stopped guest keeps what it had
    if not found:
        return ()
    name = MachineAddress(type="Hostname", address=obj.name)
    return (name, *(MachineAddress(type="InternalIP", address=a) for a in dict.fromkeys(found)))


def _by_device(seen: Seen) -> tuple[IPAddresses, ...]:
    return tuple(
        IPAddresses(
            net=device,
            ipv4=tuple(a.address for a in given if not a.is6),
            ipv6=tuple(a.address for a in given if a.is6),
        )
        for device, given in sorted(seen.addresses.given.items())
    )
