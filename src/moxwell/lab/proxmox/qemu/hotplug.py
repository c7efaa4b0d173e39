"""
Applies pending changes: all of them on a stopped VM, by hotplug on a running VM.

Changes that cannot be hotplugged stay pending; those whose hotplug fails stay pending too, and the
response contains the error. When a cloud-init option of a running VM changes, the value on the
drive is kept in ``SimGuest.special``.
"""

from collections.abc import Callable

from moxwell.lab.proxmox.bridges import check_mtu, has_bridge
from moxwell.lab.proxmox.config_schema import devices, formats, vm
from moxwell.lab.proxmox.config_schema.drives import Drive, find_drive, is_drive
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.qemu import cloudinit, open_volumes
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import SimGuest, Value

ALWAYS_HOTPLUGGABLE = frozenset(
    words(
        "description hookscript lock migrate_downtime migrate_speed name onboot protection shares"
        " startup tags vmstatestorage"
    )
)
_FIXED_DRIVE = ("aio", "discard", "iothread", "queues", "product", "cache", "ssd", "vendor", "ro")
_CLOUDINIT = vm.CLOUDINIT | {"name"}


class NotHotpluggable(PveException):
    """Not hotpluggable: the change stays pending."""

    def __init__(self) -> None:
        super().__init__(500, "skip")


def apply(call: PveCall, guest: SimGuest) -> dict[str, str]:
    """Apply all pending changes of a stopped VM; what fails stays pending and is returned."""
    store, errors = files.volume_store(call), {}
    for name, force in sorted(guest.deletes.items()):
        drive = (
            find_drive(name, guest.conf[name]) if is_drive(name) and name in guest.conf else None
        )
        try:
            if drive is not None:
                detach(call, guest, drive, force=bool(force))
        except PveException as problem:
            errors[name] = f"unable to apply pending change {name} : {problem.in_task}\n"
            continue
        guest.conf.pop(name, None)
        del guest.deletes[name]
    files.cleanup_pending(guest)
    for name, value in list(guest.pending.items()):
        if is_drive(name) and name in guest.conf:
            old, new = find_drive(name, guest.conf[name]), find_drive(name, value)
            if old is not None and (new is None or new.file != old.file):
                files.register_unused(store, guest, old)
        guest.conf[name] = value
    guest.pending.clear()
    files.write(call.runtime, guest)
    return errors


def detach(call: PveCall, guest: SimGuest, drive: Drive, *, force: bool) -> None:
    """Detach the volume of a drive: it becomes unused, or is freed if forced and owned."""
    store = files.volume_store(call)
    if not force:
        files.register_unused(store, guest, drive)
        return
    call.check_vm(guest.vmid, "VM.Config.Disk")
    deallocate(call, guest, drive.slot, drive.file, cdrom=drive.is_cdrom)


def deallocate(
    call: PveCall, guest: SimGuest, key: str, volid: str, *, cdrom: bool = False
) -> None:
    """Free a volume that the guest owns and does not reference elsewhere."""
    store = files.volume_store(call)
    if cdrom or not files.is_owner(store, guest.vmid, volid):
        return
    call.check(f"/storage/{volid.partition(':')[0]}", "Datastore.AllocateSpace")
    if files.in_use(guest, key, volid):
        raise die(f"unable to delete '{volid}' - volume is still in use (snapshot?)")
    store.free(volid)


