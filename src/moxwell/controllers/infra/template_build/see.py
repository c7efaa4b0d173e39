"""Reads what the plan of a template needs from one region; changes nothing."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice

from moxwell.bootstrap.baking import RESULT
from moxwell.controllers.infra.template_build import hardware
from moxwell.controllers.infra.template_build.design import (
    TemplateDesign,
    is_sealed,
    revision_in,
)
from moxwell.controllers.infra.template_build.observed import (
    ImageFile,
    ObservedBuild,
    TemplateCopy,
    VmidState,
)
from moxwell.controllers.infra.template_build.targets import IMAGES, IMPORT, ISO
from moxwell.pve import errors, ownership, property_strings
from moxwell.pve.effects import file_name
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import ObservedStorage
from moxwell.pve.regions import Region

MAX_CANDIDATES = 50  # VMIDs that are tried for one copy
CREATING = "create"  # the lock of a guest that is being created


async def observe(region: Region, design: TemplateDesign, *, removing: bool) -> ObservedBuild:
    """The region as the plan sees it; the inventory must be current."""
    view = region.inventory.view
    online = {name: host.online for name, host in view.hosts.items()}
    storages = {at: s for at, s in view.storages.items() if online.get(at[0])}
    copies = list(await _copies(region, design))
    vmids: dict[str, VmidState] = {}
    incomplete = _incomplete_hosts(design, online, copies)
    for host in incomplete:  # the inventory may not show a new copy yet
        state = await _vmid_state(region, design, host)
        if isinstance(state, TemplateCopy):
            copies.append(state)
        elif state is not None:
            vmids[host] = state
    images = await _images(region, design, storages)
    isos = await _isos(region, design, storages) if removing or design.baking else ()
    if design.baking is not None and not removing:
        copies = [await _with_result(region, copy) for copy in copies]
    if removing or _has_others(design, copies):
        copies = [await _with_clones(region, copy) for copy in copies]
    unfinished = {copy.host for copy in copies if not copy.finished}
    watched = {h for h in online if online[h]} if removing else {*incomplete, *unfinished}
    busy, vmids = await _busy(region, design, watched, copies, vmids)
    return ObservedBuild(region.name, online, storages, tuple(copies), images, isos, vmids, busy)


def _incomplete_hosts(
    design: TemplateDesign, online: Mapping[str, bool], copies: Iterable[TemplateCopy]
) -> list[str]:
    have = {copy.host for copy in copies if copy.revision == design.revision}
    wanted = design.hosts or tuple(sorted(online))
    return [host for host in wanted if online.get(host) and host not in have]


def _has_others(design: TemplateDesign, copies: Iterable[TemplateCopy]) -> bool:
    """Whether some copies may have to be destroyed."""
    known = tuple(copies)
    per_host = Counter(copy.host for copy in known)
    return any(c.revision != design.revision or per_host[c.host] > 1 for c in known)


async def _copies(region: Region, design: TemplateDesign) -> list[TemplateCopy]:
    """The guests of the owner on hosts that answer; tags alone prove nothing."""
    found = []
    for guest in region.inventory.find_by_owner(design.mark.key):
        host = region.inventory.hosts.get(guest.host)
        if guest.kind != "qemu" or host is None or not host.online:
            continue
        copy = await _guest_at(region, design, guest.host, guest.vmid)
        if isinstance(copy, TemplateCopy):
            found.append(copy)
    return found


async def _guest_at(
    region: Region, design: TemplateDesign, host: str, vmid: int
) -> TemplateCopy | GuestConfig | None:
    """The owner's guest at a VMID, or the configuration of another one; None: there is none."""
    try:
        config = await region.reader.qemu.config(host, vmid)
    except errors.GuestMissing:
        return None
    revision = revision_in(config.description, vmid)
    if not revision or not ownership.is_ours(config, design.mark):
        return config
    known = region.inventory.find(vmid)
    running = known is not None and known.has_process
    uptime = known.uptime_seconds if known is not None else 0
    pool = known.pool if known is not None else None
    return TemplateCopy(vmid, host, revision, config, running, uptime_seconds=uptime, pool=pool)


async def _vmid_state(
    region: Region, design: TemplateDesign, host: str
) -> VmidState | TemplateCopy | None:
    """The first VMID that is free or at which the copy is being created."""
    for vmid in islice(design.vmid_candidates(host), MAX_CANDIDATES):
        known = region.inventory.find(vmid)
        if known is not None and known.host != host:
            continue
        try:
            found = await _guest_at(region, design, host, vmid)
        except errors.PermissionDenied:  # also without a guest, if the token is limited to a pool
            return VmidState(vmid, hidden=not await _is_free(region, vmid))
        if isinstance(found, TemplateCopy):
            return found
        if found is not None and found.lock == CREATING and not found.description:
            return VmidState(vmid, creating=True, stale=True)
        if found is None and known is None and await _is_free(region, vmid):
            return VmidState(vmid)
    return None


