"""
The decision: from what was seen to the one next move. Pure, and the whole specification.

From first to last: claim, clone, ask for addresses and bring the seed while the clone runs, migrate
where the template lay elsewhere, grow the disk, guard it, configure (which marks it), start, name
it, wait for the sentinel, take the seed away. The marks of the guest tell which of these are done:
no tags, not configured; the booting tag, the seed is in; a providerID, it was started once.
"""

from dataclasses import dataclass

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.template import Claim
from moxwell.bootstrap.network_plan import Want
from moxwell.controllers.infra.machine import in_place, steps
from moxwell.controllers.infra.machine.guest_agent import iso_of, mark_of, shelf_of
from moxwell.controllers.infra.machine.observed import KEPT, Choice, GuestFound, Seen
from moxwell.controllers.infra.owners import is_kept
from moxwell.pve import errors
from moxwell.pve.steps import (
    Clone,
    Configure,
    DeleteVolume,
    Destroy,
    Guest,
    JoinHaRule,
    Migrate,
    RemoveCarcass,
    Shutdown,
    Start,
    Step,
    Stop,
)
from moxwell.runtime.move import Done, Wait

SHUTDOWN_SECONDS = 60
WAITING_FOR_NODE = "WaitingForNode"  # nothing is missing on our side
LEFT_BEHIND = "CloneLeftBehind"  # the machine itself is well


@dataclass(frozen=True, slots=True)
class TakeClaim:
    """Write down region, id, host and template, before anything is made."""

    choice: Choice


@dataclass(frozen=True, slots=True)
class Adopt:
    """Write down the claim of a guest that was made by CAPMOX."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class AskAddresses:
    """Claim addresses; give back those that fit no longer."""

    wants: tuple[Want, ...]
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NameIt:
    """Write the providerID: from now on a guest that is not there has vanished."""

    provider_id: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give the addresses back, or keep them with a guest that is kept."""

    claims: tuple[str, ...]
    keep: bool = False


@dataclass(frozen=True, slots=True)
class ForgetCarcass:
    """What was left behind is gone: the claim need not remember it any more."""

    left: tuple[str, ...]  # what it still remembers


Move = ForgetCarcass | TakeClaim | Adopt | AskAddresses | NameIt | GiveBack | Step | Wait | Done


def next_move(obj: ProxmoxMachine, seen: Seen) -> Move:
    """The one thing to do next, decided from what is true now."""
    if seen.stuck is not None:
        return seen.stuck
    if obj.deleting:
        return _unmake(obj, seen)
    if seen.choice is not None:
        return TakeClaim(seen.choice)
    claim = obj.spec.claim
    if claim is None:
        return _adopt(obj, seen)
    if seen.guest is None:
        return _make(obj, claim, seen)
    return _tend(obj, claim, seen, seen.guest)


# ---- making


def _make(obj: ProxmoxMachine, claim: Claim, seen: Seen) -> Move:
    if obj.spec.provider_id:
        return Wait(
            "Vanished", f"guest {obj.spec.virtual_machine_id} is not in the region any more"
        )
    if seen.task:
        return _meanwhile(obj, claim, seen, "Cloning")
    if seen.pause_seconds and seen.setback:
        return Wait(seen.setback.error.reason, str(seen.setback.error))
    host = claim.template_host if claim.detour else claim.host
    return Clone(
        Guest(obj.spec.region or "", host, obj.spec.virtual_machine_id or 0, mark_of(obj)),
        template=claim.template,
        template_host=claim.template_host,
        name=obj.name,
        description=obj.spec.description or "",
        full=not claim.linked,
        storage=claim.storage,
        format=(obj.spec.format or "") if not claim.linked else "",
        pool=steps.pool(obj, seen),
        snapshot=obj.spec.snap_name or "",
    )


def _meanwhile(obj: ProxmoxMachine, claim: Claim, seen: Seen, why: str) -> Move:
    """While the clone runs: addresses, and the seed that needs them."""
    if ask := _addresses(seen):
        return ask
    if seen.addresses.pending:
        waiting = ", ".join(seen.addresses.pending)
        return Wait("WaitingForAddresses", f"no answer yet to {waiting}")
    if seen.iso_there is False and seen.bootstrap is None:
        return Wait("WaitingForBootstrapData", "the Secret with the data is not there")
    if seen.iso_there is False:
        return steps.seed(obj, claim, seen)
    return Wait(why, f"cloning template {claim.template} to {obj.spec.virtual_machine_id}")


def _addresses(seen: Seen) -> AskAddresses | None:
    found = seen.addresses
    if found.missing or found.wrong:
        return AskAddresses(found.missing, found.wrong)
    return None