class HotplugUpdate:
    """Applies pending changes to one running VM."""

    def __init__(self, call: PveCall, guest: SimGuest, chosen: set[str]) -> None:
        self._call, self._guest, self._chosen = call, guest, chosen
        self._features = vm.read_hotplug(guest.conf)
        self.errors: dict[str, str] = {}

    def run(self) -> None:
        guest = self._guest
        for name in [n for n in guest.pending if n in ALWAYS_HOTPLUGGABLE]:
            self._set(name, guest.pending.pop(name))
        for name in sorted(n for n in guest.deletes if n in self._chosen):
            if self._try(name, self._remove, name):
                self._record(name, guest.conf.pop(name, None), None)
                guest.live.pop(name, None)
                guest.deletes.pop(name, None)
        for name in [n for n in guest.pending if n in self._chosen]:
            value = guest.pending[name]
            if self._try(name, self._change, name, value):
                self._set(name, value)
                guest.live[name] = value
                guest.pending.pop(name, None)
        files.write(self._call.runtime, guest)
        if "cloudinit" in self._features and files.find_cloudinit([guest.conf]) is not None:
            cloudinit.regenerate(self._call, guest)

    def _try(self, name: str, action: Callable[..., None], *args: Value) -> bool:
        try:
            action(*args)
        except NotHotpluggable:
            return False
        except PveException as problem:
            self.errors[name] = f"hotplug problem - {problem.message}\n"
            return False
        return True

    def _set(self, name: str, value: Value) -> None:
        self._record(name, self._guest.conf.get(name), value)
        self._guest.conf[name] = value

    # ------------------------------------------------------------------ delete

    def _remove(self, name: str) -> None:
        guest = self._guest
        if name in ALWAYS_HOTPLUGGABLE or name in ("cpuunits", "cpulimit"):
            return
        if name == "hotplug":
            if {"cpu", "memory"} & self._features:
                raise NotHotpluggable
        elif name == "tablet":
            self._need("usb")
        elif name == "vcpus":
            self._need("cpu")
        elif name == "memory":
            self._need("memory")
        elif name == "balloon":
            if guest.conf.get("balloon") == 0:
                raise NotHotpluggable
        elif _is(name, "usb"):
            self._need_usb()
        elif _is(name, "net"):
            self._need("network")
            self._unplug(name)
        elif is_drive(name):
            self._remove_drive(name)
        else:
            raise NotHotpluggable

    def _remove_drive(self, name: str) -> None:
        self._need("disk")
        if name.startswith(("efidisk", "ide", "sata", "tpmstate")):
            raise NotHotpluggable
        self._unplug(name)
        drive = find_drive(name, self._guest.conf.get(name, ""))
        if drive is not None:
            detach(self._call, self._guest, drive, force=bool(self._guest.deletes.get(name)))

    def _need(self, feature: str) -> None:
        if feature not in self._features:
            raise NotHotpluggable

    def _need_usb(self) -> None:
        ostype = str(self._guest.conf.get("ostype", ""))
        if "usb" not in self._features or ostype not in ("l26", "win8", "win10", "win11"):
            raise NotHotpluggable

    def _unplug(self, name: str) -> None:
        if name in files.boot_drives(self._guest.conf):
            raise die(f"can't unplug bootdisk '{name}'")
        if self._guest.special.get(f"unattached:{name}"):
            tail = " - still busy in guest?" if self._call.major >= 9 else ""
            raise die(f"error on hot-unplugging device '{name}'{tail}")

    # ------------------------------------------------------------------ set

    def _change(self, name: str, value: Value) -> None:
        guest = self._guest
        if name in ("cpuunits", "cpulimit"):
            return
        if name == "hotplug":
            self._change_hotplug(str(value))
        elif name == "tablet":
            self._need("usb")
        elif name == "vcpus":
            self._need("cpu")
            self._change_vcpus(int(value))
        elif name == "memory":
            self._need("memory")
            self._change_memory(value)
        elif name == "balloon":
            if (guest.conf.get("balloon") == 0) != (value == 0):
                raise NotHotpluggable
        elif name == "agent":
            self._change_agent(str(value))
        elif _is(name, "usb"):
            self._need_usb()
        elif _is(name, "net"):
            self._change_net(name, str(value))
        elif is_drive(name):
            self._change_drive(name, str(value))
        else:
            raise NotHotpluggable

    def _change_hotplug(self, value: str) -> None:
        new = formats.hotplug_features(value)
        if (new ^ self._features) & {"cpu", "memory"} or new & {"cpu", "memory"}:
            raise NotHotpluggable

    def _change_vcpus(self, count: int) -> None:
        conf = self._guest.conf
        top = int(conf.get("sockets") or 1) * int(conf.get("cores") or 1)
        if count > top:
            raise die("you can't add more vcpus than maxcpus")

    def _change_memory(self, value: Value) -> None:
        new = vm.memory_mib({"memory": value})
        if new < 1024:
            perl = "at /usr/share/perl5/PVE/QemuServer/Memory.pm line 236."
            raise die(f"memory can't be lower than 1024 MB {perl}")

    def _change_agent(self, value: str) -> None:
        if not self._guest.conf.get("agent"):
            raise NotHotpluggable
        old, new = _agent(self._guest.conf["agent"]), _agent(value)
        if old != new:
            raise NotHotpluggable

    def _change_net(self, name: str, value: str) -> None:
        new = devices.read(devices.NET, value)
        if name in self._guest.conf:
            old = devices.read(devices.NET, self._guest.conf[name])
            same = all(old.get(k) == new.get(k) for k in ("model", "macaddr", "queues", "mtu"))
            if same and "bridge" in old and "bridge" in new:
                if any(old.get(k) != new.get(k) for k in ("bridge", "tag", "trunks", "firewall")):
                    self._move_to_bridge(new["bridge"])
                return
            self._need("network")
            self._unplug(name)
        self._need("network")
        self._bridge(new)
        check_mtu(self._call, name, new)

    def _move_to_bridge(self, name: str) -> None:
        if not has_bridge(self._call, name):
            raise die(f"bridge '{name}' is neither a linux nor an OVS bridge!")

    def _bridge(self, net: dict[str, str]) -> None:
        name = net.get("bridge")
        if name and not has_bridge(self._call, name):
            raise die(
                f"VM {self._guest.vmid} qmp command 'netdev_add' failed - network script"
                " /usr/libexec/qemu-server/pve-bridge-hotplug failed with status 6400"
            )

    def _change_drive(self, name: str, value: str) -> None:
        guest, store = self._guest, files.volume_store(self._call)
        new = find_drive(name, value)
        if new is None or name in ("efidisk0", "tpmstate0"):
            raise NotHotpluggable
        old = find_drive(name, guest.conf.get(name, "")) if name in guest.conf else None
        if old is None:
            self._need("disk")
            if name.startswith(("ide", "sata")):
                raise NotHotpluggable
            self._plug(new)
            return
        if old.options.get("media", "disk") != new.options.get("media", "disk"):
            raise die("unable to change media type")
        if old.is_cdrom_media:
            if new.file == "none" and old.is_cloudinit:
                files.register_unused(store, guest, old)
            return
        self._swap(name, old, new)

    def _swap(self, name: str, old: Drive, new: Drive) -> None:
        if old.file == new.file:
            if any(old.options.get(k) != new.options.get(k) for k in _FIXED_DRIVE):
                raise NotHotpluggable
            return
        self._need("disk")
        self._unplug(name)
        files.register_unused(files.volume_store(self._call), self._guest, old)
        self._plug(new)

    def _plug(self, drive: Drive) -> None:
        """Attach a disk; as in PVE, a failure of QEMU to open the file is ignored."""
        if open_volumes.is_locked(self._call, self._guest, drive):
            self._guest.special[f"unattached:{drive.slot}"] = 1
        else:
            self._guest.special.pop(f"unattached:{drive.slot}", None)

    # ------------------------------------------------------------------ cloud-init

    def _record(self, name: str, old: Value | None, new: Value | None) -> None:
        """Keep the value that the cloud-init drive still has."""
        if name not in _CLOUDINIT and not _is(name, "ipconfig") and not _is(name, "net"):
            return
        special = self._guest.special
        added = set(formats.split_list(str(special.pop("added", ""))))
        known = special.get(name)
        if new is not None and known is not None:
            if new == known:
                del special[name]
                added.discard(name)
        elif new is not None and name not in added:
            if old is None:
                added.add(name)
            else:
                special[name] = old
        elif new is None and old is not None and known is None:
            if name in added:
                added.discard(name)
            else:
                special[name] = old
        if added:
            special["added"] = ",".join(sorted(added))


def _agent(text: Value) -> dict[str, str]:
    """The options of an enabled agent that need a restart."""
    values = devices.read(devices.AGENT_9, text)
    if values.get("enabled") != "1":
        return {}
    return {k: v for k, v in values.items() if k != "fstrim_cloned_disks"}


def _is(name: str, family: str) -> bool:
    return name.startswith(family) and name[len(family) :].isdigit()