async def _is_free(region: Region, vmid: int) -> bool:
    """Ask Proxmox, which also knows the guests that the token may not see."""
    try:
        await region.reader.cluster.nextid(vmid)
    except (errors.Exists, errors.InvalidParameter):
        return False
    return True


async def _images(
    region: Region, design: TemplateDesign, storages: Mapping[tuple[str, str], ObservedStorage]
) -> tuple[ImageFile, ...]:
    """The owner's image files and the source volume, for each host that can read them."""
    source = design.image.volume.partition(":")[0]
    listed: dict[tuple[str, str], tuple[str, ...]] = {}
    found = []
    for (host, name), storage in sorted(storages.items()):
        named = not design.storages or name in design.storages
        if not storage.available or not (name == source or (named and IMPORT in storage.content)):
            continue
        place = (name, "" if storage.shared else host)
        if place not in listed:
            listed[place] = await _image_volids(region, design, host, name)
        found += [ImageFile(host, name, volid) for volid in listed[place]]
    return tuple(found)


async def _image_volids(
    region: Region, design: TemplateDesign, host: str, storage: str
) -> tuple[str, ...]:
    rows = await region.reader.storage.content(host, storage)
    key = re.compile(rf"(?<![a-z0-9]){design.mark.key}(?![a-z0-9])")
    return tuple(
        row.volid
        for row in rows
        if row.volid == design.image.volume or (row.content == IMPORT and key.search(row.volid))
    )


async def _isos(
    region: Region, design: TemplateDesign, storages: Mapping[tuple[str, str], ObservedStorage]
) -> tuple[ImageFile, ...]:
    """The bootstrap ISOs of the owner's builders, for each host that can read them."""
    listed: dict[tuple[str, str], tuple[str, ...]] = {}
    found = []
    for (host, name), storage in sorted(storages.items()):
        if not storage.available or ISO not in storage.content:
            continue
        place = (name, "" if storage.shared else host)
        if place not in listed:
            rows = await region.reader.storage.content(host, name, content=ISO)
            ours = re.compile(rf"moxwell-bake-\d+-{design.mark.key}\.iso$")
            listed[place] = tuple(row.volid for row in rows if ours.search(row.volid))
        found += [ImageFile(host, name, volid) for volid in listed[place]]
    return tuple(found)


async def _with_result(region: Region, copy: TemplateCopy) -> TemplateCopy:
    """The copy with what its builder reports; empty while it is busy or has no agent yet."""
    if copy.config.template or not copy.running or is_sealed(copy.config.description):
        return copy
    try:
        found = await region.reader.agent.read_file(copy.host, copy.vmid, RESULT)
    except (errors.AgentNotRunning, errors.InvalidParameter, errors.UnknownPveError):
        return copy
    return replace(copy, result=found.content)


async def _with_clones(region: Region, copy: TemplateCopy) -> TemplateCopy:
    """The copy with the guests whose disks are linked to its disk."""
    volume = property_strings.volume(copy.config.get(hardware.DISK))
    storage, base = volume.partition(":")[0], file_name(volume)
    if not copy.config.template or not base:
        return copy
    rows = await region.reader.storage.content(copy.host, storage, content=IMAGES)
    clones = {
        row.vmid
        for row in rows
        if row.vmid and row.vmid != copy.vmid and _is_linked(base, row.volid, row.parent or "")
    }
    linked = tuple(sorted(clones))
    return replace(copy, linked_clones=linked)


def _is_linked(base: str, volid: str, parent: str) -> bool:
    """Whether a volume is based on another: its name or its parent contains that."""
    parts = re.split(r"[:/@]", f"{volid}/{parent}")
    return base in parts


async def _busy(
    region: Region,
    design: TemplateDesign,
    hosts: Iterable[str],
    copies: Iterable[TemplateCopy],
    vmids: Mapping[str, VmidState],
) -> tuple[frozenset[str], dict[str, VmidState]]:
    """Hosts with a running task of this build, and the VMIDs whose creation really runs."""
    busy, states = set(), dict(vmids)
    for host in sorted(set(hosts)):
        rows = await region.reader.tasks.list(host, source="active")
        running = {(row.type, row.id) for row in rows if not row.endtime}
        state = states.get(host)
        ids = {str(copy.vmid) for copy in copies if copy.host == host}
        if state is not None:
            ids.add(str(state.vmid))
            if state.creating and ("qmcreate", str(state.vmid)) in running:
                states[host] = VmidState(state.vmid, creating=True)
        upload = design.image.file is not None and ("imgcopy", "") in running
        if upload or any(i in ids or design.mark.key in i for _, i in running):
            busy.add(host)
    return frozenset(busy), states
