"""
The content of a storage over the API: list, allocate, look, annotate, delete, copy.
"""

import re
from typing import Any

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import bad_params, die
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.route import Param, Route
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.state import Row, Storage, Volume
from moxwell.lab.proxmox.tasks import Work
from moxwell.lab.proxmox.volumes import access, names
from moxwell.lab.proxmox.volumes.volume_store import Stock

_PATH = "/nodes/{node}/storage/{storage}"
_NODE = Param(optional=False, format=formats.node)
_STORAGE = Param(optional=False, format=formats.storage_id)
_VOLUME = Param(optional=False)
_VMID = Param(type="integer", format=formats.vmid, minimum=100, maximum=999999999)
_SEE = ("Datastore.Audit", "Datastore.AllocateSpace")


def _place(call: Call) -> Stock:
    return Stock(call.desk, call.node)


def content_type(call: Call, volume: Volume) -> str:
    """Images of containers count as their root directories."""
    if volume.content not in ("images", "rootdir"):
        return volume.content
    owner = call.region.guests.get(volume.vmid or 0)
    return "rootdir" if owner is not None and owner.kind == "lxc" else "images"


def listed(call: Call) -> list[Row]:
    """GET content: what the caller may see of a storage."""
    name, vmid, wanted = call.params["storage"], call.get("vmid"), call.get("content")
    place = _place(call)
    storage = place.enabled(name)
    types = set(formats.split_list(wanted)) if wanted else storage.content
    rows = []
    for volume in list(storage.shelf(call.node).values()):
        kind = content_type(call, volume)
        if kind not in types or not _matches(volume, kind, vmid):
            continue
        if access.may_see(call, place, f"{name}:{volume.name}"):
            rows.append(_row(storage, volume, kind))
    return rows


def _matches(volume: Volume, kind: str, vmid: int | None) -> bool:
    if vmid is None or kind in ("import", "snippets"):
        return True
    return volume.vmid == vmid


def _row(storage: Storage, volume: Volume, kind: str) -> Row:
    row: Row = {
        "volid": f"{storage.name}:{volume.name}",
        "content": kind,
        "format": volume.format,
        "size": volume.size if kind != "import" else volume.used,
        "ctime": volume.ctime,
    }
    if kind in ("images", "rootdir"):
        row["vmid"] = volume.vmid
        if names.has_path(storage):
            row |= {"used": volume.used, "parent": _parent(volume)}
        elif storage.type in ("zfspool", "rbd"):
            row["name"] = volume.name.rpartition("/")[2]
            if volume.parent:
                row["parent"] = f"{volume.parent}@__base__"
    elif kind == "backup":
        row |= {"subtype": "lxc" if "-lxc-" in volume.name else "qemu"}
        if volume.vmid is not None:
            row["vmid"] = volume.vmid
    if volume.notes:
        row["notes"] = volume.notes.split("\n")[0]
    if volume.protected:
        row["protected"] = 1
    return row


def _parent(volume: Volume) -> str | None:
    return f"../{volume.parent}" if volume.parent else None


def allocate(call: Call) -> str:
    """POST content: a new image for any id, existing or not."""
    name, text, form = call.params["filename"], call.params["size"], call.get("format")
    match = re.search(r"\.(raw|qcow2|vmdk)$", name)
    if match is not None:
        if form and form != match[1]:
            raise bad_params(format=f"different storage formats ({form} != {match[1]})")
        form = match[1]
    unit = {"M": 1 << 20, "G": 1 << 30}.get(text[-1], 1 << 10)
    size = int(text.rstrip("MG")) * unit
    return _place(call).alloc(call.params["storage"], call.params["vmid"], form, size, name)


def _volid(call: Call) -> str:
    """The full volume id of a request."""
    storage, volume = call.get("storage"), str(call.params["volume"])
    if ":" not in volume:
        return f"{storage}:{volume}"
    name, _ = names.split_volid(volume)
    if storage and name != storage:
        raise bad_params(volume=f"storage ID mismatch ({name} != {storage})\n")
    return volume


def info(call: Call) -> Row:
    """GET content/VOLUME."""
    place, volid = _place(call), _volid(call)
    access.check_volume(call, place, volid)
    path, volume = place.path(volid), place.find(volid)
    if volume is None:
        raise die(f"volume_size_info on '{volid}' failed - no format")
    if not volume.size and volume.format != "subvol":
        raise die(f"volume '{volid}' has size zero")
    parsed = place.parse(volid)
    row: Row = {
        "path": path,
        "size": volume.size,
        "used": volume.used,
        "format": parsed.format if parsed.kind != "images" else volume.format,
    }
    if parsed.kind == "backup":
        row["protected"] = int(volume.protected)
        row["notes"] = volume.notes or ""
    return row


