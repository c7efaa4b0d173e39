"""
Decides the next move of a ProxmoxMachine. Pure.

The order: reserve a VMID, clone, claim addresses and upload the bootstrap ISO while the clone runs,
migrate if the template is on another host, grow the disk, set the firewall, configure (which sets
the owner mark), start, set the providerID, wait for the bootstrap and the node, delete the ISO. The
guest shows which of these are done: without mark it is not configured, with the booting tag the
bootstrap ISO is attached, and a machine with a providerID was started once.
"""

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.machine_reasons import ProxmoxMachineReason
from moxwell.api.infra.template import Claim
from moxwell.api.infra.tenant_limits import violations_of
from moxwell.api.infra.warm_guests import RESERVED_FOR, is_warm
from moxwell.api.kinds import owner_reference
from moxwell.controllers.infra.guest_names import mark_of
from moxwell.controllers.infra.machine import in_place, steps
from moxwell.controllers.infra.machine.deletion import (
    Decision,
    delete,
    delete_iso,
    remove_stale_clones,
)
from moxwell.controllers.infra.machine.moves import (
    ZONE_LABEL,
    AdoptGuest,
    ClaimAddresses,
    DeleteWarmGuest,
    MachineVersion,
    Move,
    RecordApplied,
    ReserveVMID,
    SetAddressesAside,
    SetProviderID,
    TakeStep,
)
from moxwell.controllers.infra.machine.observed import (
    MachineGuest,
    ObservedProxmoxMachine,
    OwnerObjects,
)
from moxwell.controllers.infra.machine.placement import choose_place
from moxwell.controllers.infra.machine.power import wait_to_execute
from moxwell.controllers.infra.machine.replacement import (
    abandoned,
    hosts_to_avoid,
    missing_prerequisite,
)
from moxwell.controllers.infra.machine.waits import (
    backoff,
    host_down,
    locked,
    quota_exceeded,
    region_problem,
)
from moxwell.pve.steps import (
    AddToHaRule,
    Clone,
    GuestRef,
    Migrate,
    Start,
    Step,
    Stop,
)
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.scheduling import guest_hardware, last_applied

CLONE_POLL_SECONDS = 5.0


