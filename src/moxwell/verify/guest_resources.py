"""
What lies around guests: seed disks, HA entries, firewall groups, disks. Each belongs to somebody.

Pure. Names decide whose a thing is: seeds carry VMID and mark, disks the VMID, volumes of claims
the number that no guest has. What bears none of our names is somebody else's and not mentioned.
"""

import re
from collections.abc import Iterator

from moxwell.controllers.infra.machine.guest_agent import iso_of, mark_of
from moxwell.controllers.infra.machine.observed import BOOTING
from moxwell.csi import ids
from moxwell.csi.driver import OWNER as PARKED
from moxwell.verify.findings import Finding, remark, unread, wrong
from moxwell.verify.model import RegionWorld, World, is_settled, named

_SEED = re.compile(r":iso/moxwell-seed-(\d+)-([0-9a-f]+)\.iso$")


def seeds(world: World) -> Iterator[Finding]:
    """Seed disks are there for machines that boot, and for nobody else."""
    keys = {mark_of(m).key for m in world.machines}
    for region in world.regions.values():
        booted = {
            iso_of(m, m.spec.claim): m
            for m in world.machines
            if m.spec.claim and is_settled(m) and _is_up(region, m.spec.virtual_machine_id or 0)
        }
        for iso in region.isos:
            match = _SEED.search(iso.volid)
            if match is None:
                continue
            do = f"pvesm free {iso.volid} on {iso.host}"
            if match[2] not in keys:
                said = f"seed disk {iso.volid} on {iso.host} of {region.name} has no machine"
                yield wrong("SeedLeft", f"{region.name}/{iso.volid}", said, do)
            elif iso.volid in booted and booted[iso.volid].spec.region == region.name:
                said = f"{named(booted[iso.volid])} has booted, its seed disk {iso.volid} is left"
                yield remark("SeedNotTaken", f"{region.name}/{iso.volid}", said)


def _is_up(region: RegionWorld, vmid: int) -> bool:
    guest = region.guests.get(vmid)
    return guest is not None and guest.running and BOOTING not in guest.tags


def high_availability(world: World) -> Iterator[Finding]:
    """HA looks after the guests that ask for it; its lists name no guest that is not there."""
    for region in world.regions.values():
        if not region.answers:
            continue
        yield from unread(region.name, region.denied, "HA entries")
        known = {f"vm:{v}" for v in region.guests} | {f"ct:{v}" for v in region.guests}
        for entry in region.ha:
            if entry.sid not in known:
                said = f"HA in {region.name} looks after {entry.sid}, which is not there"
                do = f"ha-manager remove {entry.sid}"
                yield wrong("HaLeft", f"{region.name}/{entry.sid}", said, do)
        for rule in region.rules:
            for sid in sorted(set(rule.sids) - known):
                said = f"HA rule {rule.rule} in {region.name} names {sid}, which is not there"
                do = f"remove {sid} from the rule, or the rule"
                yield wrong("HaLeft", f"{region.name}/{rule.rule}/{sid}", said, do)
    yield from _ha_missing(world)


def _ha_missing(world: World) -> Iterator[Finding]:
    for machine in world.machines:
        region = world.regions.get(machine.spec.region or "")
        if machine.spec.high_availability is None or not is_settled(machine) or region is None:
            continue
        sid = f"vm:{machine.spec.virtual_machine_id}"
        if "HA entries" in region.denied:
            continue
        if region.answers and sid not in {entry.sid for entry in region.ha}:
            yield wrong(
                "HaMissing",
                named(machine),
                f"{named(machine)} asks for HA, and HA in {region.name} does not know {sid}",
                f"ha-manager add {sid}, or delete the Machine",
            )


def firewall(world: World) -> Iterator[Finding]:
    """Guests stand behind the groups they ask for; groups of tenants have a tenant."""
    for machine in world.machines:
        region = world.regions.get(machine.spec.region or "")
        vmid = machine.spec.virtual_machine_id or 0
        if not is_settled(machine) or region is None or vmid not in region.walls:
            continue
        for group in sorted(set(machine.spec.firewall_groups) - region.walls[vmid]):
            yield wrong(
                "FirewallMissing",
                named(machine),
                f"guest {vmid} of {named(machine)} is not behind security group {group}",
                f"add the group to guest {vmid} in Proxmox, or delete the Machine",
            )
        if "firewall groups" in region.denied:
            continue
        for group in sorted(set(machine.spec.firewall_groups) - set(region.security_groups)):
            yield wrong(
                "FirewallGroupMissing",
                f"{region.name}/{group}",
                f"{named(machine)} names security group {group}, which {region.name} does not have",
                f"make the group in {region.name}: without it nothing is kept out",
            )
    yield from _walls_left(world)


def _walls_left(world: World) -> Iterator[Finding]:
    spaces = {t.status.namespace for t in world.tenants}
    for region in world.regions.values():
        yield from unread(region.name, region.denied, "firewall groups")
        for group, comment in sorted(region.security_groups.items()):
            match = re.search(r"moxwell-tenant=(\S+)", comment)
            if match and match[1] not in spaces:
                said = f"security group {group} in {region.name} was of {match[1]}, which is gone"
                do = f"pvesh delete /cluster/firewall/groups/{group}"
                yield wrong("FirewallGroupLeft", f"{region.name}/{group}", said, do)


def disks(world: World) -> Iterator[Finding]:
    """Disks of machines hang on their guests; none is left of a guest that is gone."""
    for region in world.regions.values():
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
                continue  # a volume of a claim: checked against PVs
            if image.vmid and image.vmid not in region.guests:
                said = (
                    f"disk {image.volid} in {region.name} is of guest {image.vmid}, which is gone"
                )
                do = f"look whether it is needed; then pvesm free {image.volid} on {image.host}"
                yield remark("DiskLeft", about, said, do)
            elif (
                image.vmid in ours and image.vmid in region.configs and image.volid not in attached
            ):
                said = f"disk {image.volid} in {region.name} hangs on nothing"
                do = f"qm rescan --vmid {image.vmid} on {image.host} shows it as unused"
                yield wrong("DiskLoose", about, said, do)
