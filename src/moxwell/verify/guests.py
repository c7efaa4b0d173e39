"""
Compares guests with machines: owner, VMID, presence, hardware, zone. Pure.

A guest with our owner mark but without an object may belong to another management cluster on the
same Proxmox, so nothing is advised to be destroyed without a check.
"""

from collections import defaultdict
from collections.abc import Iterator

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.zone_settings import ZoneSettings, zone_settings_of
from moxwell.bootstrap.network_plan import devices_of
from moxwell.controllers.infra.guest_names import KEPT, mark_of
from moxwell.controllers.infra.zone_defaults import cluster_name
from moxwell.errors import Retryable, Terminal
from moxwell.pve import ownership
from moxwell.pve.guests import CLONING, GuestConfig
from moxwell.pve.model import ObservedGuest
from moxwell.pve.ownership import FAMILY_TAG, Mark, is_helper_vm
from moxwell.pve.steps.config import changed_values, keys_to_delete
from moxwell.scheduling import guest_hardware
from moxwell.verify.findings import Finding, remark, wrong
from moxwell.verify.model import Observation, ObservedRegion, describe, is_provisioned

GIB = 1 << 30


def owned(observation: Observation) -> Iterator[Finding]:
    """Every guest with our mark has one machine, and no machine has two guests."""
    owners = {mark_of(m).key for m in observation.machines} | {
        Mark(m.uid).key for m in observation.machines
    }
    for region in observation.regions.values():
        by_mark: dict[str, list[ObservedGuest]] = defaultdict(list)
        for guest in region.guests.values():
            key = _mark(region, guest)
            if key is not None and not guest.template and not is_helper_vm(guest.tags):
                by_mark[key].append(guest)
        for key, guests in sorted(by_mark.items()):
            yield from _owners_of(region, guests, owned=key in owners)


def _mark(region: ObservedRegion, guest: ObservedGuest) -> str | None:
    """The owner key of a guest: from its description if that was read, else from its tags."""
    config = region.configs.get(guest.vmid)
    if config is not None:
        return ownership.owner_key(config)
    keys = guest.owner_keys
    return keys[0] if FAMILY_TAG in guest.tags and len(keys) == 1 else None


def _owners_of(
    region: ObservedRegion, guests: list[ObservedGuest], *, owned: bool
) -> Iterator[Finding]:
    if len(guests) > 1:
        ids = ", ".join(f"{g.vmid} on {g.host}" for g in guests)
        yield wrong(
            "DuplicateGuest",
            f"{region.name}/{guests[0].vmid}",
            f"guests {ids} in {region.name} have the same owner mark",
            "keep the one that `moxwell get proxmoxmachines -A` names and destroy the other",
        )
    for guest in () if owned else guests:
        about, where = f"{region.name}/{guest.vmid}", f"{guest.host} of {region.name}"
        if KEPT in guest.tags:
            yield remark(
                "RetainedGuest", about, f"guest {guest.vmid} on {where} was retained on purpose"
            )
            continue
        yield wrong(
            "GuestWithoutOwner",
            about,
            f"guest {guest.vmid} ({guest.name}) on {where} has our owner mark but no machine",
            f"if no other management cluster uses {region.name}: "
            f"qm stop {guest.vmid} && qm destroy {guest.vmid} --purge on {guest.host}",
        )


def claimed_once(observation: Observation) -> Iterator[Finding]:
    """No two machines claim the same VMID."""
    holders: dict[tuple[str, int], list[ProxmoxMachine]] = defaultdict(list)
    for machine in observation.machines:
        if machine.spec.region and machine.spec.virtual_machine_id:
            holders[machine.spec.region, machine.spec.virtual_machine_id].append(machine)
    for (region, vmid), several in sorted(holders.items()):
        if len(several) > 1:
            who = " and ".join(describe(m) for m in several)
            yield wrong(
                "VMIDClaimedTwice",
                f"{region}/{vmid}",
                f"{who} both claim guest {vmid} in {region}",
                "delete the Machine whose name differs from the guest's; it is replaced",
            )


def present(observation: Observation) -> Iterator[Finding]:
    """Every provisioned machine has a running guest with its owner mark."""
    for machine in observation.machines:
        region = observation.regions.get(machine.spec.region or "")
        if not is_provisioned(machine) or region is None or not region.answers:
            continue
        guest = region.guests.get(machine.spec.virtual_machine_id or 0)
        if guest is None:
            yield wrong(
                "GuestMissing",
                describe(machine),
                f"guest {machine.spec.virtual_machine_id} of {describe(machine)} does not exist",
                "delete the Machine: its MachineSet replaces it",
            )
        else:
            yield from _matches_machine(machine, region, guest)


