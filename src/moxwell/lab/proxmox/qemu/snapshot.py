"""
Snapshots: sections of the configuration, and a name on every volume.

Creating, deleting and rolling back are workers; almost all their refusals end the task.
"""

from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import identity, start, vmstate
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.state import Conf, Guest, Row, Snapshot
from moxwell.lab.proxmox.tasks import Work

_NOT_KEPT = frozenset(
    words("snapstate snaptime vmstate lock digest description runningmachine runningcpu")
)

_TASKS = {"qemu": "qm", "lxc": "vz"}


def get(guest: Guest, name: str) -> Snapshot:
    found = guest.snapshots.get(name)
    if found is None:
        raise die(f"snapshot '{name}' does not exist")
    return found


def section(guest: Guest, name: str) -> Row:
    """A snapshot's section as the API shows it."""
    snap = get(guest, name)
    row: Row = dict(snap.conf) | {"snaptime": snap.snaptime}
    for key, value in (
        ("description", snap.description),
        ("parent", snap.parent),
        ("vmstate", snap.vmstate),
        ("snapstate", snap.state),
    ):
        if value:
            row[key] = value
    if row.get("cipassword"):
        row["cipassword"] = files.HIDDEN
    return row


def listed(call: Call, kind: str = "qemu") -> list[Row]:
    """GET snapshot."""
    guest = call.get_guest(call.params["vmid"], kind)
    rows = [_row(snap) for snap in guest.snapshots.values()]
    here: Row = {
        "name": "current",
        "digest": files.digest(guest),
        "running": int(guest.running),
        "description": "You are here!",
    }
    if guest.parent:
        here["parent"] = guest.parent
    return [*rows, here]


def _row(snap: Snapshot) -> Row:
    row: Row = {
        "name": snap.name,
        "snaptime": snap.snaptime,
        "vmstate": int(bool(snap.vmstate)),
        "description": snap.description or "",
    }
    if snap.parent:
        row["parent"] = snap.parent
    if snap.state:
        row["snapstate"] = snap.state
    return row


def index(call: Call) -> list[Row]:
    return [{"cmd": "rollback"}, {"cmd": "config"}]


def get_config(call: Call, kind: str = "qemu") -> Row:
    """GET snapshot/NAME/config."""
    return section(call.get_guest(call.params["vmid"], kind), call.params["snapname"])


async def put_config(call: Call, kind: str = "qemu") -> None:
    """PUT snapshot/NAME/config: only the description."""
    vmid = call.params["vmid"]
    async with call.hold(kind, vmid):
        guest = call.get_guest(vmid, kind)
        files.check_lock(guest)
        snap = get(guest, call.params["snapname"])
        if call.get("description") is not None:
            snap.description = call.get("description")


def volumes_of(conf: Conf) -> list[tuple[str, str]]:
    """(key, volume) of everything a snapshot takes along: no CDs, nothing unmanaged."""
    found = []
    for key, volid in files.named_volumes(conf):
        if ":" in volid and not volid.startswith("/") and "media=cdrom" not in str(conf[key]):
            found.append((key, volid))
    return found


def kept(conf: Conf) -> Conf:
    """The part of a configuration that a snapshot keeps."""
    return {k: v for k, v in conf.items() if k not in _NOT_KEPT and not k.startswith("unused")}


# ---------------------------------------------------------------------- create


def create(call: Call, kind: str = "qemu") -> str:
    """POST snapshot."""
    name, vmid = call.params["snapname"], call.params["vmid"]
    reserved = ("current", "vzdump") if kind == "lxc" else ("current",)
    if name in reserved or (name.lower() == "pending" and kind == "qemu"):
        raise die(f"unable to use snapshot name '{name}' (reserved name)")
    if kind == "qemu":
        call.get_guest(vmid)

    async def worker(work: Work) -> None:
        async with call.hold(kind, vmid):
            await _create(call, call.get_guest(vmid, kind), name, work)

    return call.spawn(_TASKS[kind] + "snapshot", vmid, worker)


