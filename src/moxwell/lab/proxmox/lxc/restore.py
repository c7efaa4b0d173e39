"""Restores a container from a backup archive (POST lxc with ``restore``)."""

from typing import Any

from moxwell.lab.proxmox.config_schema import ct
from moxwell.lab.proxmox.config_schema.drives import parse_size
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.lxc import conf as files
from moxwell.lab.proxmox.lxc import power
from moxwell.lab.proxmox.qemu import conf as vm_files
from moxwell.lab.proxmox.qemu import create as vm_create
from moxwell.lab.proxmox.qemu import privileges
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes.archives import GuestArchive, read_archive


def spawn(call: PveCall, vmid: int, settings: dict[str, Any], mounts: dict[str, str]) -> str:
    """Lock the configuration and start the worker."""
    old = call.region.guests.get(vmid)
    if old is not None and old.lock:
        raise die(f"unable to restore CT {vmid} - CT is locked ({old.lock})")
    guest = old or SimGuest(vmid, "lxc", call.node)
    guest.conf["lock"] = "create"
    call.region.guests[vmid] = guest
    call.runtime.mark_changed(vmid)

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("lxc", vmid, 1):
            try:
                await _Restore(call, guest, ctx).run(settings, mounts)
            except PveException as problem:
                _undo(call, guest, new=old is None)
                raise die(f"unable to restore CT {vmid} - {problem.in_task}") from problem
        vm_create.add_to_pool(call, vmid)
        if call.get("start"):
            power.start_now(call, guest)
        ha_manager.manage_created(call, guest, ctx)

    return call.spawn("vzrestore", vmid, worker)


def _undo(call: PveCall, guest: SimGuest, *, new: bool) -> None:
    guest.conf.pop("lock", None)
    if new:
        del call.region.guests[guest.vmid]
    call.runtime.mark_changed(guest.vmid)


class _Restore:
    """One restore."""

    def __init__(self, call: PveCall, guest: SimGuest, ctx: WorkerContext) -> None:
        self._call, self._guest, self._ctx = call, guest, ctx
        self._store = vm_files.volume_store(call)

    async def run(self, settings: dict[str, Any], mounts: dict[str, str]) -> None:
        volid = self._call.params["ostemplate"]
        archive = self._store.get(volid)
        saved = read_archive(archive)
        if saved.kind != "lxc":
            raise die("ERROR: archive contains no configuration file")
        if self._guest.running:
            raise die("can't overwrite running container")
        conf = _kept(self._call, saved.conf)
        self._check_access(conf, settings)
        self._free_old()
        wanted = mounts or self._saved_mounts(saved)
        for key in sorted(wanted):
            conf[key], _ = files.make_volume(self._call, self._guest.vmid, key, wanted[key])
        self._ctx.log(f"extracting archive '{self._store.path(volid)}'")
        await self._ctx.sleep(archive.used / self._call.region.pace.bandwidth)
        if self._call.get("unique"):
            for name in [k for k in conf if k.startswith("net") and k[3:].isdigit()]:
                conf[name] = files.with_hwaddr(self._call, str(conf[name]), fresh=True)
        self._guest.conf = conf | {k: ct.stored(k, v) for k, v in settings.items()}
        self._guest.snapshots.clear()
        self._guest.pending.clear()
        self._guest.deletes.clear()
        self._guest.parent = None
        vm_files.write(self._call.runtime, self._guest)

    def _check_access(self, conf: Conf, settings: dict[str, Any]) -> None:
        """Check the bridges that come from the archive, and a new privileged container."""
        call = self._call
        for name in sorted(k for k in conf if k.startswith("net") and k[3:].isdigit()):
            net = ct.read(ct.NET, conf[name])
            if name not in settings and not call.is_root:
                privileges.check_bridge(call, net.get("bridge"), net.get("tag"), net.get("trunks"))
        was = self._guest.conf.get("unprivileged", int(len(self._guest.conf) == 1))
        if call.major >= 9 and was and not conf.get("unprivileged"):
            call.check("/", "Sys.Modify")

    def _free_old(self) -> None:
        for key in [k for k in self._guest.conf if files.is_mount(k)]:
            volid = files.mount(key, str(self._guest.conf[key])).get("volume", "")
            if self._store.find(volid) is not None and self._store.owner(volid) == self._guest.vmid:
                self._store.free(volid, self._ctx)

    def _saved_mounts(self, saved: GuestArchive) -> dict[str, str]:
        """The mount points of the archive as new volumes of the same sizes."""
        found = {}
        for key in [k for k in saved.conf if files.is_mount(k)]:
            values = files.mount(key, str(saved.conf[key]))
            if not files.is_volume(values):
                continue
            del values["volume"]
            size = parse_size(values.pop("size", "4G")) or (4 << 30)
            storage = self._call.get("storage") or "local"
            found[key] = ct.write_mount(
                key, {"volume": f"{storage}:{size / (1 << 30):g}", **values}
            )
        return found


def _kept(call: PveCall, saved: Conf) -> Conf:
    """The options of the archive that a restore keeps."""
    dropped = ("lock", "parent", "template")
    conf = {k: v for k, v in saved.items() if not files.is_mount(k) and k not in dropped}
    conf = {k: v for k, v in conf.items() if not k.startswith("unused")}
    given = call.get("unprivileged")
    if given is not None:
        conf.pop("unprivileged", None)
    return conf | ({"unprivileged": 1} if given else {})
