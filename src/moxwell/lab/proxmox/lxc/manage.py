"""
Containers: clone, template, resize, migrate, destroy.
"""

from typing import Any

from moxwell.lab.proxmox.config_schema import ct
from moxwell.lab.proxmox.config_schema.drives import size_text
from moxwell.lab.proxmox.errors import PveError, die
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.lxc import conf as files
from moxwell.lab.proxmox.qemu import conf as vm_files
from moxwell.lab.proxmox.qemu import create as vm_create
from moxwell.lab.proxmox.qemu import destroy as vm_destroy
from moxwell.lab.proxmox.qemu import migrate as vm_migrate
from moxwell.lab.proxmox.qemu import rights
from moxwell.lab.proxmox.qemu import start as vm_start
from moxwell.lab.proxmox.qemu.move import new_size
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.state import Conf, Firewall, Guest, Row
from moxwell.lab.proxmox.tasks import Work
from moxwell.lab.proxmox.volumes.volume_store import Stock

_NOT_COPIED = ("lock", "parent", "snaptime", "snapstate", "template")


def _volumes(conf: Conf) -> list[tuple[str, str]]:
    found = []
    for key in [k for k in conf if files.is_mount(k)]:
        values = files.mount(key, conf[key])
        if files.is_volume(values):
            found.append((key, values["volume"]))
    return found


# ---------------------------------------------------------------------- clone


def clone(call: Call) -> str:
    """POST clone: the source is locked with ``disk`` while it runs."""
    vm_create.check_pool(call, call.get("pool"))
    target = call.get("target")
    target = None if target in (call.node, "localhost") else target
    if target and target not in call.region.hosts:
        raise die(f"no such cluster node '{target}'")
    place, storage = vm_files.stock(call), call.get("storage")
    if storage:
        place.enabled(storage)
        if target:
            place.enabled(storage, target)
            if not place.get_storage(storage).shared:
                raise die(f"can't clone to non-shared storage '{storage}'")
    source, newid = call.get_guest(call.params["vmid"], "lxc"), call.params["newid"]
    vm_files.check_lock(source)
    other = call.region.guests.get(newid)
    if other is not None:
        word = "VM" if other.kind == "qemu" else "CT"
        raise die(f"{word} {newid} already exists on node '{other.node}'")
    conf, full = _plan(call, source, target)
    guest = _put_down(call, source, newid, conf)
    source.conf["lock"] = "disk"
    return call.spawn(
        "vzclone",
        source.vmid,
        lambda work: _clone(call, source, guest, work, full=full, target=target),
    )


def _plan(call: Call, source: Guest, target: str | None) -> tuple[Conf, bool]:
    full = bool(call.get("full", not source.template))
    storage, place = call.get("storage"), vm_files.stock(call)
    if storage is not None and not full:
        raise die("parameter 'storage' not allowed for linked clones")
    name = call.get("snapname")
    if name and name not in source.snapshots:
        raise die(f"snapshot '{name}' does not exist")
    old = source.snapshots[name].conf if name else source.conf
    shared = True
    for _, volid in _volumes(old):
        where = storage or volid.partition(":")[0]
        shared = shared and place.get_storage(where).shared
        call.check(f"/storage/{where}", "Datastore.AllocateSpace")
        if full and source.running and not name:
            raise die("Cannot do full clones on a running container without snapshots")
        kind = place.get_storage(volid.partition(":")[0])
        linkable = place.feature("clone", volid, name) and kind.type != "dir"
        if not full and not linkable:
            raise die(f"Linked clone feature for '{volid}' is not available")
    if target and not shared:
        raise die(f"can't clone CT to node '{target}' (CT uses local storage)")
    return _copied(call, old), full


def _copied(call: Call, old: Conf) -> Conf:
    conf: Conf = {"lock": "create"}
    for key, value in old.items():
        if key in _NOT_COPIED or key.startswith("unused"):
            continue
        if key.startswith("net") and key[3:].isdigit():
            conf[key] = files.with_hwaddr(call, str(value), fresh=True)
            net = ct.read(ct.NET, value)
            if not call.is_root:
                rights.check_bridge(call, net.get("bridge"), net.get("tag"), net.get("trunks"))
        elif not files.is_mount(key):
            conf[key] = value
    if call.get("hostname"):
        conf["hostname"] = call.get("hostname")
    if call.get("description"):
        conf["description"] = call.get("description")
    return conf


