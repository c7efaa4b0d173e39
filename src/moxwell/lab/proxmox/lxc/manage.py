"""Container endpoints: clone, template, resize, migrate, destroy."""

from typing import Any

from moxwell.lab.proxmox.config_schema import ct
from moxwell.lab.proxmox.config_schema.drives import size_text
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.lxc import conf as files
from moxwell.lab.proxmox.qemu import conf as vm_files
from moxwell.lab.proxmox.qemu import create as vm_create
from moxwell.lab.proxmox.qemu import destroy as vm_destroy
from moxwell.lab.proxmox.qemu import migrate as vm_migrate
from moxwell.lab.proxmox.qemu import privileges
from moxwell.lab.proxmox.qemu import start as vm_start
from moxwell.lab.proxmox.qemu.move import new_size
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, Row, SimFirewall, SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore

_RUNNING = (  # before and since version 9
    "Cannot do full clones on a running container without snapshots",
    "Full clone of a running container is only possible from a snapshot",
)
_NOT_COPIED = ("lock", "parent", "snaptime", "snapstate", "template")


def _volumes(conf: Conf) -> list[tuple[str, str]]:
    found = []
    for key in [k for k in conf if files.is_mount(k)]:
        values = files.mount(key, conf[key])
        if files.is_volume(values):
            found.append((key, values["volume"]))
    return found


# ---------------------------------------------------------------------- clone


def clone(call: PveCall) -> str:
    """POST clone; the source has the lock ``disk`` during the task."""
    vm_create.check_pool(call, call.get("pool"))
    target = call.get("target")
    target = None if target in (call.node, "localhost") else target
    if target and target not in call.region.hosts:
        raise die(f"no such cluster node '{target}'")
    store, storage = vm_files.volume_store(call), call.get("storage")
    if storage:
        store.get_enabled(storage)
        if target:
            store.get_enabled(storage, target)
            if not store.get_storage(storage).shared:
                raise die(f"can't clone to non-shared storage '{storage}'")
    source, newid = call.get_guest(call.params["vmid"], "lxc"), call.params["newid"]
    vm_files.check_lock(source)
    other = call.region.guests.get(newid)
    if other is not None:
        label = "VM" if other.kind == "qemu" else "CT"
        raise die(f"{label} {newid} already exists on node '{other.node}'")
    conf, full = _plan(call, source, target)
    guest = _create_config(call, source, newid, conf)
    source.conf["lock"] = "disk"
    return call.spawn(
        "vzclone",
        source.vmid,
        lambda ctx: _clone(call, source, guest, ctx, full=full, target=target),
    )


def _plan(call: PveCall, source: SimGuest, target: str | None) -> tuple[Conf, bool]:
    full = bool(call.get("full", not source.template))
    storage, store = call.get("storage"), vm_files.volume_store(call)
    if storage is not None and not full:
        raise die("parameter 'storage' not allowed for linked clones")
    name = call.get("snapname")
    if name and name not in source.snapshots:
        raise die(f"snapshot '{name}' does not exist")
    old = source.snapshots[name].conf if name else source.conf
    shared = True
    _check_kinds(old)
    for _, volid in _volumes(old):
        where = storage or volid.partition(":")[0]
        shared = shared and store.get_storage(where).shared
        call.check(f"/storage/{where}", "Datastore.AllocateSpace")
        if full and source.running and not name:
            raise die(_RUNNING[call.major >= 9])
        kind = store.get_storage(volid.partition(":")[0])
        linkable = store.feature("clone", volid, name) and kind.type != "dir"
        if not full and not linkable:
            raise die(f"Linked clone feature for '{volid}' is not available")
    if target and not shared:
        raise die(f"can't clone CT to node '{target}' (CT uses local storage)")
    return _copied(call, old), full


def _check_kinds(conf: Conf) -> None:
    """Bind and device mounts cannot be cloned."""
    for key in sorted(k for k in conf if files.is_mount(k)):
        values = files.mount(key, conf[key])
        if not files.is_volume(values):
            kind = "device" if values["volume"].startswith("/dev/") else "bind"
            raise die(f"unable to clone mountpoint '{key}' (type {kind})")


def _copied(call: PveCall, old: Conf) -> Conf:
    conf: Conf = {"lock": "create"}
    for key, value in old.items():
        if key in _NOT_COPIED or key.startswith("unused"):
            continue
        if key.startswith("net") and key[3:].isdigit():
            conf[key] = files.with_hwaddr(call, str(value), fresh=True)
            net = ct.read(ct.NET, value)
            if not call.is_root:
                privileges.check_bridge(call, net.get("bridge"), net.get("tag"), net.get("trunks"))
        elif not files.is_mount(key):
            conf[key] = value
    if call.get("hostname"):
        conf["hostname"] = call.get("hostname")
    if call.get("description"):
        conf["description"] = call.get("description")
    return conf


