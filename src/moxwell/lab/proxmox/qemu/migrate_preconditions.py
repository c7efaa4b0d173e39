"""GET migrate: what a migration of a VM would need, and where it is allowed."""

from moxwell.lab.proxmox.config_schema import devices
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.mappings import node_maps
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import vmstate
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, Row, SimGuest

_FORMS = {"usb": devices.USB, "hostpci": devices.HOSTPCI, "virtiofs": devices.VIRTIOFS}


def local_resources(call: PveCall, guest: SimGuest) -> tuple[list[str], dict[str, Row]]:
    """Local devices that prevent a migration, and mapped devices."""
    conf, pci = guest.conf, call.region.mappings.get("pci", {})
    local = vmstate.blockers(conf) if guest.running else []
    local += ["ivshmem"] if "ivshmem" in conf else []
    mapped: dict[str, Row] = {}
    for key, value in conf.items():
        family = key.rstrip("0123456789")
        if family not in ("usb", "hostpci", "serial", "parallel", "virtiofs"):
            continue
        values = devices.read(_FORMS[family], value) if family in _FORMS else {}
        if values.get("host", "").lower() == "spice" or (family == "serial" and value == "socket"):
            continue
        name = values.get("mapping") or values.get("dirid")
        if name is not None:
            mapped[key] = {"name": name}
        if name is not None and family == "hostpci":
            if pci.get(name, {}).get("live-migration-capable"):
                mapped[key]["live-migration"] = 1
                continue
            if not guest.running:
                continue
        local.append(key)
    return local, mapped


def missing_mappings(call: PveCall, mapped: dict[str, Row], node: str) -> list[str]:
    """The mapped devices that a node does not have."""
    return [
        key
        for key, row in mapped.items()
        if not node_maps(call.region, _mapping_kind(key), row["name"], node)
    ]


def _mapping_kind(option: str) -> str:
    return {"usb": "usb", "virtiofs": "dir"}.get(option.rstrip("0123456789"), "pci")


def local_disks(call: PveCall, guest: SimGuest) -> list[Row]:
    """The local volumes of the VM."""
    rows: dict[str, Row] = {}
    found = [(d, False) for d in files.drives(guest.conf)]
    found += [(d, True) for d in files.unused(guest.conf)]
    for drive, is_unused in found:
        storage = call.region.storages.get(drive.storage or "")
        if storage is None or storage.shared or drive.options.get("shared") == "1":
            continue
        row: Row = {
            "volid": drive.file,
            "cdrom": int(drive.is_cdrom_media),
            "replicate": int(drive.options.get("replicate", "1")),
            "shared": 0,
            "is_unused": int(is_unused),
            "is_attached": int(not is_unused),
            "is_vmstate": 0,
            "is_tpmstate": int(drive.slot == "tpmstate0"),
        }
        if drive.size:
            row["size"] = drive.size
        if not is_unused:
            row["drivename"] = drive.slot
        rows[drive.file] = row
    return list(rows.values())


def unavailable_storages(call: PveCall, conf: Conf, node: str) -> list[str]:
    """The storages of a configuration that a node does not have."""
    found = set()
    for drive in files.drives(conf):
        storage = call.region.storages.get(drive.storage or "")
        if storage is not None and (
            storage.options.get("disable") or not storage.is_available_on(node)
        ):
            found.add(storage.name)
    return sorted(found)


def precondition(call: PveCall) -> Row:
    """GET migrate: allowed nodes, and local disks and resources."""
    guest = call.get_guest(call.params["vmid"])
    files.check_lock(guest)
    local, mapped = local_resources(call, guest)
    allowed: list[str] = []
    refused: dict[str, Row] = {}
    for node in call.region.hosts:
        if node == call.node:
            continue
        storages = unavailable_storages(call, guest.conf, node)
        resources = missing_mappings(call, mapped, node)
        refused[node] = {"unavailable_storages": storages} if storages else {}
        refused[node] |= {"unavailable-resources": resources} if resources else {}
        if not refused[node]:
            allowed.append(node)
    newer: Row = {"has-dbus-vmstate": 1} if call.major >= 9 else {}
    if call.major >= 9 and ha_manager.find_managed(call.region, guest) is not None:
        newer["dependent-ha-resources"] = []
    return newer | {
        "running": int(guest.running),
        "allowed_nodes": allowed,
        "not_allowed_nodes": refused,
        "local_disks": local_disks(call, guest),
        "local_resources": local,
        "mapped-resources": sorted(mapped),
        "mapped-resource-info": mapped,
    }