def _matches_machine(
    machine: ProxmoxMachine, region: ObservedRegion, guest: ObservedGuest
) -> Iterator[Finding]:
    config = region.configs.get(guest.vmid)
    if (
        config is not None
        and config.lock != CLONING
        and not ownership.is_ours(config, mark_of(machine))
    ):
        owner = ownership.owner_key(config)
        yield wrong(
            "GuestOwnedByOther",
            describe(machine),
            f"guest {guest.vmid} of {describe(machine)} "
            + (f"has the owner mark of {owner}" if owner else "has no owner mark"),
            "Moxwell does not change it; delete the Machine, or restore the guest's description",
        )
        return
    host = region.hosts.get(guest.host)
    if host is not None and not host.online:
        yield remark("HostUnreachable", describe(machine), f"host {guest.host} does not answer")
    elif not guest.running:
        yield wrong(
            "GuestStopped",
            describe(machine),
            f"guest {guest.vmid} of {describe(machine)} is {guest.status}",
            f"qm start {guest.vmid} on {guest.host}, or delete the Machine",
        )
    if guest.lock:
        yield remark(
            "GuestLocked",
            describe(machine),
            f"guest {guest.vmid} is locked by Proxmox: {guest.lock}",
        )


def hardware_matches(observation: Observation) -> Iterator[Finding]:
    """CPU, memory, disks, network devices and SMBIOS UUID match the object."""
    for machine in observation.machines:
        region = observation.regions.get(machine.spec.region or "")
        config = region.configs.get(machine.spec.virtual_machine_id or 0) if region else None
        if (
            not is_provisioned(machine)
            or config is None
            or not ownership.is_ours(config, mark_of(machine))
        ):
            continue
        for difference in _differences(machine, config, _zone_settings(observation, machine)):
            yield wrong(
                "HardwareDiffers",
                describe(machine),
                f"guest {machine.spec.virtual_machine_id} of {describe(machine)}: {difference}",
                "set it back in Proxmox, or delete the Machine so that it is replaced",
            )


def _zone_settings(observation: Observation, machine: ProxmoxMachine) -> ZoneSettings | None:
    found, claim = observation.zone_settings_of(machine), machine.spec.claim
    if found is None or claim is None:
        return None
    try:
        return zone_settings_of(cluster_name(found), found.spec, claim.zone)
    except (Retryable, Terminal):
        return None


def _differences(
    machine: ProxmoxMachine, config: GuestConfig, settings: ZoneSettings | None
) -> Iterator[str]:
    spec, claim = machine.spec, machine.spec.claim
    unwanted: tuple[str, ...] = ()
    if settings is None or claim is None:
        wanted = guest_hardware.compute(spec)
    else:
        changes = guest_hardware.wanted_config(
            spec,
            settings,
            owner=claim.uuid,
            devices=devices_of(spec, config.nics),
            current=config.raw,
            storage=claim.storage,
        )
        wanted, unwanted = dict(changes.put), changes.drop
    for key, value in sorted(changed_values(config, wanted).items()):
        yield f"{key} should be {value} and is {config.get(key) or 'not set'}"
    for key in keys_to_delete(config, unwanted):
        yield f"{key} is set but not in the object"
    boot = spec.disks.boot_volume if spec.disks else None
    slot = guest_hardware.boot_disk(config.raw, boot.disk if boot else "")
    if boot is not None and config.size_bytes(slot) < boot.size_gb * GIB:
        yield f"disk {slot} should have {boot.size_gb} GiB and has {config.size_bytes(slot) // GIB}"


def in_zones(observation: Observation) -> Iterator[Finding]:
    """Guests are on a host of their zone."""
    for machine in observation.machines:
        region, claim = observation.regions.get(machine.spec.region or ""), machine.spec.claim
        settings = _zone_settings(observation, machine)
        guest = region.guests.get(machine.spec.virtual_machine_id or 0) if region else None
        if guest is None or claim is None or settings is None or not is_provisioned(machine):
            continue
        if settings.nodes and guest.host not in settings.nodes:
            yield remark(
                "GuestOutsideZone",
                describe(machine),
                f"{describe(machine)} is on {guest.host}, outside its zone {claim.zone}",
                f"migrate guest {guest.vmid} back to one of {', '.join(sorted(settings.nodes))}",
            )