def _create_config(call: PveCall, source: SimGuest, newid: int, conf: Conf) -> SimGuest:
    guest = SimGuest(newid, "lxc", call.node, conf)
    guest.incarnation = call.region.next_number()
    guest.firewall = SimFirewall(
        options=dict(source.firewall.options),
        rules=[dict(rule) for rule in source.firewall.rules],
    )
    call.region.guests[newid] = guest
    call.runtime.mark_changed(newid)
    return guest


async def _clone(
    call: PveCall,
    source: SimGuest,
    guest: SimGuest,
    ctx: WorkerContext,
    *,
    full: bool,
    target: str | None,
) -> None:
    store, made = vm_files.volume_store(call), []
    name = call.get("snapname")
    old = source.snapshots[name].conf if name else source.conf
    done = False
    try:
        for key, volid in sorted(_volumes(old)):
            new = await clone_volume(call, ctx, key, volid, guest.vmid, full=full)
            made.append(new)
            values = files.mount(key, old[key])
            values["volume"] = new
            guest.conf[key] = ct.write_mount(key, values)
        done = True
    except PveException as problem:
        raise die(f"clone failed: {problem.message}") from problem
    finally:
        source.conf.pop("lock", None)
        if not done:
            for volid in made:
                store.free(volid)
            vm_destroy.delete_guest(call, guest)
    guest.conf.pop("lock", None)
    guest.node = target or guest.node
    pool = call.region.pools.get(str(call.get("pool", "")))
    if pool is not None and guest.vmid not in pool.vms:
        pool.vms.append(guest.vmid)
    vm_files.write(call.runtime, guest)


async def clone_volume(
    call: PveCall, ctx: WorkerContext, key: str, volid: str, vmid: int, *, full: bool
) -> str:
    store = vm_files.volume_store(call)
    if not full:
        ctx.log(f"create linked clone of mount point {key} ({volid})")
        return store.clone(volid, vmid)
    ctx.log(f"create full clone of mountpoint {key} ({volid})")
    source = store.get(volid)
    storage = call.get("storage") or volid.partition(":")[0]
    kind = store.get_storage(storage).type
    form = "subvol" if kind == "zfspool" else "raw"
    new = store.alloc(storage, vmid, form, source.size)
    store.get(new).content = "rootdir"
    done = False
    try:
        await store.copy(ctx, volid, new, int(call.get("bwlimit") or 0))
        done = True
    finally:
        if not done:
            store.free(new)
    return new


# ---------------------------------------------------------------------- template, resize


async def template(call: PveCall) -> None:
    """POST template: returns null while the worker continues."""
    vmid = call.params["vmid"]
    async with call.hold("lxc", vmid):
        guest = call.get_guest(vmid, "lxc")
        vm_files.check_lock(guest)
        if guest.snapshots:
            raise die("unable to create template, because CT contains snapshots")
        if guest.template:
            raise die("you can't convert a template to a template")
        if guest.running:
            raise die("you can't convert a CT to template if the CT is running")

    async def worker(ctx: WorkerContext) -> None:
        store = vm_files.volume_store(call)
        for key, volid in _volumes(guest.conf):
            if store.feature("template", volid):
                values = files.mount(key, guest.conf[key])
                values["volume"] = store.make_base(volid)
                guest.conf[key] = ct.write_mount(key, values)
        guest.conf["template"] = 1
        vm_files.write(call.runtime, guest)

    call.spawn("vztemplate", vmid, worker)


def resize(call: PveCall) -> str:
    """PUT resize; unlike for VMs, checked before the task starts."""
    _resizable(call)
    vmid, key = call.params["vmid"], call.params["disk"]

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("lxc", vmid):
            guest, volid, size = _resizable(call)
            vm_files.volume_store(call).resize(volid, size)
            ctx.log("Image resized.")
            values = files.mount(key, guest.conf[key])
            values["size"] = size_text(size)
            guest.conf[key] = ct.write_mount(key, values)
            vm_files.write(call.runtime, guest)

    return call.spawn("resize", vmid, worker)


def _resizable(call: PveCall) -> tuple[SimGuest, str, int]:
    guest, key = call.get_guest(call.params["vmid"], "lxc"), call.params["disk"]
    vm_files.check_lock(guest)
    files.check_digest(guest, call.get("digest"))
    files.check_present(guest, key)
    volid, store = files.mount(key, guest.conf[key])["volume"], vm_files.volume_store(call)
    owner = store.owner(volid)
    if owner != guest.vmid:
        raise die(f"can't resize mount point owned by another container ({owner})")
    call.check(f"/storage/{volid.partition(':')[0]}", "Datastore.AllocateSpace")
    volume = store.get(volid)
    size = new_size(str(call.params["size"]), volume.size)
    if size < volume.size:
        raise die("unable to shrink disk size")
    if size == volume.size:
        raise die("disk is already at specified size")
    return guest, volid, size