def annotate(call: Call) -> None:
    """PUT content/VOLUME: notes and protection of backups."""
    place, volid = _place(call), _volid(call)
    access.check_volume(call, place, volid)
    kind = place.parse(volid).kind
    for name in ("notes", "protected"):
        if call.get(name) is None:
            continue
        if kind != "backup":
            what = "have notes" if name == "notes" else "be protected"
            raise die(f"only backups can {what}")
        setattr(place.get(volid), name, call.get(name))


async def delete(call: Call) -> str | None:
    """DELETE content/VOLUME: a worker that ``delay`` may wait for."""
    place, volid = _place(call), _volid(call)
    parsed = place.parse(volid)
    storage = volid.partition(":")[0]
    if parsed.kind == "backup" and parsed.vmid:
        call.check(f"/storage/{storage}", "Datastore.AllocateSpace")
        call.check_vm(parsed.vmid, "VM.Backup")
    else:
        call.check(f"/storage/{storage}", "Datastore.Allocate")

    async def worker(work: Work) -> None:
        place.free(volid, work)
        work.log(f"Removed volume '{volid}'")

    ident = f"{parsed.vmid}@{storage}" if parsed.vmid is not None else storage
    upid = call.spawn("imgdel", ident, worker)
    return await waited(call, upid, call.get("delay"))


async def waited(call: Call, upid: str, delay: Any) -> str | None:
    """The UPID, or null if the worker ended well in time."""
    if not delay:
        return upid
    task = await call.desk.workers.wait(upid, float(delay))
    if task.exitstatus is None:
        return upid
    if task.exitstatus != "OK":
        raise die(task.exitstatus)
    return None


def copy(call: Call) -> str:
    """POST content/VOLUME: a copy, possibly on another node."""
    volid, target = _volid(call), str(call.params["target"])
    node = call.get("target_node") or call.node
    source, there = _place(call), Stock(call.desk, node)
    target = target if ":" in target else f"{volid.partition(':')[0]}:{target}"

    async def worker(work: Work) -> None:
        volume = source.get(volid)
        storage, rest = names.split_volid(target)
        parsed = there.parse(target)
        if parsed.kind == "images":
            made = there.alloc(storage, parsed.vmid or 0, volume.format, volume.size, parsed.file)
        else:
            made = there.put_file(storage, rest, volume.content, volume.format, b"")
        copied = there.get(made)
        copied.size = volume.size
        there.occupy(made, volume.used)
        copied.data, copied.mark = volume.data, volume.mark
        await work.sleep(volume.size / call.region.pace.migration_bandwidth)

    return call.spawn("imgcopy", "", worker)


_BASE = {"node": _NODE, "storage": _STORAGE}
_ONE = {"node": _NODE, "storage": Param(format=formats.storage_id), "volume": _VOLUME}
_CONTENT = f"{_PATH}/content"
_EACH = f"{_CONTENT}/{{volume}}"
ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        _CONTENT,
        listed,
        {**_BASE, "content": Param(format=formats.storage_content), "vmid": _VMID},
        perm("/storage/{storage}", *_SEE, any_of=True),
    ),
    Route(
        "POST",
        _CONTENT,
        allocate,
        {
            **_BASE,
            "filename": Param(optional=False),
            "vmid": Param(
                type="integer",
                optional=False,
                format=formats.vmid,
                minimum=100,
                maximum=999999999,
            ),
            "size": Param(optional=False, pattern=r"\d+[MG]?"),
            "format": Param(enum=("raw", "qcow2", "subvol", "vmdk"), requires="size"),
        },
        perm("/storage/{storage}", "Datastore.AllocateSpace"),
    ),
    Route("GET", _EACH, info, _ONE, anyone, deep=True),
    Route(
        "PUT",
        _EACH,
        annotate,
        {**_ONE, "notes": Param(), "protected": Param(type="boolean")},
        anyone,
        deep=True,
    ),
    Route(
        "DELETE",
        _EACH,
        delete,
        {**_ONE, "delay": Param(type="integer", minimum=1, maximum=30)},
        anyone,
        deep=True,
    ),
    Route(
        "POST",
        _EACH,
        copy,
        {**_ONE, "target": Param(optional=False), "target_node": Param(format=formats.node)},
        None,
        deep=True,
    ),
)
