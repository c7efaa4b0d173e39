"""``/nodes/{node}/storage/{storage}/content``: list, allocate, read, annotate, delete, copy."""

import re
from typing import Any

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import bad_params, die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.state import Row, SimStorage, SimVolume
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import access, names
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore

_PATH = "/nodes/{node}/storage/{storage}"
_SEE = ("Datastore.Audit", "Datastore.AllocateSpace")


def _store(call: PveCall) -> VolumeStore:
    return VolumeStore(call.runtime, call.node)


def content_type(call: PveCall, volume: SimVolume) -> str:
    """The content type of a volume; images of containers are ``rootdir``."""
    if volume.content not in ("images", "rootdir"):
        return volume.content
    owner = call.region.guests.get(volume.vmid or 0)
    return "rootdir" if owner is not None and owner.kind == "lxc" else "images"


def list_content(call: PveCall) -> list[Row]:
    """GET content: the volumes that the caller may see."""
    name, vmid, wanted = call.params["storage"], call.get("vmid"), call.get("content")
    store = _store(call)
    storage = store.get_enabled(name)
    types = storage.content & set(formats.split_list(wanted)) if wanted else storage.content
    rows = []
    for volume in list(storage.volumes_on(call.node).values()):
        kind = content_type(call, volume)
        if kind not in types or not _matches(volume, kind, vmid):
            continue
        if access.may_see(call, store, f"{name}:{volume.name}"):
            rows.append(_row(storage, volume, kind))
    return rows


def _matches(volume: SimVolume, kind: str, vmid: int | None) -> bool:
    if vmid is None or kind in ("import", "snippets"):
        return True
    return volume.vmid == vmid


def _row(storage: SimStorage, volume: SimVolume, kind: str) -> Row:
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
            row |= {"used": volume.used, "parent": _parent(storage, volume)}
        elif storage.type in ("zfspool", "rbd"):
            row["name"] = volume.name.rpartition("/")[2]
            if volume.parent:
                snapshot = "" if "@" in volume.parent else "@__base__"
                row["parent"] = f"{volume.parent}{snapshot}"
    elif kind == "backup":
        row |= {"subtype": "lxc" if "-lxc-" in volume.name else "qemu"}
        if volume.vmid is not None:
            row["vmid"] = volume.vmid
    if volume.notes:
        row["notes"] = volume.notes.split("\n")[0]
    if volume.protected:
        row["protected"] = 1
    return row


def _parent(storage: SimStorage, volume: SimVolume) -> str | None:
    """The backing file: the newest snapshot in a volume chain (not listed itself), or the base."""
    if names.has_volume_chain(storage) and volume.snapshots:
        return f"snap-{volume.snapshots[-1]}-{volume.name.rpartition('/')[2]}"
    return f"../{volume.parent}" if volume.parent else None


def allocate(call: PveCall) -> str:
    """POST content: allocates an image; the VMID need not exist."""
    name, text, form = call.params["filename"], call.params["size"], call.get("format")
    match = re.search(r"\.(raw|qcow2|vmdk)$", name)
    if match is not None:
        if form and form != match[1]:
            raise bad_params(format=f"different storage formats ({form} != {match[1]})")
        form = match[1]
    unit = {"M": 1 << 20, "G": 1 << 30}.get(text[-1], 1 << 10)
    size = int(text.rstrip("MG")) * unit
    return _store(call).alloc(call.params["storage"], call.params["vmid"], form, size, name)


def _volid(call: PveCall) -> str:
    """The volume id of a request."""
    storage, volume = call.get("storage"), str(call.params["volume"])
    if ":" not in volume:
        return f"{storage}:{volume}"
    name, _ = names.split_volid(volume)
    if storage and name != storage:
        raise bad_params(volume=f"storage ID mismatch ({name} != {storage})\n")
    return volume


