"""
Checks the privileges that a configuration update requires: per option, drive, bridge and storage.
"""

import re
from collections.abc import Iterable, Mapping

from moxwell.lab.proxmox.config_schema import devices, vm
from moxwell.lab.proxmox.config_schema.drives import (
    Drive,
    has_compatible_options,
    is_drive,
    parse_drive,
)
from moxwell.lab.proxmox.errors import bad_params, die, param_error
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, Value
from moxwell.lab.proxmox.volumes import access

CONFIG_PRIVILEGES = (
    "VM.Config.Disk",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.HWType",
    "VM.Config.Options",
    "VM.Config.Cloudinit",
)
_BY_OPTION = {
    **dict.fromkeys(
        ["cores", "cpu", "runningcpu", "cpulimit", "cpuunits", "numa", "smp", "sockets", "vcpus"],
        "VM.Config.CPU",
    ),
    **dict.fromkeys(["memory", "balloon", "shares", "allow-ksm"], "VM.Config.Memory"),
    **dict.fromkeys(
        [
            "acpi",
            "hotplug",
            "kvm",
            "machine",
            "runningmachine",
            "scsihw",
            "smbios1",
            "tablet",
            "vga",
            "watchdog",
            "audio0",
            "rng0",
        ],
        "VM.Config.HWType",
    ),
    **dict.fromkeys(
        [
            "agent",
            "autostart",
            "bios",
            "description",
            "keyboard",
            "localtime",
            "migrate_downtime",
            "migrate_speed",
            "name",
            "onboot",
            "ostype",
            "protection",
            "reboot",
            "startdate",
            "startup",
            "tdf",
            "template",
        ],
        "VM.Config.Options",
    ),
    "freeze": "VM.PowerMgmt",
    **dict.fromkeys(["boot", "bootdisk", "vmstatestorage"], "VM.Config.Disk"),
}
_ELSEWHERE = re.compile(r"(?:unused|serial|usb|hostpci|virtiofs)\d+")


def check_guest(
    call: PveCall, vmid: int, pool: str | None, *privs: str, any_of: bool = False
) -> None:
    """Check privileges on a guest, or on the pool that it is created in."""
    if pool and call.has_privileges(f"/pool/{pool}", *privs, any_of=any_of):
        return
    if any_of:
        call.check_vm(vmid, *privs, any_of=True)
        return
    for priv in privs:
        call.check_vm(vmid, priv)


def check_options(call: PveCall, vmid: int, names: Iterable[str], pool: str | None = None) -> None:
    """Check the privileges for setting or deleting these options."""
    if call.is_root:
        return
    for name in names:
        if is_drive(name) or name in ("cdrom", "tags") or _ELSEWHERE.fullmatch(name):
            continue
        if re.fullmatch(r"numa\d+", name):
            check_guest(call, vmid, pool, "VM.Config.CPU")
        elif name in _BY_OPTION:
            check_guest(call, vmid, pool, _BY_OPTION[name])
            if name == "startup":
                call.check("/", "Sys.Modify")
        elif re.fullmatch(r"net\d+|running-nets-host-mtu", name):
            check_guest(call, vmid, pool, "VM.Config.Network")
        elif name in vm.CLOUDINIT or re.fullmatch(r"ipconfig\d+", name):
            check_guest(call, vmid, pool, "VM.Config.Cloudinit", "VM.Config.Network", any_of=True)
        elif name == "vmstate":
            check_guest(call, vmid, pool, "VM.Config.Disk", "VM.PowerMgmt")
        else:
            raise die(f"only root can set '{name}' config")


def check_hardware(
    call: PveCall, vmid: int, name: str, value: Value, *, pool: str | None = None, verb: str = "set"
) -> None:
    """Check options whose privileges depend on the value: serial, usb, hostpci, rng0, virtiofs."""
    if call.is_root:
        return
    text = str(value)
    if re.fullmatch(r"serial\d+", name):
        if text != "socket":
            raise die(f"only root can {verb} '{name}' config for real devices")
        check_guest(call, vmid, pool, "VM.Config.HWType")
    elif re.fullmatch(r"usb\d+", name):
        check_guest(call, vmid, pool, "VM.Config.HWType")
        _check_mapped(call, "usb", name, devices.read(devices.USB, text))
    elif re.fullmatch(r"hostpci\d+", name):
        _check_pci(call, vmid, name, text, pool)
    elif name == "rng0":
        check_guest(call, vmid, pool, "VM.Config.HWType")
        if devices.read(devices.RNG, text).get("source") == "/dev/hwrng":
            call.check("/mapping/hwrng", "Mapping.Use")
    elif re.fullmatch(r"virtiofs\d+", name):
        check_guest(call, vmid, pool, "VM.Config.Disk")
        folder = devices.read(devices.VIRTIOFS, text).get("dirid", "")
        call.check(f"/mapping/dir/{folder}", "Mapping.Use")


def _check_mapped(call: PveCall, kind: str, name: str, values: Mapping[str, str]) -> None:
    if "host" in values:
        if values["host"].lower() != "spice":
            raise die(f"only root can set '{name}' config for real devices")
    elif "mapping" in values:
        call.check(f"/mapping/{kind}/{values['mapping']}", "Mapping.Use")
    else:
        raise die("either 'host' or 'mapping' must be set.")


