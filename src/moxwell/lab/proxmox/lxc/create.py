"""POST lxc: creates a container from a template archive."""

from typing import Any

from moxwell.lab.proxmox.config_schema import ct, vm
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.lxc import conf as files
from moxwell.lab.proxmox.lxc import power, privileges, restore, update
from moxwell.lab.proxmox.qemu import conf as vm_files
from moxwell.lab.proxmox.qemu import create as vm_create
from moxwell.lab.proxmox.qemu import identity
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import access

_OWN = frozenset(
    words(
        "node vmid ostemplate storage password ssh-public-keys pool force restore unique bwlimit"
        " ignore-unpack-errors start unprivileged ha-managed"
    )
)
_TYPES = ("debian", "ubuntu", "alpine", "centos", "fedora", "opensuse", "archlinux", "gentoo")


def create(call: PveCall) -> str:
    """Check the request, then start a worker."""
    vmid, pool = int(call.params["vmid"]), call.get("pool")
    if call.major >= 9 and not call.get("restore") and not call.get("unprivileged", 1):
        call.check("/", "Sys.Modify")
    if call.get("ha-managed"):
        call.check("/", "Sys.Console")
    _check_free(call, vmid)
    keys = call.get("ssh-public-keys")
    if keys is not None:
        identity.check_ssh_keys(str(keys))
    vm_create.check_pool(call, pool)
    if not _may_overwrite(call, vmid):
        vm_create.check_allocate(call, vmid, pool)
    settings: dict[str, Any] = {k: v for k, v in call.params.items() if k not in _OWN}
    vm.clamp_cpuunits(settings)
    old = {"unprivileged": call.get("unprivileged", int(call.major >= 9))}
    privileges.check_options(call, vmid, old, settings, pool=pool)
    if call.params["ostemplate"] == "-":
        raise die("pipe requires cli environment")
    kind = "backup" if call.get("restore") else "vztmpl"
    access.check_volume(
        call, vm_files.volume_store(call), call.params["ostemplate"], vmid=vmid, kind=kind
    )
    for key in [k for k in settings if k.startswith("unused")]:
        del settings[key]
    mounts = mounts_of(call, settings)
    update.check_settings(call, settings)
    if call.get("restore"):
        return restore.spawn(call, vmid, settings, mounts)
    mounts = mounts or {"rootfs": f"{call.get('storage') or 'local'}:4"}
    guest = vm_create.create_config(call, vmid, "lxc")
    return call.spawn("vzcreate", vmid, lambda ctx: _make(call, guest, settings, mounts, ctx))


def _check_free(call: PveCall, vmid: int) -> None:
    other = call.region.guests.get(vmid)
    if other is None:
        return
    label = "VM" if other.kind == "qemu" else "CT"
    forced = call.get("restore") and call.get("force")
    if not forced or other.kind == "qemu" or other.node != call.node:
        raise die(f"{label} {vmid} already exists on node '{other.node}'")
    if other.running:
        raise die("can't overwrite running container")
    vm_files.check_protection(other, f"unable to restore CT {vmid}")


def _may_overwrite(call: PveCall, vmid: int) -> bool:
    """``VM.Backup`` is enough to restore an existing container."""
    exists = call.find_guest(vmid, "lxc") is not None
    forced = bool(call.get("restore") and call.get("force") and exists)
    return forced and call.has_privileges(f"/vms/{vmid}", "VM.Backup")


def mounts_of(call: PveCall, settings: dict[str, Any]) -> dict[str, str]:
    """rootfs and mount points, with the default storage where only a size is given."""
    default = call.get("storage") or "local"
    mounts = {}
    for key in [k for k in settings if files.is_mount(k)]:
        text = str(settings.pop(key))
        head = text.partition(",")[0]
        if head.replace(".", "", 1).isdigit():
            text = f"{default}:{text}"
        mounts[key] = text
    if mounts and "rootfs" not in mounts:
        raise die("mount points configured, but 'rootfs' not set - aborting")
    for key, text in mounts.items():
        files.check_mount(call, files.mount(key, text))
    if not mounts:
        files.check_mount(call, {"volume": f"{default}:4"})
    return mounts


async def _make(
    call: PveCall,
    guest: SimGuest,
    settings: dict[str, Any],
    mounts: dict[str, str],
    ctx: WorkerContext,
) -> None:
    store, made = vm_files.volume_store(call), []
    async with call.hold("lxc", guest.vmid, 1):
        try:
            conf: Conf = {}
            for key in sorted(mounts):
                text, volid = files.make_volume(call, guest.vmid, key, mounts[key])
                conf[key] = text
                made += [volid] if volid else []
            archive = store.get(call.params["ostemplate"])
            ctx.log(f"extracting archive '{store.path(call.params['ostemplate'])}'")
            await ctx.sleep(archive.used / call.region.pace.bandwidth)
            guest.conf = conf | _plain(call, guest.vmid, settings)
        except PveException as problem:
            for volid in made:
                store.free(volid)
            raise die(f"unable to create CT {guest.vmid} - {problem.in_task}") from problem
    vm_files.write(call.runtime, guest)
    vm_create.add_to_pool(call, guest.vmid)
    if call.get("start"):
        power.start_now(call, guest)
    ha_manager.manage_created(call, guest, ctx)


def _plain(call: PveCall, vmid: int, settings: dict[str, Any]) -> Conf:
    conf: Conf = {k: ct.stored(k, v) for k, v in settings.items()}
    for key in [k for k in conf if k.startswith("net") and k[3:].isdigit()]:
        conf[key] = files.with_hwaddr(call, str(conf[key]))
    if "tags" in conf:
        conf["tags"] = identity.normalize_tags(call, str(conf["tags"])) or " "
    conf.setdefault("hostname", f"CT{vmid}")
    conf.setdefault("memory", 512)
    conf.setdefault("swap", 512)
    conf.setdefault("arch", "amd64")
    template = str(call.params["ostemplate"]).rpartition("/")[2].lower()
    found = next((name for name in _TYPES if template.startswith(name)), "unmanaged")
    conf.setdefault("ostype", found)
    if call.get("unprivileged", int(call.major >= 9)):
        conf["unprivileged"] = 1
    return conf
