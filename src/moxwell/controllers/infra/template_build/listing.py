"""
Lists the templates of a region, also those that were just made.

Proxmox lists the tags of a guest at once, but whether it is a template up to ten seconds late. So
the configuration of a guest with the tag of our templates is read.
"""

from dataclasses import replace

from moxwell.controllers.infra.template_build.design import TEMPLATE_TAG
from moxwell.pve.errors import GuestMissing
from moxwell.pve.model import ObservedGuest
from moxwell.pve.regions import Region


async def list_templates(region: Region) -> tuple[ObservedGuest, ...]:
    """All templates, by name and VMID."""
    await region.inventory.refresh()
    view = region.inventory.view
    found = list(view.templates)
    for guest in view.guests.values():
        if TEMPLATE_TAG in guest.tags and not guest.template:
            found += [made] if (made := await _made(region, guest)) else []
    return tuple(sorted(found, key=lambda g: (g.name, g.vmid)))


async def _made(region: Region, guest: ObservedGuest) -> ObservedGuest | None:
    """The guest as a template, if it is one by now."""
    try:
        config = await region.reader.qemu.config(guest.host, guest.vmid)
    except GuestMissing:
        return None
    return replace(guest, template=True, name=config.get("name")) if config.template else None
