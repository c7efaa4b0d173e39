"""
The steps of ``infra.machine`` on Proxmox with all their parameters. Pure; used by ``plan``.

Everything after the clone is one configuration write, guarded by the digest of the configuration
that was read. The tags in that write are the evidence that it happened.
"""

from dataclasses import replace

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.template import Claim, HighAvailability
from moxwell.api.infra.warm_guests import WARM_TAG
from moxwell.bootstrap.bootstrap_data import (
    SCHEME,
    BootstrapIdentity,
    GuestLocation,
    nocloud_files,
)
from moxwell.bootstrap.iso import build_iso
from moxwell.bootstrap.network_plan import network_of
from moxwell.controllers.infra.guest_names import (
    BOOTING,
    iso_filename,
    iso_storage_of,
    iso_volid,
    mark_of,
)
from moxwell.controllers.infra.machine.observed import MachineGuest, ObservedProxmoxMachine
from moxwell.pve import firewall_groups, property_strings
from moxwell.pve.guests import GuestConfig
from moxwell.pve.ownership import user_tags
from moxwell.pve.steps import Configure, GuestRef, RegisterHa, ResizeDisk, SetFirewall, UploadIso
from moxwell.pve.steps.config import EMPTY_DRIVE
from moxwell.pve.values import Blob
from moxwell.scheduling import guest_hardware, last_applied


def guest(obj: ProxmoxMachine, found: MachineGuest) -> GuestRef:
    """The guest as steps reference it."""
    return GuestRef(obj.spec.region or "", found.seen.host, found.seen.vmid, mark_of(obj))


def provider_id(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> str:
    """The providerID of its Node, in the format of the ProxmoxCluster."""
    claim = obj.spec.claim
    wanted = seen.owners.proxmox_cluster.spec.provider_id_format if seen.owners else None
    if wanted == "UUID" and claim is not None:
        return SCHEME + claim.uuid
    return f"{SCHEME}{obj.spec.region}/{obj.spec.virtual_machine_id}"


def pool(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> str:
    """The Proxmox resource pool: the machine's, else the cluster's."""
    of_cluster = seen.owners.proxmox_cluster.spec.pool if seen.owners else None
    return obj.spec.pool or of_cluster or ""


def upload_iso(obj: ProxmoxMachine, claim: Claim, seen: ObservedProxmoxMachine) -> UploadIso:
    """Upload the bootstrap ISO."""
    settings = obj.spec.metadata_settings
    inject = settings.provider_id_injection if settings else None
    version = seen.owners.machine.spec.version if seen.owners else ""
    place = GuestLocation(obj.spec.region or "", claim.zone or "default", claim.host)
    identity = BootstrapIdentity(
        obj.name,
        provider_id(obj, seen),
        version,
        inject is not False,
        place,
        obj.spec.virtual_machine_id or 0,
        claim.uuid,
    )
    network = network_of(claim.uuid, obj.spec, seen.devices, seen.zone, seen.addresses.given)
    network = replace(network, bridges=seen.host_bridges)
    assert seen.bootstrap is not None
    files = nocloud_files(seen.bootstrap, identity, network)
    mark = mark_of(obj)
    return UploadIso(
        storage=iso_storage_of(obj.spec.region or "", claim),
        mark=mark,
        filename=iso_filename(obj, claim),
        content=Blob(build_iso(files)),
    )


def grow_disk(obj: ProxmoxMachine, found: MachineGuest) -> ResizeDisk | None:
    """Grow the first disk that is smaller than the spec says."""
    disks, config = obj.spec.disks, found.config
    if disks is None or config is None:
        return None
    boot = disks.boot_volume
    wanted = {guest_hardware.boot_disk(config.raw, boot.disk): boot.size_gb} if boot else {}
    ours = [d for d in disks.extra if d.disk in config and _is_own_disk(found, config[d.disk])]
    wanted |= {d.disk: d.size_gb for d in ours}
    for slot, size in wanted.items():
        step = ResizeDisk(guest(obj, found), slot=slot, size_gib=size, digest=config.digest)
        if step.is_needed(config):
            return step
    return None


def set_firewall(obj: ProxmoxMachine, found: MachineGuest) -> SetFirewall | None:
    """Add the missing security groups."""
    missing = [g for g in obj.spec.firewall_groups if g not in found.firewall_groups]
    if not missing:
        return None
    rules = tuple(map(firewall_groups.as_rule, obj.spec.firewall_groups))
    return SetFirewall(guest(obj, found), options={"enable": True}, rules=rules)


def first_config(
    obj: ProxmoxMachine, claim: Claim, seen: ObservedProxmoxMachine, found: MachineGuest
) -> Configure:
    """The first configuration write, which also sets the owner mark."""
    config = found.config or GuestConfig({})
    changes = guest_hardware.wanted_config(
        obj.spec,
        seen.zone,
        owner=claim.uuid,
        devices=seen.devices,
        current=config.raw,
        storage=claim.storage or storage_of(config),
        iso=iso_volid(obj, claim) if claim.iso_storage else "",
        root=seen.region.root,
    )
    tags = mark_of(obj).tags([BOOTING, *user_tags(obj.spec.tags)])
    return Configure(
        guest(obj, found),
        changes={**changes.put, "tags": tags},
        delete=changes.drop,
        digest=config.digest,
    )


def mark_warm(obj: ProxmoxMachine, found: MachineGuest) -> Configure:
    """Set the owner mark of a warm guest, and the tag by which its compute does not count."""
    config = found.config or GuestConfig({})
    changes = {"tags": mark_of(obj).tags([WARM_TAG])}
    return Configure(guest(obj, found), changes=changes, digest=config.digest)


def eject_iso(obj: ProxmoxMachine, found: MachineGuest) -> Configure:
    """Eject the bootstrap ISO and remove the booting tag."""
    tags = [t for t in found.seen.tags if t != BOOTING]
    changes = {guest_hardware.ISO_SLOT: EMPTY_DRIVE, "tags": mark_of(obj).tags(tags)}
    return Configure(guest(obj, found), changes=changes)


def set_mark(obj: ProxmoxMachine, found: MachineGuest) -> Configure:
    """Set the owner mark on a guest that CAPMOX created."""
    config = found.config or GuestConfig({})
    mark = mark_of(obj)
    changes = {"tags": mark.tags(config.tags), "description": mark.describe(config.description)}
    return Configure(guest(obj, found), changes=changes, digest=config.digest)


def register_ha(obj: ProxmoxMachine, found: MachineGuest, group: str) -> RegisterHa:
    """Register the guest as an HA resource."""
    care = obj.spec.high_availability or HighAvailability()
    return RegisterHa(
        guest(obj, found),
        group=group,
        max_restart=1 if care.max_restart is None else care.max_restart,
        max_relocate=1 if care.max_relocate is None else care.max_relocate,
    )


def _is_own_disk(found: MachineGuest, drive: str) -> bool:
    return last_applied.is_disk_of(property_strings.volume(drive), found.seen.vmid)


def storage_of(config: GuestConfig) -> str:
    """The default storage of extra disks: that of the boot disk."""
    return config.get(guest_hardware.boot_disk(config.raw)).partition(":")[0]