def _check_mapping(call: PveCall, name: str, values: Mapping[str, str]) -> None:
    if "host" in values:
        raise die(f"only root can set '{name}' config for non-mapped devices")
    if "mapping" not in values:
        raise die("either 'host' or 'mapping' must be set.")
    call.check(f"/mapping/pci/{values['mapping']}", "Mapping.Use")


def _check_pci(call: PveCall, vmid: int, name: str, text: str, pool: str | None) -> None:
    values = devices.read(devices.HOSTPCI, text)
    _check_mapping(call, name, values)
    check_guest(call, vmid, pool, "VM.Config.HWType")
    if "romfile" in values:
        raise param_error({name: "only root@pam can set 'romfile' option"})


def check_mappings(call: PveCall, conf: Conf) -> None:
    """Check the devices that a clone or a restore takes over."""
    if call.is_root:
        return
    for name in sorted(conf):
        text = str(conf[name])
        if re.fullmatch(r"usb\d+", name):
            _check_mapped(call, "usb", name, devices.read(devices.USB, text))
        elif re.fullmatch(r"hostpci\d+", name):
            _check_mapping(call, name, devices.read(devices.HOSTPCI, text))
        elif re.fullmatch(r"rng\d+", name):
            if devices.read(devices.RNG, text).get("source") == "/dev/hwrng":
                call.check("/mapping/hwrng", "Mapping.Use")
        elif re.fullmatch(r"virtiofs\d", name):
            folder = devices.read(devices.VIRTIOFS, text).get("dirid", "")
            call.check(f"/mapping/dir/{folder}", "Mapping.Use")


def check_drive(call: PveCall, vmid: int, drive: Drive) -> None:
    """Check the privilege for changing a drive, by its content."""
    if drive.is_cloudinit:
        check_guest(call, vmid, None, "VM.Config.Cloudinit", "VM.Config.CDROM")
    elif drive.is_cdrom:
        check_guest(call, vmid, None, "VM.Config.CDROM")
    else:
        check_guest(call, vmid, None, "VM.Config.Disk")


def check_bridges(call: PveCall, conf: Conf) -> None:
    """Check ``SDN.Use`` on the bridges (or their VLANs) of the network devices."""
    if call.is_root:
        return
    for _, values in files.nets(conf):
        check_bridge(call, values.get("bridge"), values.get("tag"), values.get("trunks"))


def check_bridge(call: PveCall, bridge: str | None, tag: str | None, trunks: str | None) -> None:
    if bridge is None:
        return
    vnet = call.region.sdn.running.get("vnets", {}).get(bridge) or call.region.sdn.vnets.get(bridge)
    zone = vnet["zone"] if vnet else "localnetwork"
    where = f"/sdn/zones/{zone}/{bridge}"
    if tag:
        call.check(f"{where}/{tag}", "SDN.Use")
    elif trunks:
        for part in trunks.split(";"):
            call.check(f"{where}/{part.partition('-')[0]}", "SDN.Use")
    else:
        call.check(where, "SDN.Use")


def check_storage(
    call: PveCall, vmid: int, settings: Mapping[str, Value], default: str | None = None
) -> None:
    """Check storage privileges and content types of all drives to be set."""
    for slot in sorted(k for k in settings if is_drive(k)):
        drive = parse_drive(slot, str(settings[slot]), major=9)
        if has_compatible_options(drive):
            _check_new_drive(call, vmid, drive, default)
    store = files.volume_store(call)
    for slot in sorted(k for k in settings if k.startswith("unused")):
        access.check_volume(call, store, str(settings[slot]), vmid=vmid, kind="images")
    state = settings.get("vmstatestorage")
    if state is not None:
        call.check(f"/storage/{state}", "Datastore.AllocateSpace")


def _check_new_drive(call: PveCall, vmid: int, drive: Drive, default: str | None) -> None:
    store = files.volume_store(call)
    wanted = drive.wanted
    if drive.file in ("none", "cloudinit") or drive.file.endswith(":cloudinit"):
        pass
    elif drive.is_cdrom_media and drive.file == "cdrom":
        call.check("/", "Sys.Console")
    elif not drive.is_cdrom_media and wanted is not None:
        name = wanted[0] or default
        if not name:
            raise die("no storage ID specified (and no default storage)")
        call.check(f"/storage/{name}", "Datastore.AllocateSpace")
        if "images" not in store.get_storage(name).content:
            raise bad_params(storage=f"storage '{name}' does not support vm images")
    else:
        access.check_volume(call, store, drive.file, vmid=vmid)
        if drive.storage is not None and store.parse(drive.file).kind not in ("images", "iso"):
            raise param_error({drive.slot: "content type needs to be 'images' or 'iso'"})
    source = drive.options.get("import-from")
    if source is not None:
        _check_import(call, vmid, drive.slot, source)


def _check_import(call: PveCall, vmid: int, slot: str, source: str) -> None:
    store = files.volume_store(call)
    owner = None
    if not source.startswith("/"):
        parsed = store.parse(source)
        owner = parsed.vmid
        if parsed.kind not in ("images", "import"):
            text = f"{source} has wrong type '{parsed.kind}' - needs to be 'images' or 'import'"
            raise param_error({slot: text})
    if owner:
        call.check_vm(owner, "VM.Clone")
    else:
        access.check_volume(call, store, source, vmid=vmid)