def _tend(obj: ProxmoxMachine, claim: Claim, seen: Seen, guest: GuestFound) -> Move:
    if not guest.host_online:
        return Wait("HostDown", f"host {guest.seen.host} is down; nothing is known of the guest")
    if guest.arriving:
        return _meanwhile(obj, claim, seen, "Cloning")
    if not guest.ours:
        return _stranger(obj, guest)
    if seen.task:
        return Wait("TaskRunning", f"Proxmox works on guest {guest.seen.vmid}")
    if guest.seen.lock:
        return Wait("Locked", f"guest {guest.seen.vmid} is locked ({guest.seen.lock})")
    if not guest.marked and obj.spec.provider_id:
        return steps.stamp(obj, guest)
    if not guest.marked:
        return _prepare(obj, claim, seen, guest)
    if not obj.spec.provider_id:
        return _start(obj, seen, guest)
    return _live(obj, claim, seen, guest)


def _stranger(obj: ProxmoxMachine, guest: GuestFound) -> Move:
    """Somebody else has our id: never touched. Before we made ours, another id is claimed."""
    vmid = guest.seen.vmid
    if obj.spec.provider_id:
        return Wait("Vanished", f"our guest is gone and {vmid} belongs to somebody else now")
    return Wait("VMIDTaken", f"{vmid} belongs to somebody else; another id will be claimed")


def _prepare(obj: ProxmoxMachine, claim: Claim, seen: Seen, guest: GuestFound) -> Move:
    """From a bare clone to a configured guest; the last of these writes marks it as that."""
    if seen.pause_seconds and seen.setback:
        return Wait(seen.setback.error.reason, str(seen.setback.error))
    if claim.detour and guest.seen.host != claim.host and guest.seen.host == claim.template_host:
        storage = claim.storage
        return Migrate(
            steps.guest(obj, guest),
            target=claim.host,
            with_local_disks=True,
            target_storage=storage,
        )
    if seen.iso_there is not True:
        return _meanwhile(obj, claim, seen, "Bootstrapping")
    return (
        steps.growth(obj, guest)
        or steps.guard(obj, guest)
        or steps.first_config(obj, claim, seen, guest)
    )


def _start(obj: ProxmoxMachine, seen: Seen, guest: GuestFound) -> Move:
    care = obj.spec.high_availability
    if care is not None and seen.care == "missing":
        return Wait("HARuleNotFound", f"region {obj.spec.region} has no HA rule {care.group!r}")
    if care is not None and guest.seen.hastate and seen.care == "rule":
        return JoinHaRule(steps.guest(obj, guest), rule=care.group or "")
    if guest.seen.running:
        return NameIt(steps.provider_id(obj, seen))
    if seen.pause_seconds and seen.setback:
        return Wait(seen.setback.error.reason, str(seen.setback.error))
    if care is not None:
        if guest.seen.hastate:
            return Wait("WaitingForHA", f"the HA manager starts it ({guest.seen.hastate})")
        return steps.register(obj, guest, (care.group or "") if seen.care == "group" else "")
    return Start(steps.guest(obj, guest))


# ---- living


def _live(obj: ProxmoxMachine, claim: Claim, seen: Seen, guest: GuestFound) -> Move:
    if not guest.seen.running:
        if obj.spec.when_stopped == "Start" and not guest.seen.hastate:
            return Start(steps.guest(obj, guest))
        return Wait("Stopped", f"guest {guest.seen.vmid} is {guest.seen.status}")
    if guest.booting:
        return _boot(obj, claim, seen, guest)
    if obj.spec.changes == "InPlace" and (change := in_place.change(obj, guest)):
        return change  # what a running guest cannot take stays pending until it restarts
    return _tidy(obj, seen) or Done()


def _boot(obj: ProxmoxMachine, claim: Claim, seen: Seen, guest: GuestFound) -> Move:
    """Until the node is there; then the seed goes, first the file, then the drive and the tag."""
    if not seen.bootstrapped:
        minutes = guest.seen.uptime_seconds // 60
        return Wait("WaitingForBootstrap", f"{seen.agent_says} (up for {minutes} min)")
    if seen.around is None or seen.around.machine.status.node_ref is None:
        return Wait(WAITING_FOR_NODE, "the guest is up; its seed stays until the node is there")
    if seen.iso_there and claim.iso_storage:
        return DeleteVolume(
            shelf=shelf_of(obj.spec.region or "", claim),
            mark=mark_of(obj),
            volid=iso_of(obj, claim),
        )
    return steps.eject(obj, guest)


