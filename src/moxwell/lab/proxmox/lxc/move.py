"""POST move_volume: moves a container's volume to another storage or another container."""

from contextlib import AsyncExitStack

from moxwell.lab.proxmox.config_schema import ct
from moxwell.lab.proxmox.errors import PveException, die, param_error
from moxwell.lab.proxmox.lxc import conf as files
from moxwell.lab.proxmox.lxc.manage import clone_volume
from moxwell.lab.proxmox.qemu import conf as vm_files
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext


def move_volume(call: PveCall) -> str:
    """POST move_volume with either ``storage`` or ``target-vmid``."""
    storage, other = call.get("storage"), call.get("target-vmid")
    if other and storage:
        raise die("either set storage or target-vmid, but not both")
    if other:
        return _to_guest(call, int(other))
    if storage:
        return _to_storage(call, storage)
    text = "both 'storage' and 'target-vmid' missing, either needs to be set"
    raise param_error({"target-vmid": text, "storage": text})


def _to_storage(call: PveCall, storage: str) -> str:
    """The storage itself is looked up in the task."""
    key = call.params["volume"]
    call.check(f"/storage/{storage}", "Datastore.AllocateSpace")
    guest = call.get_guest(call.params["vmid"], "lxc")
    vm_files.check_lock(guest)
    if guest.running:
        raise die("cannot move volumes of a running container")
    if key.startswith("unused"):
        what = "only configured volumes can be moved to another storage"
        raise die(f"cannot move volume '{key}', {what}")
    files.check_present(guest, key)
    if call.get("delete") and _is_in_snapshot(guest, files.mount(key, guest.conf[key])["volume"]):
        raise die("you can't move a volume with snapshots and delete the source")
    files.check_digest(guest, call.get("digest"))
    guest.conf["lock"] = "disk"

    async def worker(ctx: WorkerContext) -> None:
        try:
            vm_files.volume_store(call).get_enabled(storage)
            await _move(call, guest, key, ctx)
        finally:
            guest.conf.pop("lock", None)

    return call.spawn("move_volume", guest.vmid, worker)


def _is_in_snapshot(guest: SimGuest, volid: str) -> bool:
    return any(
        str(value).partition(",")[0] == volid
        for snapshot in guest.snapshots.values()
        for key, value in snapshot.conf.items()
        if files.is_mount(key)
    )


async def _move(call: PveCall, guest: SimGuest, key: str, ctx: WorkerContext) -> None:
    values, store = files.mount(key, guest.conf[key]), vm_files.volume_store(call)
    old = values["volume"]
    values["volume"] = await clone_volume(call, ctx, key, old, guest.vmid, full=True)
    if guest.template:
        values["volume"] = store.make_base(values["volume"])
    guest.conf[key] = ct.write_mount(key, values)
    if call.get("delete"):
        store.free(old, ctx)
    else:
        vm_files.add_unused(guest.conf, old)
    vm_files.write(call.runtime, guest)


def _to_guest(call: PveCall, other: int) -> str:
    vmid, key = call.params["vmid"], call.params["volume"]
    target_key = call.get("target-volume") or key
    if not call.is_root:
        call.check_vm(other, "VM.Config.Disk")
    _, _, volid = _reassignable(call, other, target_key)
    call.check(f"/storage/{volid.partition(':')[0]}", "Datastore.AllocateSpace")

    async def worker(ctx: WorkerContext) -> None:
        async with AsyncExitStack() as stack:
            for held in sorted({vmid, other}):
                await stack.enter_async_context(call.hold("lxc", held))
            source, target, found = _reassignable(call, other, target_key)
            ctx.log(f"moving volume '{key}' from container '{vmid}' to '{other}'")
            new = vm_files.volume_store(call).rename(found, other) if other != vmid else found
            values = files.mount("mp0", source.conf[key]) | {"volume": new}
            is_unused = target_key.startswith("unused")
            target.conf[target_key] = new if is_unused else ct.write_mount(target_key, values)
            del source.conf[key]
            vm_files.write(call.runtime, source)
            vm_files.write(call.runtime, target)

    return call.spawn("move_volume", f"{vmid}-{key}>{other}-{target_key}", worker)


def _reassignable(call: PveCall, other: int, target_key: str) -> tuple[SimGuest, SimGuest, str]:
    """The containers and the volume, after all checks."""
    vmid, key = call.params["vmid"], call.params["volume"]
    if "rootfs" in (key, target_key):
        raise die("Cannot move to/from 'rootfs'")
    if key.startswith("unused") and not target_key.startswith("unused"):
        raise die("Moving an unused volume to a used one is not possible")
    source, target = _containers(call, vmid, other)
    if source.template or target.template:
        raise die("Can't move volumes from or to template CT")
    _check_digests(call, source, target)
    if key not in source.conf:
        raise die(f"volume '{key}' for container '{vmid}' does not exist")
    if target_key in target.conf:
        text = f"Target volume key '{target_key}' is already in use for container '{other}'"
        raise die(text)
    volid = str(source.conf[key]).partition(",")[0]
    if _is_in_snapshot(source, volid):
        raise die("Cannot move volume used by a snapshot to another container")
    if not vm_files.volume_store(call).feature("rename", volid):
        raise die("Storage does not support moving of this disk to another container")
    if source.running and not key.startswith("unused"):
        what = "while the source CT is running - detach or shutdown first"
        raise die(f"Cannot move in-use volume {what}")
    return source, target, volid


def _containers(call: PveCall, vmid: int, other: int) -> tuple[SimGuest, SimGuest]:
    known = call.region.guests
    for number in (vmid, other):
        if number not in known:
            raise die(f"could not find CT {number}")
    if known[vmid].node != known[other].node:
        nodes = f"({known[vmid].node} != {known[other].node})"
        raise die(f"Both containers need to be on the same node {nodes}")
    source, target = call.get_guest(vmid, "lxc"), call.get_guest(other, "lxc")
    for guest in (source, target):
        vm_files.check_lock(guest)
    return source, target


def _check_digests(call: PveCall, source: SimGuest, target: SimGuest) -> None:
    for guest, name in ((source, "digest"), (target, "target-digest")):
        try:
            files.check_digest(guest, call.get(name))
        except PveException as problem:
            raise die(f"Container {guest.vmid}: {problem.message}") from problem
