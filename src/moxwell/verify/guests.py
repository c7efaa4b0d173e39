"""
Guests against machines: each ours, each once, each as its object says. Pure.

The surprise: a guest that bears our mark without an object may belong to another management
cluster on the same Proxmox, so the advice is to look before anything is destroyed.
"""

from collections import defaultdict
from collections.abc import Iterator

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.bootstrap.network_plan import devices_of
from moxwell.controllers.infra.machine.guest_agent import mark_of
from moxwell.controllers.infra.machine.observed import KEPT
from moxwell.controllers.infra.zone_defaults import cluster_name
from moxwell.errors import Retryable, Terminal
from moxwell.pve import ownership
from moxwell.pve.guests import CLONING, GuestConfig
from moxwell.pve.model import GuestSeen
from moxwell.pve.ownership import FAMILY_TAG, SHELL_TAG, Mark
from moxwell.pve.steps.config import differing, lingering
from moxwell.scheduling import guest_hardware
from moxwell.scheduling.zone_settings import Ground, ground_of
from moxwell.verify.findings import Finding, remark, wrong
from moxwell.verify.model import RegionWorld, World, is_settled, named

GIB = 1 << 30


def owned(world: World) -> Iterator[Finding]:
    """Every guest with our mark has one machine; no two guests have the same."""
    owners = {mark_of(m).key for m in world.machines} | {Mark(m.uid).key for m in world.machines}
    for region in world.regions.values():
        by_mark: dict[str, list[GuestSeen]] = defaultdict(list)
        for guest in region.guests.values():
            key = _mark(region, guest)
            if key is not None and not guest.template and SHELL_TAG not in guest.tags:
                by_mark[key].append(guest)
        for key, guests in sorted(by_mark.items()):
            yield from _unowned(region, guests, owned=key in owners)


def _mark(region: RegionWorld, guest: GuestSeen) -> str | None:
    """Whose a guest is: by its description where that was read, else by its tags."""
    config = region.configs.get(guest.vmid)
    if config is not None:
        return ownership.owner_key(config)
    keys = guest.owner_keys
    return keys[0] if FAMILY_TAG in guest.tags and len(keys) == 1 else None


def _unowned(region: RegionWorld, guests: list[GuestSeen], *, owned: bool) -> Iterator[Finding]:
    if len(guests) > 1:
        ids = ", ".join(f"{g.vmid} on {g.host}" for g in guests)
        yield wrong(
            "GuestDoubled",
            f"{region.name}/{guests[0].vmid}",
            f"guests {ids} in {region.name} bear the same mark",
            "keep the one that `moxwell get proxmoxmachines -A` names and destroy the other",
        )
    for guest in () if owned else guests:
        about, where = f"{region.name}/{guest.vmid}", f"{guest.host} of {region.name}"
        if KEPT in guest.tags:
            yield remark("GuestKept", about, f"guest {guest.vmid} on {where} was kept on purpose")
            continue
        yield wrong(
            "GuestWithoutOwner",
            about,
            f"guest {guest.vmid} ({guest.name}) on {where} bears our mark and no machine owns it",
            f"if no other management cluster uses {region.name}: "
            f"qm stop {guest.vmid} && qm destroy {guest.vmid} --purge on {guest.host}",
        )


def claimed_once(world: World) -> Iterator[Finding]:
    """No two machines claim one id."""
    holders: dict[tuple[str, int], list[ProxmoxMachine]] = defaultdict(list)
    for machine in world.machines:
        if machine.spec.region and machine.spec.virtual_machine_id:
            holders[machine.spec.region, machine.spec.virtual_machine_id].append(machine)
    for (region, vmid), several in sorted(holders.items()):
        if len(several) > 1:
            who = " and ".join(named(m) for m in several)
            yield wrong(
                "ClaimedTwice",
                f"{region}/{vmid}",
                f"{who} both claim guest {vmid} in {region}",
                "delete the machine whose name the guest does not have; it makes itself a new one",
            )


def present(world: World) -> Iterator[Finding]:
    """Every machine that was made has its guest, marked and running."""
    for machine in world.machines:
        region = world.regions.get(machine.spec.region or "")
        if not is_settled(machine) or region is None or not region.answers:
            continue
        guest = region.guests.get(machine.spec.virtual_machine_id or 0)
        if guest is None:
            yield wrong(
                "GuestMissing",
                named(machine),
                f"{named(machine)} has no guest {machine.spec.virtual_machine_id} in {region.name}",
                "delete the Machine: its group makes another",
            )
        else:
            yield from _alive(machine, region, guest)