# ---------------------------------------------------------------------- migrate, destroy


def migrate(call: PveCall) -> str:
    """POST migrate: offline, or with restart."""
    target = vm_migrate.check_target(call)
    guest = call.get_guest(call.params["vmid"], "lxc")
    vm_files.check_lock(guest)
    if guest.running and not call.get("online") and not call.get("restart"):
        raise die("can't migrate running container without --online or --restart")
    store = vm_files.volume_store(call)
    for _, volid in _volumes(guest.conf):
        store.get_enabled(volid.partition(":")[0], target)
    if not call.via_ha and ha_manager.find_managed(call.region, guest) is not None:
        return ha_manager.delegate(call, guest, "migrate", target)
    return call.spawn("vzmigrate", guest.vmid, lambda ctx: _migrate(call, guest, target, ctx))


async def _migrate(call: PveCall, guest: SimGuest, target: str, ctx: WorkerContext) -> None:
    if guest.running and not call.get("restart"):
        ctx.log("ERROR: migration aborted: lxc live migration is currently not implemented")
        raise die("migration aborted")
    async with call.hold("lxc", guest.vmid):
        again = guest.running
        await vm_start.mark_stopped(call.runtime, guest)
        source_store, target_store = vm_files.volume_store(call), VolumeStore(call.runtime, target)
        for key, volid in _volumes(guest.conf):
            storage = volid.partition(":")[0]
            if source_store.get_storage(storage).shared:
                continue
            volume = source_store.get(volid)
            new = target_store.alloc(storage, guest.vmid, volume.format, volume.size)
            await ctx.sleep(volume.size / call.region.pace.migration_bandwidth)
            target_store.get(new).content_id = volume.content_id
            source_store.free(volid)
            values = files.mount(key, guest.conf[key])
            values["volume"] = new
            guest.conf[key] = ct.write_mount(key, values)
        guest.node = target
        vm_files.write(call.runtime, guest)
        if again:
            vm_start.mark_running(call.runtime, guest)


def _check_migration(call: PveCall, guest: SimGuest) -> None:
    vm_files.check_protection(guest, f"can't remove CT {guest.vmid}")
    vm_files.check_lock(guest)
    if not call.get("purge"):
        if ha_manager.find_resource(call.region, guest) is not None:
            raise die(
                f"unable to remove CT {guest.vmid} - used in HA resources and purge parameter"
                " not set."
            )
        vm_destroy.check_replication(call, guest.vmid)
    if guest.running and not call.get("force"):
        raise die(f"unable to destroy CT {guest.vmid} - container is running")


def destroy(call: PveCall) -> str:
    """DELETE lxc/ID."""
    vmid = call.params["vmid"]
    _check_migration(call, call.get_guest(vmid, "lxc"))

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("lxc", vmid):
            guest = call.get_guest(vmid, "lxc")
            _check_migration(call, guest)
            if guest.running:
                ctx.log(f"forced to stop CT {vmid} before destroying!")
                await vm_start.mark_stopped(call.runtime, guest)
            _remove(call, guest, ctx)

    return call.spawn("vzdestroy", vmid, worker)


def _remove(call: PveCall, guest: SimGuest, ctx: WorkerContext) -> None:
    store = vm_files.volume_store(call)
    volids = [volid for conf in (guest.conf, guest.pending) for _, volid in _volumes(conf)]
    volids += [str(guest.conf[k]) for k in guest.conf if k.startswith("unused")]
    for volid in dict.fromkeys(volids):
        if ":" in volid and store.find(volid) is not None and store.owner(volid) == guest.vmid:
            store.free(volid, ctx)
    if call.get("destroy-unreferenced-disks"):
        vm_destroy.free_unreferenced(call, guest.vmid, ctx)
    vm_destroy.delete_references(call, guest)
    if call.get("purge"):
        ctx.log(f"purging CT {guest.vmid} from related configurations..")
        vm_destroy.purge(call, guest, ctx)
    vm_destroy.delete_guest(call, guest)


def feature(call: PveCall) -> Row:
    """GET feature."""
    guest, feature_name = call.get_guest(call.params["vmid"], "lxc"), call.params["feature"]
    store = vm_files.volume_store(call)
    able: list[Any] = [store.feature(feature_name, volid) for _, volid in _volumes(guest.conf)]
    return {"hasFeature": int(all(able))}
