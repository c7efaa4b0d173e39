"""
The steps of a machine's life with all their details filled in: pure, and used by the plan alone.

In flow the object and what was seen, out flow steps as values. Everything after the clone is one
merged configuration write, guarded by the digest of what was seen; the tags in it are the evidence
that it happened.
"""

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.template import Claim, HighAvailability
from moxwell.bootstrap.bootstrap_data import SCHEME, Identity, Place, seed_files
from moxwell.bootstrap.iso import build_iso
from moxwell.bootstrap.network_plan import network_of
from moxwell.controllers.infra.machine.guest_agent import iso_of, mark_of, seed_name, shelf_of
from moxwell.controllers.infra.machine.observed import BOOTING, GuestFound, Seen
from moxwell.pve import property_strings
from moxwell.pve.endpoints.firewall import Rule
from moxwell.pve.guests import GuestConfig
from moxwell.pve.steps import Configure, Guest, RegisterHa, Resize, SetFirewall, UploadIso
from moxwell.pve.steps.config import EMPTY_DRIVE
from moxwell.pve.values import Blob
from moxwell.scheduling import guest_hardware, last_applied


def guest(obj: ProxmoxMachine, found: GuestFound) -> Guest:
    """The guest as a step names it."""
    return Guest(obj.spec.region or "", found.seen.host, found.seen.vmid, mark_of(obj))


def provider_id(obj: ProxmoxMachine, seen: Seen) -> str:
    """The identity its Node will have, in the form the cluster was made with."""
    claim = obj.spec.claim
    wanted = seen.around.ground.spec.provider_id_format if seen.around else None
    if wanted == "UUID" and claim is not None:
        return SCHEME + claim.uuid
    return f"{SCHEME}{obj.spec.region}/{obj.spec.virtual_machine_id}"


def pool(obj: ProxmoxMachine, seen: Seen) -> str:
    """The resource pool it belongs to: its own, else the cluster's."""
    of_cluster = seen.around.ground.spec.pool if seen.around else None
    return obj.spec.pool or of_cluster or ""


def seed(obj: ProxmoxMachine, claim: Claim, seen: Seen) -> UploadIso:
    """The seed disk, ready to be sent."""
    settings = obj.spec.metadata_settings
    inject = settings.provider_id_injection if settings else None
    version = seen.around.machine.spec.version if seen.around else ""
    place = Place(obj.spec.region or "", claim.zone or "default", claim.host)
    identity = Identity(obj.name, provider_id(obj, seen), version, inject is not False, place)
    network = network_of(claim.uuid, obj.spec, seen.devices, seen.zone, seen.addresses.given)
    assert seen.bootstrap is not None
    files = seed_files(seen.bootstrap, identity, network)
    mark = mark_of(obj)
    return UploadIso(
        shelf=shelf_of(obj.spec.region or "", claim),
        mark=mark,
        filename=seed_name(obj, claim),
        content=Blob(build_iso(files)),
    )


def growth(obj: ProxmoxMachine, found: GuestFound) -> Resize | None:
    """Grow a disk that is smaller than asked for, one at a time."""
    disks, config = obj.spec.disks, found.config
    if disks is None or config is None:
        return None
    boot = disks.boot_volume
    wanted = {guest_hardware.boot_disk(config.raw, boot.disk): boot.size_gb} if boot else {}
    ours = [d for d in disks.extra if d.disk in config and _owns(found, config[d.disk])]
    wanted |= {d.disk: d.size_gb for d in ours}
    for slot, size in wanted.items():
        step = Resize(guest(obj, found), slot=slot, size_gib=size, digest=config.digest)
        if step.is_needed(config):
            return step
    return None


def guard(obj: ProxmoxMachine, found: GuestFound) -> SetFirewall | None:
    """Put its security groups around it."""
    missing = [g for g in obj.spec.firewall_groups if g not in found.firewall_groups]
    if not missing:
        return None
    rules = tuple(Rule(type="group", action=g, enable=True) for g in obj.spec.firewall_groups)
    return SetFirewall(guest(obj, found), options={"enable": True}, rules=rules)


def first_config(obj: ProxmoxMachine, claim: Claim, seen: Seen, found: GuestFound) -> Configure:
    """Everything else in one write; its tags tell that it happened."""
    config = found.config or GuestConfig({})
    changes = guest_hardware.wanted_config(
        obj.spec,
        seen.zone,
        owner=claim.uuid,
        devices=seen.devices,
        current=config.raw,
        storage=claim.storage or storage_of(config),
        iso=iso_of(obj, claim) if claim.iso_storage else "",
    )
    tags = mark_of(obj).tags([BOOTING, *obj.spec.tags])
    return Configure(
        guest(obj, found),
        changes={**changes.put, "tags": tags},
        delete=changes.drop,
        digest=config.digest,
    )


def eject(obj: ProxmoxMachine, found: GuestFound) -> Configure:
    """Take the seed out of its drive and say so: the node is there."""
    rest = [t for t in found.seen.tags if t != BOOTING]
    changes = {guest_hardware.ISO_SLOT: EMPTY_DRIVE, "tags": mark_of(obj).tags(rest)}
    return Configure(guest(obj, found), changes=changes)


def stamp(obj: ProxmoxMachine, found: GuestFound) -> Configure:
    """Put our mark on a guest that was made by CAPMOX and is known by its UUID."""
    config = found.config or GuestConfig({})
    mark = mark_of(obj)
    changes = {"tags": mark.tags(config.tags), "description": mark.describe(config.description)}
    return Configure(guest(obj, found), changes=changes, digest=config.digest)


def register(obj: ProxmoxMachine, found: GuestFound, group: str) -> RegisterHa:
    """Let the HA manager look after it."""
    care = obj.spec.high_availability or HighAvailability()
    return RegisterHa(
        guest(obj, found),
        group=group,
        max_restart=1 if care.max_restart is None else care.max_restart,
        max_relocate=1 if care.max_relocate is None else care.max_relocate,
    )


def _owns(found: GuestFound, drive: str) -> bool:
    return last_applied.owns(property_strings.volume(drive), found.seen.vmid)


def storage_of(config: GuestConfig) -> str:
    """Where further disks go if nobody says: beside the boot disk."""
    return config.get(guest_hardware.boot_disk(config.raw)).partition(":")[0]