def info(call: PveCall) -> Row:
    """GET content/VOLUME."""
    store, volid = _store(call), _volid(call)
    access.check_volume(call, store, volid)
    path, volume = store.path(volid), store.find(volid)
    if volume is None:
        raise die(f"volume_size_info on '{volid}' failed - no format")
    if not volume.size and volume.format != "subvol":
        raise die(f"volume '{volid}' has size zero")
    parsed = store.parse(volid)
    raw = parsed.kind in ("iso", "backup", "vztmpl", "snippets")
    row: Row = {
        "path": path,
        "size": -(-volume.size // 512) * 512 if raw else volume.size,
        "used": -(-volume.used // 4096) * 4096 if parsed.kind == "backup" else volume.used,
        "format": parsed.format if parsed.kind != "images" else volume.format,
    }
    if parsed.kind == "backup":
        row["protected"] = int(volume.protected)
        row["notes"] = volume.notes or ""
    return row


def annotate(call: PveCall) -> None:
    """PUT content/VOLUME: notes and protection of backups."""
    store, volid = _store(call), _volid(call)
    access.check_volume(call, store, volid)
    kind = store.parse(volid).kind
    for name in ("notes", "protected"):
        if call.get(name) is None:
            continue
        _check_attribute(call, volid, name, kind)
        volume = store.find(volid)  # PVE writes the notes of a missing backup as well
        if volume is not None:
            setattr(volume, name, call.get(name))


def _check_attribute(call: PveCall, volid: str, name: str, kind: str) -> None:
    """Only backups on file storages have attributes."""
    storage = _store(call).get_storage(volid.partition(":")[0])
    if name == "protected" and call.get(name) and kind == "backup":
        _check_protected(call, storage, volid)
    if not names.has_path(storage):
        raise die(f"attribute '{name}' is not supported for storage type '{storage.type}'")
    if kind != "backup" and name == "notes":
        raise die("only backups can have notes")
    if kind != "backup":
        raise die(f"only backups support attribute '{name}'")


def _check_protected(call: PveCall, storage: SimStorage, volid: str) -> None:
    """The number of protected backups of a guest is limited."""
    volume = _store(call).find(volid)
    unlimited = call.has_privileges(f"/storage/{storage.name}", "Datastore.Allocate")
    limit = int(storage.options.get("max-protected-backups", -1 if unlimited else 5))
    if volume is None or volume.protected or not volume.vmid or limit < 0:
        return
    same = [
        other
        for other in storage.volumes_on(call.node).values()
        if other.content == "backup" and other.vmid == volume.vmid and other.protected
    ]
    if len(same) >= limit:
        raise die(
            f"The number of protected backups per guest is limited to {limit}"
            f" on storage '{storage.name}'"
        )


async def delete(call: PveCall) -> str | None:
    """DELETE content/VOLUME: a worker, for which ``delay`` may wait."""
    store, volid = _store(call), _volid(call)
    parsed = store.parse(volid)
    storage = volid.partition(":")[0]
    if parsed.kind == "backup" and parsed.vmid:
        call.check(f"/storage/{storage}", "Datastore.AllocateSpace")
        call.check_vm(parsed.vmid, "VM.Backup")
    else:
        call.check(f"/storage/{storage}", "Datastore.Allocate")

    async def worker(ctx: WorkerContext) -> None:
        store.free(volid, ctx)
        ctx.log(f"Removed volume '{volid}'")

    ident = f"{parsed.vmid}@{storage}" if parsed.vmid is not None else storage
    upid = call.spawn("imgdel", ident, worker)
    return await wait_for_task(call, upid, call.get("delay"))


async def wait_for_task(call: PveCall, upid: str, delay: Any) -> str | None:
    """The UPID, or null if the worker succeeded in time."""
    if not delay:
        return upid
    task = await call.runtime.workers.wait(upid, float(delay))
    if task.exitstatus is None:
        return upid
    if task.exitstatus != "OK":
        raise die(task.exitstatus)
    return None


def copy(call: PveCall) -> str:
    """POST content/VOLUME: copies a volume, possibly to another node."""
    volid, target = _volid(call), str(call.params["target"])
    node = call.get("target_node") or call.node
    source, target_store = _store(call), VolumeStore(call.runtime, node)
    target = target if ":" in target else f"{volid.partition(':')[0]}:{target}"

    async def worker(ctx: WorkerContext) -> None:
        volume = source.get(volid)
        storage, rest = names.split_volid(target)
        parsed = target_store.parse(target)
        if parsed.kind == "images":
            made = target_store.alloc(
                storage, parsed.vmid or 0, volume.format, volume.size, parsed.file
            )
        else:
            made = target_store.put_file(storage, rest, volume.content, volume.format, b"")
        copied = target_store.get(made)
        copied.size = volume.size
        target_store.set_used(made, volume.used)
        copied.data, copied.content_id = volume.data, volume.content_id
        await ctx.sleep(volume.size / call.region.pace.migration_bandwidth)

    return call.spawn("imgcopy", "", worker)


_CONTENT = f"{_PATH}/content"
_EACH = f"{_CONTENT}/{{volume}}"
ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute(
        "GET",
        _CONTENT,
        list_content,
        permission=perm("/storage/{storage}", *_SEE, any_of=True),
    ),
    ApiRoute(
        "POST",
        _CONTENT,
        allocate,
        permission=perm("/storage/{storage}", "Datastore.AllocateSpace"),
    ),
    ApiRoute("GET", _EACH, info, permission=anyone, deep=True),
    ApiRoute(
        "PUT",
        _EACH,
        annotate,
        permission=anyone,
        deep=True,
    ),
    ApiRoute(
        "DELETE",
        _EACH,
        delete,
        permission=anyone,
        deep=True,
    ),
    ApiRoute(
        "POST",
        _EACH,
        copy,
        permission=None,
        deep=True,
    ),
)
