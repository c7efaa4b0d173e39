"""
The contents of a simulated region as a value, to find what a test left behind or changed.

One entry for each guest, volume, HA resource, HA rule, pool member and firewall file.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from moxwell.lab.proxmox.state import SimRegion, SimVolume
from moxwell.pve.client import PveWriter
from moxwell.pve.endpoints.firewall import FirewallRule
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.pve.transport import Transport

RegionContents = Mapping[str, Any]
STRANGER = 201


async def add_foreign_objects(region: SimRegion, transport: Transport) -> None:
    """
    Create foreign HA resources, rules, pools and ISOs, and groups and pools that machines may use.
    """
    pve = PveWriter(SwitchableTransport(transport))
    host = region.guests[STRANGER].node
    for group in ("kube", "web"):
        await pve.firewall.create_group(group)
        await pve.firewall.add_group_rule(group, FirewallRule(type="in", action="ACCEPT"))
    await pve.firewall.set_options(host, STRANGER, {"enable": True})
    await pve.firewall.add_rule(
        host, STRANGER, FirewallRule(type="group", action="web", enable=True)
    )
    await pve.ha.add_resource(f"vm:{STRANGER}", state="started")
    for pool in ("kube", "theirs"):
        await pve.pools.create(pool)
    await pve.pools.update("theirs", vms=(STRANGER,))
    storage = region.storages["local"]
    for at in region.hosts:
        volumes = storage.volumes_on(at)
        volumes["iso/theirs.iso"] = _iso("iso/theirs.iso")
        volumes["iso/moxwell-notes.iso"] = _iso("iso/moxwell-notes.iso")  # ours by name only


def _iso(name: str) -> SimVolume:
    return SimVolume(name, "iso", "iso", 4096, 4096)


def contents_of(region: SimRegion) -> RegionContents:
    """Everything that a machine could leave behind or change."""
    found: dict[str, Any] = {}
    for vmid, guest in region.guests.items():
        parts = (guest.node, guest.running, guest.conf, guest.pending, guest.firewall)
        found[f"guest {vmid}"] = msgspec.to_builtins(parts)
    for storage in region.storages.values():
        for location, volumes in storage.volumes.items():
            for name, volume in volumes.items():
                what = (volume.size, volume.vmid, volume.parent)
                found[f"volume {storage.name}:{name} {location}".rstrip()] = what
    for sid, entry in region.ha.resources.items():
        found[f"ha {sid}"] = dict(entry.options)
    for name, rule in region.ha.rules.items():
        found[f"ha rule {name}"] = dict(rule)
    for pool in region.pools.values():
        found |= {f"pool {pool.poolid} {vmid}": True for vmid in pool.vms}
    found["firewall"] = msgspec.to_builtins(region.firewall)
    found["rights"] = msgspec.to_builtins(region.access)
    return found


def contents_diff(before: RegionContents, after: RegionContents) -> dict[str, Any]:
    """The entries that were added, removed or changed, by name."""
    names = [n for n in {**before, **after} if before.get(n) != after.get(n)]
    return {name: after.get(name, "gone") for name in sorted(names)}