def _put_down(call: Call, source: Guest, newid: int, conf: Conf) -> Guest:
    guest = Guest(newid, "lxc", call.node, conf)
    guest.incarnation = call.region.next_number()
    guest.firewall = Firewall(
        options=dict(source.firewall.options),
        rules=[dict(rule) for rule in source.firewall.rules],
    )
    call.region.guests[newid] = guest
    call.desk.touch(newid)
    return guest


async def _clone(
    call: Call, source: Guest, guest: Guest, work: Work, *, full: bool, target: str | None
) -> None:
    place, made = vm_files.stock(call), []
    name = call.get("snapname")
    old = source.snapshots[name].conf if name else source.conf
    done = False
    try:
        for key, volid in sorted(_volumes(old)):
            new = await clone_volume(call, work, key, volid, guest.vmid, full=full)
            made.append(new)
            values = files.mount(key, old[key])
            values["volume"] = new
            guest.conf[key] = ct.write_mount(key, values)
        done = True
    except PveError as problem:
        raise die(f"clone failed: {problem.message}") from problem
    finally:
        source.conf.pop("lock", None)
        if not done:
            for volid in made:
                place.free(volid)
            vm_destroy.drop(call, guest)
    guest.conf.pop("lock", None)
    guest.node = target or guest.node
    pool = call.region.pools.get(str(call.get("pool", "")))
    if pool is not None and guest.vmid not in pool.vms:
        pool.vms.append(guest.vmid)
    vm_files.write(call.desk, guest)


async def clone_volume(
    call: Call, work: Work, key: str, volid: str, vmid: int, *, full: bool
) -> str:
    place = vm_files.stock(call)
    if not full:
        work.log(f"create linked clone of mount point {key} ({volid})")
        return place.clone(volid, vmid)
    work.log(f"create full clone of mountpoint {key} ({volid})")
    source = place.get(volid)
    storage = call.get("storage") or volid.partition(":")[0]
    kind = place.get_storage(storage).type
    form = "subvol" if kind == "zfspool" else "raw"
    new = place.alloc(storage, vmid, form, source.size)
    place.get(new).content = "rootdir"
    done = False
    try:
        await place.copy(work, volid, new, int(call.get("bwlimit") or 0))
        done = True
    finally:
        if not done:
            place.free(new)
    return new


# ---------------------------------------------------------------------- template, resize


async def template(call: Call) -> None:
    """POST template: answers null, the worker runs on."""
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

    async def worker(work: Work) -> None:
        place = vm_files.stock(call)
        for key, volid in _volumes(guest.conf):
            if place.feature("template", volid):
                values = files.mount(key, guest.conf[key])
                values["volume"] = place.make_base(volid)
                guest.conf[key] = ct.write_mount(key, values)
        guest.conf["template"] = 1
        vm_files.write(call.desk, guest)

    call.spawn("vztemplate", vmid, worker)


def resize(call: Call) -> str:
    """PUT resize: checked at once, unlike a VM's."""
    _resizable(call)
    vmid, key = call.params["vmid"], call.params["disk"]

    async def worker(work: Work) -> None:
        async with call.hold("lxc", vmid):
            guest, volid, size = _resizable(call)
            vm_files.stock(call).resize(volid, size)
            work.log("Image resized.")
            values = files.mount(key, guest.conf[key])
            values["size"] = size_text(size)
            guest.conf[key] = ct.write_mount(key, values)
            vm_files.write(call.desk, guest)

    return call.spawn("resize", vmid, worker)


def _resizable(call: Call) -> tuple[Guest, str, int]:
    guest, key = call.get_guest(call.params["vmid"], "lxc"), call.params["disk"]
    vm_files.check_lock(guest)
    vm_files.check_digest(guest, call.get("digest"))
    if key not in guest.conf:
        raise die(f"disk '{key}' does not exist")
    volid, place = files.mount(key, guest.conf[key])["volume"], vm_files.stock(call)
    owner = place.owner(volid)
    if owner != guest.vmid:
        raise die(f"can't resize mount point owned by another container ({owner})")
    call.check(f"/storage/{volid.partition(':')[0]}", "Datastore.AllocateSpace")
    volume = place.get(volid)
    size = new_size(str(call.params["size"]), volume.size)
    if size < volume.size:
        raise die("unable to shrink disk size")
    if size == volume.size:
        raise die("disk is already at specified size")
    return guest, volid, size


