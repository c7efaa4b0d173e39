"""
What lies around in a simulated region, as a value: to see what is left over, and what was touched.

In: the state of a region. Out: one entry for each guest, volume, HA entry, pool, firewall file, HA
rule; two of these values tell what came, went or changed between them. ``furnish`` brings what
others may own there, so that there is something to be left alone.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from moxwell.lab.proxmox.state import Region, Volume
from moxwell.pve.client import Pve
from moxwell.pve.endpoints.firewall import Rule
from moxwell.pve.switchable_transport import Wire
from moxwell.pve.transport import Transport

Lying = Mapping[str, Any]
STRANGER = 201


async def furnish(region: Region, transport: Transport) -> None:
    """A stranger's HA entry, rules, pool and ISO; and groups and pools that ours may use."""
    pve = Pve(Wire(transport))
    host = region.guests[STRANGER].node
    for group in ("kube", "web"):
        await pve.firewall.create_group(group)
        await pve.firewall.add_group_rule(group, Rule(type="in", action="ACCEPT"))
    await pve.firewall.set_options(host, STRANGER, {"enable": True})
    await pve.firewall.add_rule(host, STRANGER, Rule(type="group", action="web", enable=True))
    await pve.ha.add_resource(f"vm:{STRANGER}", state="started")
    for pool in ("kube", "theirs"):
        await pve.pools.create(pool)
    await pve.pools.update("theirs", vms=(STRANGER,))
    storage = region.storages["local"]
    for at in region.hosts:
        shelf = storage.shelf(at)
        shelf["iso/theirs.iso"] = _iso("iso/theirs.iso")
        shelf["iso/moxwell-notes.iso"] = _iso("iso/moxwell-notes.iso")  # ours by name only


def _iso(name: str) -> Volume:
    return Volume(name, "iso", "iso", 4096, 4096)


def lying(region: Region) -> Lying:
    """Everything that a machine could leave behind or touch."""
    found: dict[str, Any] = {}
    for vmid, guest in region.guests.items():
        parts = (guest.node, guest.running, guest.conf, guest.pending, guest.firewall)
        found[f"guest {vmid}"] = msgspec.to_builtins(parts)
    for storage in region.storages.values():
        for shelf, volumes in storage.volumes.items():
            for name, volume in volumes.items():
                what = (volume.size, volume.vmid, volume.parent)
                found[f"volume {storage.name}:{name} {shelf}".rstrip()] = what
    for sid, entry in region.ha.resources.items():
        found[f"ha {sid}"] = dict(entry.options)
    for name, rule in region.ha.rules.items():
        found[f"ha rule {name}"] = dict(rule)
    for pool in region.pools.values():
        found |= {f"pool {pool.poolid} {vmid}": True for vmid in pool.vms}
    found["firewall"] = msgspec.to_builtins(region.firewall)
    found["rights"] = msgspec.to_builtins(region.access)
    return found


def changed(before: Lying, after: Lying) -> dict[str, Any]:
    """What came, went or is different, by name."""
    names = [n for n in {**before, **after} if before.get(n) != after.get(n)]
    return {name: after.get(name, "gone") for name in sorted(names)}