async def _create(call: Call, guest: Guest, name: str, work: Work) -> None:
    if guest.template:
        raise die("you can't take a snapshot if it's a template")
    files.check_lock(guest)
    if name in guest.snapshots:
        raise die(f"snapshot name '{name}' already used")
    place = files.stock(call)
    volumes = volumes_of(guest.conf)
    if not all(place.feature("snapshot", volid) for _, volid in volumes):
        raise die("snapshot feature is not available")
    guest.conf["lock"] = "snapshot"
    state = None
    try:
        if call.get("vmstate") and guest.running:
            storage = vmstate.choose_storage(call, guest)
            state = await vmstate.save(call, guest, work, storage, name)
        sizes: Row = {}
        for key, volid in volumes:
            work.log(f"snapshotting 'drive-{key}' ({volid})")
            volume = place.get(volid)
            volume.snapshots.append(name)
            sizes[volid] = {"size": volume.size, "mark": volume.mark}
    finally:
        guest.conf.pop("lock", None)
    guest.snapshots[name] = Snapshot(
        name,
        kept(guest.conf),
        guest.parent,
        int(call.now()),
        call.get("description") or None,
        state,
        disks=sizes,
    )
    guest.parent = name
    files.write(call.desk, guest)


# ---------------------------------------------------------------------- delete


def delete(call: Call, kind: str = "qemu") -> str:
    """DELETE snapshot/NAME."""
    name, vmid = call.params["snapname"], call.params["vmid"]

    async def worker(work: Work) -> None:
        async with call.hold(kind, vmid):
            guest = call.get_guest(vmid, kind)
            snap = get(guest, name)
            files.check_lock(guest)
            if guest.template:
                raise die("you can't delete a snapshot if vm is a template")
            _delete(call, guest, snap)

    return call.spawn(_TASKS[kind] + "delsnapshot", vmid, worker)


def _delete(call: Call, guest: Guest, snap: Snapshot) -> None:
    place = files.stock(call)
    for _, volid in volumes_of(snap.conf):
        place.release(volid, snap.name)
    if snap.vmstate and place.find(snap.vmstate) is not None:
        place.free(snap.vmstate)
    del guest.snapshots[snap.name]
    for other in guest.snapshots.values():
        if other.parent == snap.name:
            other.parent = snap.parent
    if guest.parent == snap.name:
        guest.parent = snap.parent
    for _, volid in volumes_of(snap.conf):
        volume = place.find(volid)
        if volume is not None and snap.name in volume.snapshots:
            volume.snapshots.remove(snap.name)
        files.add_unused(guest.conf, volid)
    files.write(call.desk, guest)


# ---------------------------------------------------------------------- rollback


def rollback(call: Call, kind: str = "qemu") -> str:
    """POST snapshot/NAME/rollback."""
    name, vmid = call.params["snapname"], call.params["vmid"]

    async def worker(work: Work) -> None:
        async with call.hold(kind, vmid):
            guest = call.get_guest(vmid, kind)
            await _rollback(call, guest, name)
            if (call.get("start") or guest.snapshots[name].vmstate) and not guest.running:
                await start.start(call, guest, work)

    return call.spawn(_TASKS[kind] + "rollback", vmid, worker)


async def _rollback(call: Call, guest: Guest, name: str) -> None:
    if guest.template:
        raise die("you can't rollback if vm is a template")
    snap = get(guest, name)
    _check_order(call, snap)
    if snap.state:
        raise die(f"unable to rollback to incomplete snapshot (snapstate = {snap.state})")
    files.check_lock(guest)
    await start.ended(call.desk, guest)
    place = files.stock(call)
    wanted = {volid for _, volid in volumes_of(snap.conf)}
    lost = [volid for _, volid in volumes_of(guest.conf) if volid not in wanted]
    keep = {k: v for k, v in guest.conf.items() if k.startswith("unused") or k == "description"}
    for volid in lost:
        files.add_unused(keep, volid)
    guest.conf = keep | snap.conf
    guest.pending.clear()
    guest.deletes.clear()
    if guest.conf.get("vmgenid"):
        guest.conf["vmgenid"] = identity.new_uuid(call.desk)
    guest.parent = name
    for volid, was in snap.disks.items():
        volume = place.find(volid)
        if volume is not None:
            volume.size, volume.mark = int(was["size"]), str(was["mark"])
    files.write(call.desk, guest)


def _check_order(call: Call, snap: Snapshot) -> None:
    """ZFS goes back to the newest snapshot only."""
    place = files.stock(call)
    for _, volid in volumes_of(snap.conf):
        volume = place.find(volid)
        kind = place.get_storage(volid.partition(":")[0]).type
        if volume is not None and kind == "zfspool" and volume.snapshots[-1:] != [snap.name]:
            raise die(f"can't rollback, '{snap.name}' is not most recent snapshot on '{volid}'")