def _adopt(obj: ProxmoxMachine, seen: Seen) -> Move:
    """An id without a claim: CAPMOX made it. Its UUID must be the one that we know."""
    guest = seen.guest
    if guest is None:
        return Wait("Vanished", f"guest {obj.spec.virtual_machine_id} is not in the region")
    if guest.arriving:
        return Wait("Locked", f"guest {guest.seen.vmid} cannot be looked at now")
    if not guest.ours:
        return Wait("NotOurs", f"guest {guest.seen.vmid} has neither our mark nor our UUID")
    return Adopt(Claim(host=guest.seen.host, uuid=mark_of(obj).owner_uid))


# ---- what clones left that died


def _tidy(obj: ProxmoxMachine, seen: Seen) -> Move | None:
    """One step against what is left behind; None if nothing is."""
    remembered = obj.spec.claim.left if obj.spec.claim else ()
    gone = {c.place for c in seen.carcasses if c.state == "gone"}
    if gone & set(remembered):
        return ForgetCarcass(tuple(place for place in remembered if place not in gone))
    left = [c for c in seen.carcasses if c.state != "gone"]
    for carcass in left:
        if carcass.state == "removable" and not seen.pause_seconds:
            guest = Guest(carcass.region, carcass.host, carcass.vmid, mark_of(obj))
            return RemoveCarcass(guest, skip_lock=carcass.skip_lock)
    return Wait(LEFT_BEHIND, "; ".join(map(str, left))) if left else None


# ---- unmaking


def _unmake(obj: ProxmoxMachine, seen: Seen) -> Move:
    guest = seen.guest
    if seen.dead and seen.task:
        return Wait("Deleting", "Proxmox works on what is left")
    if seen.dead and not is_kept(obj):
        return _tidy(obj, seen) or Wait("Deleting", "the clone is gone; looking again")
    if seen.dead:
        return Done()
    if guest is None or not (guest.ours or guest.arriving):
        if not seen.gone:
            return Wait("WaitingForGuest", f"{obj.spec.virtual_machine_id} exists, not visible yet")
        return _leftovers(obj, seen)
    if not guest.host_online:
        return Wait("HostDown", f"host {guest.seen.host} is down; the guest cannot be removed")
    if guest.arriving:
        return Wait("Cloning", f"guest {guest.seen.vmid} is being cloned; it goes after that")
    if not guest.marked and obj.spec.provider_id and guest.config is not None:
        return steps.stamp(obj, guest)
    if is_kept(obj):
        return _keep(obj, seen, guest)
    if seen.task:
        return Wait("Deleting", f"Proxmox works on guest {guest.seen.vmid}")
    return _remove(obj, seen, guest)


def _remove(obj: ProxmoxMachine, seen: Seen, guest: GuestFound) -> Move:
    if seen.pause_seconds and seen.setback:
        return Wait(seen.setback.error.reason, str(seen.setback.error))
    if guest.seen.lock:
        return Wait("Locked", f"guest {guest.seen.vmid} is locked ({guest.seen.lock})")
    if not guest.seen.running:
        return Destroy(steps.guest(obj, guest), unreferenced_disks=True)
    if guest.seen.hastate in {"request_stop", "stopped"}:
        return Wait("Deleting", f"the HA manager stops guest {guest.seen.vmid}")
    seconds = obj.spec.shutdown_seconds
    limit = SHUTDOWN_SECONDS if seconds is None else seconds
    failed = seen.setback is not None and isinstance(seen.setback.error, errors.WrongState)
    if limit == 0 or failed:
        return Stop(steps.guest(obj, guest))
    return Shutdown(steps.guest(obj, guest), timeout_seconds=limit, force=True)


def _keep(obj: ProxmoxMachine, seen: Seen, guest: GuestFound) -> Move:
    """The guest stays, with its addresses; a tag tells the collector why nobody owns it."""
    if KEPT not in guest.seen.tags:
        tags = mark_of(obj).tags([*guest.seen.tags, KEPT])
        return Configure(steps.guest(obj, guest), changes={"tags": tags})
    if seen.owned_claims:
        return GiveBack(seen.owned_claims, keep=True)
    return Done()


def _leftovers(obj: ProxmoxMachine, seen: Seen) -> Move:
    claim = obj.spec.claim
    if seen.task:
        return Wait("Deleting", "Proxmox works on what is left")
    if seen.iso_there and claim is not None:
        if not seen.claim_host_online:
            return Wait("HostDown", f"host {claim.host} is down; its seed disk cannot be removed")
        return DeleteVolume(
            shelf=shelf_of(obj.spec.region or "", claim),
            mark=mark_of(obj),
            volid=iso_of(obj, claim),
        )
    if seen.owned_claims:
        return GiveBack(seen.owned_claims)
    return Done() if is_kept(obj) else _tidy(obj, seen) or Done()
