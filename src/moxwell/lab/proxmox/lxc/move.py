"""POST move_volume: moves a container's volume to another storage or another container."""

from moxwell.lab.proxmox.config_schema import ct
from moxwell.lab.proxmox.errors import die, param_error
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
        text = "either set 'storage' or 'target-vmid', but not both"
        raise param_error({"target-vmid": text, "storage": text})
    if other:
        return _to_guest(call, int(other))
    if storage:
        return _to_storage(call, storage)
    text = "both 'storage' and 'target-vmid' missing, either needs to be set"
    raise param_error({"target-vmid": text, "storage": text})


def _to_storage(call: PveCall, storage: str) -> str:
    key, guest = call.params["volume"], call.get_guest(call.params["vmid"], "lxc")
    vm_files.check_lock(guest)
    files.check_digest(guest, call.get("digest"))
    call.check(f"/storage/{storage}", "Datastore.AllocateSpace")
    vm_files.volume_store(call).get_enabled(storage)
    if guest.running:
        raise die("cannot move volumes of a running container")
    files.check_present(guest, key)

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("lxc", guest.vmid):
            await _move(call, guest, key, ctx)

    return call.spawn("move_volume", guest.vmid, worker)


async def _move(call: PveCall, guest: SimGuest, key: str, ctx: WorkerContext) -> None:
    values, store = files.mount(key, guest.conf[key]), vm_files.volume_store(call)
    old = values["volume"]
    values["volume"] = await clone_volume(call, ctx, key, old, guest.vmid, full=True)
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
    if other == vmid:
        text = "must be different than source VMID to move disk to another container"
        raise param_error({"target-vmid": text})
    _, _, volid = _reassignable(call, other, target_key)
    call.check(f"/storage/{volid.partition(':')[0]}", "Datastore.AllocateSpace")

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("lxc", vmid), call.hold("lxc", other):
            source, target, found = _reassignable(call, other, target_key)
            ctx.log(f"moving volume '{key}' from container '{vmid}' to '{other}'")
            new = vm_files.volume_store(call).rename(found, other)
            values = files.mount("mp0", source.conf[key]) | {"volume": new}
            is_unused = target_key.startswith("unused")
            target.conf[target_key] = new if is_unused else ct.write_mount(target_key, values)
            del source.conf[key]
            vm_files.write(call.runtime, source)
            vm_files.write(call.runtime, target)

    return call.spawn("move_volume", f"{vmid}-{key}-{other}-{target_key}", worker)


def _reassignable(call: PveCall, other: int, target_key: str) -> tuple[SimGuest, SimGuest, str]:
    vmid, key, known = call.params["vmid"], call.params["volume"], call.region.guests
    if "rootfs" in (key, target_key):
        raise die("Cannot move to/from 'rootfs'")
    if key.startswith("unused") and not target_key.startswith("unused"):
        raise die("Moving an unused volume to a used one is not possible")
    for number in (vmid, other):
        if number not in known or known[number].kind != "lxc":
            raise die(f"could not find CT {number}")
    if known[vmid].node != known[other].node:
        nodes = f"({known[vmid].node} != {known[other].node})"
        raise die(f"Both containers need to be on the same node {nodes}")
    source, target = call.get_guest(vmid, "lxc"), call.get_guest(other, "lxc")
    for guest in (source, target):
        vm_files.check_lock(guest)
    if source.template or target.template:
        raise die("Can't move volumes from or to template CT")
    if key not in source.conf:
        raise die(f"volume '{key}' for container '{vmid}' does not exist")
    if target_key in target.conf:
        raise die(f"target volume '{target_key}' for container '{other}' already exists")
    if source.running and not key.startswith("unused"):
        raise die("Cannot move volume of a running container")
    volid = str(source.conf[key]).partition(",")[0]
    if not vm_files.volume_store(call).feature("rename", volid):
        raise die("Storage does not support moving of this disk to another container")
    return source, target, volid
