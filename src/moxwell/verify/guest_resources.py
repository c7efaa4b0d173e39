"""
Checks what belongs to guests: bootstrap ISOs, HA entries, firewall groups, disks. Pure.

Names tell the owner: bootstrap ISOs contain the VMID and the owner mark, disks the VMID, volumes of
PersistentVolumes a VMID that no guest has. Everything else is not ours and is ignored.
"""

import re
from collections.abc import Iterator

from moxwell.controllers.infra.guest_names import BOOTING, BOOTSTRAP_ISO, iso_volid, mark_of
from moxwell.csi import ids
from moxwell.csi.driver import OWNER as PARKED
from moxwell.verify.findings import Finding, remark, unread, wrong
from moxwell.verify.model import Observation, ObservedRegion, describe, is_provisioned


def bootstrap_isos(observation: Observation) -> Iterator[Finding]:
    """Bootstrap ISOs exist only for machines that boot."""
    keys = {mark_of(m).key for m in observation.machines}
    for region in observation.regions.values():
        booted = {
            iso_volid(m, m.spec.claim): m
            for m in observation.machines
            if m.spec.claim and is_provisioned(m) and _is_up(region, m.spec.virtual_machine_id or 0)
        }
        for iso in region.isos:
            match = BOOTSTRAP_ISO.search(iso.volid)
            if match is None:
                continue
            do = f"pvesm free {iso.volid} on {iso.host}"
            if match[2] not in keys:
                message = f"bootstrap ISO {iso.volid} on {iso.host} of {region.name} has no machine"
                yield wrong("OrphanedBootstrapISO", f"{region.name}/{iso.volid}", message, do)
            elif iso.volid in booted and booted[iso.volid].spec.region == region.name:
                who = describe(booted[iso.volid])
                message = f"{who} has booted, its bootstrap ISO {iso.volid} still exists"
                yield remark("BootstrapISONotDeleted", f"{region.name}/{iso.volid}", message)


def _is_up(region: ObservedRegion, vmid: int) -> bool:
    guest = region.guests.get(vmid)
    return guest is not None and guest.running and BOOTING not in guest.tags


def high_availability(observation: Observation) -> Iterator[Finding]:
    """Machines with HA have an HA entry; HA entries and rules name existing guests."""
    for region in observation.regions.values():
        if not region.answers:
            continue
        yield from unread(region.name, region.denied, "HA entries")
        known = {f"vm:{v}" for v in region.guests} | {f"ct:{v}" for v in region.guests}
        for entry in region.ha:
            if entry.sid not in known:
                message = f"HA in {region.name} has an entry for {entry.sid}, which does not exist"
                do = f"ha-manager remove {entry.sid}"
                yield wrong("OrphanedHAEntry", f"{region.name}/{entry.sid}", message, do)
        for rule in region.rules:
            for sid in sorted(set(rule.sids) - known):
                message = f"HA rule {rule.rule} in {region.name} names {sid}, which does not exist"
                do = f"remove {sid} from the rule, or the rule"
                yield wrong("OrphanedHAEntry", f"{region.name}/{rule.rule}/{sid}", message, do)
    yield from _ha_missing(observation)


def _ha_missing(observation: Observation) -> Iterator[Finding]:
    for machine in observation.machines:
        region = observation.regions.get(machine.spec.region or "")
        if machine.spec.high_availability is None or not is_provisioned(machine) or region is None:
            continue
        sid = f"vm:{machine.spec.virtual_machine_id}"
        if "HA entries" in region.denied:
            continue
        if region.answers and sid not in {entry.sid for entry in region.ha}:
            yield wrong(
                "HAEntryMissing",
                describe(machine),
                f"{describe(machine)} requires HA, but HA in {region.name} has no entry for {sid}",
                f"ha-manager add {sid}, or delete the Machine",
            )


def firewall(observation: Observation) -> Iterator[Finding]:
    """Security groups are applied to their guests; groups of tenants have a tenant."""
    for machine in observation.machines:
        region = observation.regions.get(machine.spec.region or "")
        vmid = machine.spec.virtual_machine_id or 0
        if not is_provisioned(machine) or region is None or vmid not in region.applied_groups:
            continue
        for group in sorted(set(machine.spec.firewall_groups) - region.applied_groups[vmid]):
            yield wrong(
                "FirewallGroupNotApplied",
                describe(machine),
                f"security group {group} is not applied to guest {vmid} of {describe(machine)}",
                f"add the group to guest {vmid} in Proxmox, or delete the Machine",
            )
        if "firewall groups" in region.denied:
            continue
        for group in sorted(set(machine.spec.firewall_groups) - set(region.security_groups)):
            yield wrong(
                "FirewallGroupMissing",
                f"{region.name}/{group}",
                f"{describe(machine)} names security group {group}, which does not exist there",
                f"create the group in {region.name}: without it no traffic is dropped",
            )
    yield from _orphaned_groups(observation)


def _orphaned_groups(observation: Observation) -> Iterator[Finding]:
    spaces = {t.status.namespace for t in observation.tenants}
    for region in observation.regions.values():
        yield from unread(region.name, region.denied, "firewall groups")
        for group, comment in sorted(region.security_groups.items()):
            match = re.search(r"moxwell-tenant=(\S+)", comment)
            if match and match[1] not in spaces:
                message = (
                    f"security group {group} in {region.name} belongs to namespace "
                    f"{match[1]}, which does not exist"
                )
                do = f"pvesh delete /cluster/firewall/groups/{group}"
                yield wrong("OrphanedFirewallGroup", f"{region.name}/{group}", message, do)


def disks(observation: Observation) -> Iterator[Finding]:
    """Disks of machines are attached to their guests; every disk has an existing guest."""
    for region in observation.regions.values():
        if not region.answers:
            continue
        ours = {g.vmid for g in region.guests.values() if g.owner_keys}
        attached = {
            value.partition(",")[0]
            for config in region.configs.values()
            for value in (*config.disks.values(), *config.unused.values())
        }
        for image in region.images:
            about = f"{region.name}/{image.volid}"
            if ids.source_hash(image.name) or "-pvc-" in image.name or image.vmid == PARKED:
                continue  # a volume of a PersistentVolume, which another check compares
            if image.vmid and image.vmid not in region.guests:
                message = (
                    f"disk {image.volid} in {region.name} belongs to guest {image.vmid}, "
                    "which does not exist"
                )
                do = f"check whether it is needed; else pvesm free {image.volid} on {image.host}"
                yield remark("OrphanedDisk", about, message, do)
            elif (
                image.vmid in ours and image.vmid in region.configs and image.volid not in attached
            ):
                message = f"disk {image.volid} in {region.name} is not attached to its guest"
                do = f"qm rescan --vmid {image.vmid} on {image.host} shows it as unused"
                yield wrong("DiskNotAttached", about, message, do)