def plan(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> Move:
    """The one next move."""
    decision = _decide(obj, seen)
    if isinstance(decision, Step):
        return TakeStep(Key(obj.namespace, obj.name), decision, seen.scope)
    return decision


def _decide(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> Decision:
    if obj.deleting:
        return region_problem(seen) or delete(obj, seen)
    claim = obj.spec.claim
    if claim is not None and claim.applied is None and seen.legacy_applied is not None:
        return RecordApplied(MachineVersion.of(obj), seen.legacy_applied)
    if wait := _missing_owner(obj, seen) or region_problem(seen):
        return wait
    if is_warm(obj) and seen.owners is not None and _is_unneeded(obj, seen, seen.owners):
        return DeleteWarmGuest(MachineVersion.of(obj))
    if obj.spec.virtual_machine_id is None:
        return _place(obj, seen)
    if claim is None:
        return _adopt(obj, seen)
    if replace := _replace(obj, seen):
        return replace
    if seen.guest is None:
        return _create(obj, claim, seen)
    return _advance(obj, claim, seen, seen.guest)


def _missing_owner(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> Wait | None:
    if seen.machine is None and not is_warm(obj):
        return Wait(ProxmoxMachineReason.WAITING_FOR_MACHINE, "no Machine owns this object yet")
    if seen.owners is None:
        message = "its Cluster or ProxmoxCluster does not exist yet"
        return Wait(ProxmoxMachineReason.WAITING_FOR_CLUSTER, message)
    return missing_prerequisite(obj, seen.owners)


def _is_unneeded(obj: ProxmoxMachine, seen: ObservedProxmoxMachine, owners: OwnerObjects) -> bool:
    """Whether no launch will take a warm guest; one that is reserved may be taken later."""
    ending = owners.cluster.deleting or owners.proxmox_cluster.deleting
    return ending or not (seen.scaled or RESERVED_FOR in obj.metadata.annotations)


# ---- placement


def _place(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> ReserveVMID | Wait:
    assert seen.owners is not None
    assert seen.placement is not None
    if outside := _outside_tenant(obj, seen):
        return outside
    if seen.placement.excess:
        return quota_exceeded(seen.placement.excess)
    return choose_place(obj, seen.owners, seen.placement)


def _outside_tenant(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> Wait | None:
    if seen.tenant is None or seen.owners is None:
        return None
    cluster_pool = seen.owners.proxmox_cluster.spec.pool
    outside = "; ".join(violations_of(obj.spec, cluster_pool, seen.tenant))
    return Wait(ProxmoxMachineReason.OUTSIDE_TENANT, outside) if outside else None


def _replace(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> ReserveVMID | Wait | None:
    """Claim another VMID if the claimed guest cannot be completed; None: go on with it."""
    avoid = hosts_to_avoid(obj, seen)
    if avoid is None or seen.owners is None or seen.placement is None:
        return None
    stale = abandoned(obj, seen)
    move = choose_place(obj, seen.owners, seen.placement, avoid=avoid, stale_clones=stale)
    return move if isinstance(move, ReserveVMID) or not seen.claim_host_online else None


# ---- creation


def _create(obj: ProxmoxMachine, claim: Claim, seen: ObservedProxmoxMachine) -> Decision:
    if obj.spec.provider_id:
        message = f"guest {obj.spec.virtual_machine_id} does not exist in the region any more"
        return Wait(ProxmoxMachineReason.VANISHED, message)
    if seen.task_running:
        return _while_cloning(obj, claim, seen, ProxmoxMachineReason.CLONING)
    if wait := backoff(seen):
        return wait
    if seen.clone_must_wait:
        return _while_cloning(obj, claim, seen, ProxmoxMachineReason.WAITING_FOR_CLONES)
    host = claim.template_host if claim.migrate_after_clone else claim.host
    return Clone(
        GuestRef(obj.spec.region or "", host, obj.spec.virtual_machine_id or 0, mark_of(obj)),
        template=claim.template,
        template_host=claim.template_host,
        name=obj.name,
        description=guest_hardware.description(obj.spec),
        full=not claim.linked,
        storage=claim.storage,
        format=(obj.spec.format or "") if not claim.linked else "",
        pool=steps.pool(obj, seen),
        snapshot=obj.spec.snap_name or "",
    )


def _while_cloning(
    obj: ProxmoxMachine, claim: Claim, seen: ObservedProxmoxMachine, reason: ProxmoxMachineReason
) -> Decision:
    """What can be done while the clone runs: addresses, and the bootstrap ISO that needs them."""
    if is_warm(obj):
        return _wait_for_clone(obj, claim, reason)
    if move := _claim_addresses(obj, seen):
        return move
    if seen.addresses.pending:
        message = f"no address yet for {', '.join(seen.addresses.pending)}"
        return Wait(ProxmoxMachineReason.WAITING_FOR_ADDRESSES, message)
    if seen.addresses.taken and seen.owners is not None:
        cluster = owner_reference(seen.owners.proxmox_cluster, controller=False)
        return SetAddressesAside(obj.namespace, cluster, seen.addresses.taken)
    if seen.iso_exists is False and seen.bootstrap is None:
        message = "the Secret with the bootstrap data does not exist"
        return Wait(ProxmoxMachineReason.WAITING_FOR_BOOTSTRAP_DATA, message)
    if seen.iso_exists is False:
        return steps.upload_iso(obj, claim, seen)
    return _wait_for_clone(obj, claim, reason)


def _wait_for_clone(obj: ProxmoxMachine, claim: Claim, reason: ProxmoxMachineReason) -> Wait:
    if reason is ProxmoxMachineReason.WAITING_FOR_CLONES:
        message = f"other full clones run on {claim.template_host} or storage {claim.storage}"
        return Wait(reason, message, requeue_after=CLONE_POLL_SECONDS)
    return Wait(reason, f"cloning template {claim.template} to {obj.spec.virtual_machine_id}")


def _claim_addresses(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> ClaimAddresses | None:
    found = seen.addresses
    if not (found.missing or found.wrong):
        return None
    cluster = seen.owners.cluster.name if seen.owners else ""
    zone = seen.zone.zone or "default"
    return ClaimAddresses.of(
        obj, found.missing, found.wrong, cluster=cluster, labels={ZONE_LABEL: zone}
    )


def _advance(
    obj: ProxmoxMachine, claim: Claim, seen: ObservedProxmoxMachine, guest: MachineGuest
) -> Decision:
    if not guest.host_online:
        return host_down(guest, "the state of the guest is unknown")
    if guest.cloning:
        return _while_cloning(obj, claim, seen, ProxmoxMachineReason.CLONING)
    if not guest.ours:
        return _not_ours(obj, guest)
    if seen.task_running:
        message = f"a task runs on guest {guest.seen.vmid}"
        return Wait(ProxmoxMachineReason.TASK_RUNNING, message)
    if guest.seen.lock:
        return locked(guest)
    if guest.unbound or (not guest.marked and obj.spec.provider_id):
        return steps.set_mark(obj, guest)
    if not guest.marked:
        return _prepare(obj, claim, seen, guest)
    if is_warm(obj):
        message = f"guest {guest.seen.vmid} is {guest.seen.status} and waits for a node claim"
        return Wait(ProxmoxMachineReason.WARM, message)
    if not obj.spec.provider_id:
        return _start(obj, seen, guest)
    return _maintain(obj, claim, seen, guest)


def _not_ours(obj: ProxmoxMachine, guest: MachineGuest) -> Decision:
    """A guest of another owner has the VMID; it is never touched."""
    vmid = guest.seen.vmid
    if obj.spec.provider_id:
        message = f"the guest does not exist any more, and VMID {vmid} has another owner"
        return Wait(ProxmoxMachineReason.VANISHED, message)
    message = f"VMID {vmid} has another owner; another VMID will be claimed"
    return Wait(ProxmoxMachineReason.VMID_TAKEN, message)


def _prepare(
    obj: ProxmoxMachine, claim: Claim, seen: ObservedProxmoxMachine, guest: MachineGuest
) -> Decision:
    """From a new clone to a configured guest; the last of these steps sets the owner mark."""
    if wait := backoff(seen):
        return wait
    if (
        claim.migrate_after_clone
        and guest.seen.host != claim.host
        and guest.seen.host == claim.template_host
    ):
        storage = claim.storage
        return Migrate(
            steps.guest(obj, guest),
            target=claim.host,
            with_local_disks=True,
            target_storage=storage,
        )
    if is_warm(obj):
        return steps.grow_disk(obj, guest) or steps.mark_warm(obj, guest)
    if seen.excess:
        return quota_exceeded(seen.excess)
    if guest.warm and guest.seen.has_process:
        return Stop(steps.guest(obj, guest))  # somebody started it
    if seen.iso_exists is not True:
        return _while_cloning(obj, claim, seen, ProxmoxMachineReason.BOOTSTRAPPING)
    return (
        _record_spec(obj)
        or steps.grow_disk(obj, guest)
        or steps.set_firewall(obj, guest)
        or steps.first_config(obj, claim, seen, guest)
    )


def _record_spec(obj: ProxmoxMachine) -> RecordApplied | None:
    """Record settings that were added to the spec after the claim, before they are applied."""
    before = last_applied.recorded(obj.spec)
    applied = last_applied.record(before, obj.spec)
    if obj.spec.changes != "InPlace" or applied == before:
        return None
    return RecordApplied(MachineVersion.of(obj), applied)


def _start(obj: ProxmoxMachine, seen: ObservedProxmoxMachine, guest: MachineGuest) -> Decision:
    ha = obj.spec.high_availability
    if ha is not None and seen.ha_mode == "missing":
        message = f"region {obj.spec.region} has no HA rule {ha.group!r}"
        return Wait(ProxmoxMachineReason.HA_RULE_NOT_FOUND, message)
    if ha is not None and guest.seen.hastate and seen.ha_mode == "rule":
        return AddToHaRule(steps.guest(obj, guest), rule=ha.group or "")
    if guest.seen.running:
        return SetProviderID(MachineVersion.of(obj), steps.provider_id(obj, seen))
    if guest.seen.has_process:
        return wait_to_execute(guest)
    if wait := backoff(seen):
        return wait
    if ha is not None and guest.seen.hastate:
        message = f"the HA manager starts the guest ({guest.seen.hastate})"
        return Wait(ProxmoxMachineReason.WAITING_FOR_HA, message)
    if ha is not None:
        group = (ha.group or "") if seen.ha_mode == "group" else ""
        return steps.register_ha(obj, guest, group)
    return Start(steps.guest(obj, guest))


# ---- a started guest


def _maintain(
    obj: ProxmoxMachine, claim: Claim, seen: ObservedProxmoxMachine, guest: MachineGuest
) -> Decision:
    if guest.seen.has_process and not guest.seen.running:
        return wait_to_execute(guest)
    if not guest.seen.running:
        if obj.spec.when_stopped == "Start" and not guest.seen.hastate:
            return Start(steps.guest(obj, guest))
        return Wait(ProxmoxMachineReason.STOPPED, f"guest {guest.seen.vmid} is {guest.seen.status}")
    if guest.booting:
        return _bootstrap(obj, claim, seen, guest)
    return _change(obj, seen, guest) or remove_stale_clones(obj, seen) or Done()


def _change(
    obj: ProxmoxMachine, seen: ObservedProxmoxMachine, guest: MachineGuest
) -> Decision | None:
    """Apply the spec to a running guest; changes that need a restart stay pending in Proxmox."""
    if obj.spec.changes != "InPlace" or guest.config is None:
        return None
    applied = in_place.applied_record(obj, guest)
    if applied != last_applied.recorded(obj.spec):
        return RecordApplied(MachineVersion.of(obj), applied)
    if seen.excess:
        return quota_exceeded(seen.excess)
    return _outside_tenant(obj, seen) or in_place.change(obj, guest)


def _bootstrap(
    obj: ProxmoxMachine, claim: Claim, seen: ObservedProxmoxMachine, guest: MachineGuest
) -> Decision:
    """Wait for the node; then delete the bootstrap ISO, eject it and remove the booting tag."""
    if not seen.bootstrapped:
        message = f"{seen.agent_message} (up for {guest.seen.uptime_seconds // 60} min)"
        return Wait(ProxmoxMachineReason.WAITING_FOR_BOOTSTRAP, message, seen.agent_poll_seconds)
    if seen.machine is None or seen.machine.status.node_ref is None:
        message = "the guest is up; its bootstrap ISO is kept until the node has joined"
        return Wait(ProxmoxMachineReason.WAITING_FOR_NODE, message)
    if seen.iso_exists and claim.iso_storage:
        return delete_iso(obj, claim)
    return steps.eject_iso(obj, guest)


def _adopt(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> Decision:
    """
    Claim the guest of a machine that CAPMOX or karpenter-provider-proxmox created.

    The providerID must name its UUID, or its region and VMID.
    """
    guest = seen.guest
    if guest is None:
        message = f"guest {obj.spec.virtual_machine_id} does not exist in the region"
        return Wait(ProxmoxMachineReason.VANISHED, message)
    if guest.cloning:
        return Wait(ProxmoxMachineReason.LOCKED, f"guest {guest.seen.vmid} cannot be read now")
    if not guest.ours:
        message = (
            f"guest {guest.seen.vmid} is not bound to this cluster. To let the cluster adopt it, "
            f"set the tag {mark_of(obj).adopt_tag} on the guest; spec.providerID must name its "
            "UUID, or its region and VMID"
        )
        return Wait(ProxmoxMachineReason.NOT_OURS, message)
    applied = last_applied.wanted(obj.spec)
    claim = Claim(host=guest.seen.host, uuid=mark_of(obj).owner_uid, applied=applied)
    return AdoptGuest(MachineVersion.of(obj), claim)