# ---------------------------------------------------------------------- migrate, destroy


def migrate(call: Call) -> str:
    """POST migrate: containers move stopped, or are restarted on the way."""
    target = vm_migrate.check_target(call)
    guest = call.get_guest(call.params["vmid"], "lxc")
    vm_files.check_lock(guest)
    if guest.running and not call.get("online") and not call.get("restart"):
        raise die("can't migrate running container without --online or --restart")
    place = vm_files.stock(call)
    for _, volid in _volumes(guest.conf):
        place.enabled(volid.partition(":")[0], target)
    if not call.via_ha and ha_manager.managed(call.region, guest) is not None:
        return ha_manager.delegate(call, guest, "migrate", target)
    return call.spawn("vzmigrate", guest.vmid, lambda work: _migrate(call, guest, target, work))


async def _migrate(call: Call, guest: Guest, target: str, work: Work) -> None:
    if guest.running and not call.get("restart"):
        work.log("ERROR: migration aborted: lxc live migration is currently not implemented")
        raise die("migration aborted")
    async with call.hold("lxc", guest.vmid):
        again = guest.running
        await vm_start.ended(call.desk, guest)
        here, there = vm_files.stock(call), Stock(call.desk, target)
        for key, volid in _volumes(guest.conf):
            storage = volid.partition(":")[0]
            if here.get_storage(storage).shared:
                continue
            volume = here.get(volid)
            new = there.alloc(storage, guest.vmid, volume.format, volume.size)
            await work.sleep(volume.size / call.region.pace.migration_bandwidth)
            there.get(new).mark = volume.mark
            here.free(volid)
            values = files.mount(key, guest.conf[key])
            values["volume"] = new
            guest.conf[key] = ct.write_mount(key, values)
        guest.node = target
        vm_files.write(call.desk, guest)
        if again:
            vm_start.started(call.desk, guest)


def _early(call: Call, guest: Guest) -> None:
    vm_files.check_protection(guest, f"can't remove CT {guest.vmid}")
    vm_files.check_lock(guest)
    if not call.get("purge"):
        if ha_manager.listed(call.region, guest) is not None:
            raise die(
                f"unable to remove CT {guest.vmid} - used in HA resources and purge parameter"
                " not set."
            )
        vm_destroy.check_replication(call, guest.vmid)
    if guest.running and not call.get("force"):
        raise die(f"unable to destroy CT {guest.vmid} - container is running")


def destroy(call: Call) -> str:
    """DELETE lxc/ID."""
    vmid = call.params["vmid"]
    _early(call, call.get_guest(vmid, "lxc"))

    async def worker(work: Work) -> None:
        async with call.hold("lxc", vmid):
            guest = call.get_guest(vmid, "lxc")
            _early(call, guest)
            if guest.running:
                work.log(f"forced to stop CT {vmid} before destroying!")
                await vm_start.ended(call.desk, guest)
            _remove(call, guest, work)

    return call.spawn("vzdestroy", vmid, worker)


def _remove(call: Call, guest: Guest, work: Work) -> None:
    place = vm_files.stock(call)
    volids = [volid for conf in (guest.conf, guest.pending) for _, volid in _volumes(conf)]
    volids += [str(guest.conf[k]) for k in guest.conf if k.startswith("unused")]
    for volid in dict.fromkeys(volids):
        if ":" in volid and place.find(volid) is not None and place.owner(volid) == guest.vmid:
            place.free(volid, work)
    if call.get("destroy-unreferenced-disks"):
        vm_destroy.free_unreferenced(call, guest.vmid, work)
    vm_destroy.forget(call, guest)
    if call.get("purge"):
        work.log(f"purging CT {guest.vmid} from related configurations..")
        vm_destroy.purge(call, guest, work)
    vm_destroy.drop(call, guest)


def feature(call: Call) -> Row:
    """GET feature."""
    guest, what = call.get_guest(call.params["vmid"], "lxc"), call.params["feature"]
    place = vm_files.stock(call)
    able: list[Any] = [place.feature(what, volid) for _, volid in _volumes(guest.conf)]
    return {"hasFeature": int(all(able))}