def _alive(machine: ProxmoxMachine, region: RegionWorld, guest: GuestSeen) -> Iterator[Finding]:
    config = region.configs.get(guest.vmid)
    if (
        config is not None
        and config.lock != CLONING
        and not ownership.is_ours(config, mark_of(machine))
    ):
        whose = ownership.owner_key(config)
        yield wrong(
            "GuestForeign",
            named(machine),
            f"guest {guest.vmid} of {named(machine)} "
            + (f"bears the mark of {whose}" if whose else "bears no mark"),
            "Moxwell does not touch it; delete the Machine, or restore the guest's description",
        )
        return
    host = region.hosts.get(guest.host)
    if host is not None and not host.online:
        yield remark("HostSilent", named(machine), f"host {guest.host} does not answer")
    elif not guest.running:
        yield wrong(
            "GuestStopped",
            named(machine),
            f"guest {guest.vmid} of {named(machine)} is {guest.status}",
            f"qm start {guest.vmid} on {guest.host}, or delete the Machine",
        )
    if guest.lock:
        yield remark(
            "GuestLocked", named(machine), f"guest {guest.vmid} is locked by Proxmox: {guest.lock}"
        )


def hardware_as_said(world: World) -> Iterator[Finding]:
    """Processors, memory, disks, cards and identity are what the object says."""
    for machine in world.machines:
        region = world.regions.get(machine.spec.region or "")
        config = region.configs.get(machine.spec.virtual_machine_id or 0) if region else None
        if (
            not is_settled(machine)
            or config is None
            or not ownership.is_ours(config, mark_of(machine))
        ):
            continue
        for said in _differences(machine, config, _ground(world, machine)):
            yield wrong(
                "HardwareDiffers",
                named(machine),
                f"guest {machine.spec.virtual_machine_id} of {named(machine)}: {said}",
                "set it back in Proxmox, or delete the Machine to have it made anew",
            )


def _ground(world: World, machine: ProxmoxMachine) -> Ground | None:
    found, claim = world.ground_of(machine), machine.spec.claim
    if found is None or claim is None:
        return None
    try:
        return ground_of(cluster_name(found), found.spec, claim.zone)
    except (Retryable, Terminal):
        return None


def _differences(
    machine: ProxmoxMachine, config: GuestConfig, ground: Ground | None
) -> Iterator[str]:
    spec, claim = machine.spec, machine.spec.claim
    unwanted: tuple[str, ...] = ()
    if ground is None or claim is None:
        wanted = guest_hardware.compute(spec)
    else:
        changes = guest_hardware.wanted_config(
            spec,
            ground,
            owner=claim.uuid,
            devices=devices_of(spec, config.nics),
            current=config.raw,
            storage=claim.storage,
        )
        wanted, unwanted = dict(changes.put), changes.drop
    for key, value in sorted(differing(config, wanted).items()):
        yield f"{key} should be {value} and is {config.get(key) or 'not set'}"
    for key in lingering(config, unwanted):
        yield f"{key} is there and nobody asked for it"
    boot = spec.disks.boot_volume if spec.disks else None
    slot = guest_hardware.boot_disk(config.raw, boot.disk if boot else "")
    if boot is not None and config.size_bytes(slot) < boot.size_gb * GIB:
        yield f"disk {slot} should have {boot.size_gb} GiB and has {config.size_bytes(slot) // GIB}"


def placed(world: World) -> Iterator[Finding]:
    """Guests are in the zone that was promised."""
    for machine in world.machines:
        region, claim = world.regions.get(machine.spec.region or ""), machine.spec.claim
        ground = _ground(world, machine)
        guest = region.guests.get(machine.spec.virtual_machine_id or 0) if region else None
        if guest is None or claim is None or ground is None or not is_settled(machine):
            continue
        if ground.nodes and guest.host not in ground.nodes:
            yield remark(
                "OutsideZone",
                named(machine),
                f"{named(machine)} is on {guest.host}, outside its zone {claim.zone}",
                f"migrate guest {guest.vmid} back to one of {', '.join(sorted(ground.nodes))}",
            )
