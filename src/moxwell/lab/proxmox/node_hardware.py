"""``/nodes/{node}/hardware``, ``disks`` and ``scan``: the devices that the world file declares."""

from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Handler
from moxwell.lab.proxmox.route_permissions import anyone, by_schema
from moxwell.lab.proxmox.state import Row

_HIDDEN_CLASSES = ("0x05", "0x06", "0x0b")  # memory controllers, bridges, processors


def list_pci(call: PveCall) -> list[Row]:
    """The PCI devices; by default without bridges and other parts of the chipset."""
    hidden = call.get("pci-class-blacklist")
    prefixes = tuple(f"0x{p}" for p in hidden.split(",")) if hidden else _HIDDEN_CLASSES
    rows = []
    for ident, device in call.host.pci.items():
        if not str(device["class"]).startswith(prefixes):
            row = {"id": ident, **device}
            brief = ("id", "vendor", "device", "class", "iommugroup", "mdev")
            short = {k: row[k] for k in brief if k in row}
            rows.append(row if call.get("verbose", 1) else short)
    return rows


def list_mdev(call: PveCall) -> list[Row]:
    return []


def list_usb(call: PveCall) -> list[Row]:
    return list(call.host.usb)


def list_disks(call: PveCall) -> list[Row]:
    """The system disk of the node."""
    return [
        {
            "devpath": "/dev/sda",
            "size": call.host.root,
            "gpt": 1,
            "model": "Virtual_Disk",
            "serial": "unknown",
            "vendor": "unknown",
            "wwn": "unknown",
            "health": "UNKNOWN",
            "type": "ssd",
            "used": "partitions",
            "rpm": 0,
            "osdid": -1,
            "osdid-list": None,
            "wearout": "N/A",
            "by_id_link": "/dev/disk/by-id/virtual-disk-0",
        }
    ]


def _group_row(call: PveCall, name: str) -> Row:
    storage = next(s for s in call.region.storages.values() if s.options.get("vgname") == name)
    free = max(storage.capacity - storage.used(call.node), 0)
    return {"name": name, "size": storage.capacity, "free": free, "lvcount": 1, "leaf": 0}


def _groups(call: PveCall, *types: str) -> list[str]:
    found = (
        str(s.options["vgname"])
        for s in call.region.storages.values()
        if s.type in types and s.is_available_on(call.node) and "vgname" in s.options
    )
    return sorted(set(found))


def lvm_tree(call: PveCall) -> Row:
    """The volume groups of the LVM storages."""
    children = [
        {**_group_row(call, name), "children": []} for name in _groups(call, "lvm", "lvmthin")
    ]
    return {"leaf": 0, "children": children}


def thin_pools(call: PveCall) -> list[Row]:
    rows = []
    for storage in call.region.storages.values():
        if storage.type == "lvmthin" and storage.is_available_on(call.node):
            used = storage.used(call.node)
            row = {"lv": storage.options["thinpool"], "vg": storage.options["vgname"]}
            size = {"lv_size": storage.capacity, "used": used}
            rows.append({**row, **size, "metadata_size": 1 << 27, "metadata_used": 1 << 20})
    return rows


def zfs_pools(call: PveCall) -> list[Row]:
    rows = []
    for storage in call.region.storages.values():
        if storage.type == "zfspool" and storage.is_available_on(call.node):
            used = storage.used(call.node)
            row: Row = {"name": str(storage.options["pool"]).partition("/")[0], "health": "ONLINE"}
            size = {"size": storage.capacity, "alloc": used, "free": storage.capacity - used}
            rows.append({**row, **size, "frag": 0, "dedup": 1})
    return rows


def scan_lvm(call: PveCall) -> list[Row]:
    return [{"vg": name} for name in _groups(call, "lvm", "lvmthin")]


def scan_thin(call: PveCall) -> list[Row]:
    return [{"lv": row["lv"]} for row in thin_pools(call) if row["vg"] == call.params["vg"]]


def scan_zfs(call: PveCall) -> list[Row]:
    return [{"pool": row["name"]} for row in zfs_pools(call)]


def scan_server(call: PveCall) -> list[Row]:
    """NFS, CIFS and iSCSI servers are outside the simulated network."""
    server = call.params.get("server") or call.params.get("portal")
    raise die(f"unable to scan '{server}': Connection timed out")


def nothing(call: PveCall) -> list[Row]:
    return []


def _names(key: str, *names: str) -> Handler:
    return lambda call: [{key: name} for name in names]


_N = "/nodes/{node}"
ROUTES = (
    ApiRoute("GET", f"{_N}/hardware", _names("type", "pci", "usb"), permission=anyone),
    ApiRoute("GET", f"{_N}/hardware/pci", list_pci, permission=by_schema),
    ApiRoute("GET", f"{_N}/hardware/pci/{{id}}", _names("method", "mdev"), permission=by_schema),
    ApiRoute("GET", f"{_N}/hardware/pci/{{id}}/mdev", list_mdev, permission=by_schema),
    ApiRoute("GET", f"{_N}/hardware/usb", list_usb, permission=by_schema),
    ApiRoute("GET", f"{_N}/disks/list", list_disks, permission=by_schema),
    ApiRoute("GET", f"{_N}/disks/lvm", lvm_tree, permission=by_schema),
    ApiRoute("GET", f"{_N}/disks/lvmthin", thin_pools, permission=by_schema),
    ApiRoute("GET", f"{_N}/disks/zfs", zfs_pools, permission=by_schema),
    ApiRoute("GET", f"{_N}/disks/directory", nothing, permission=by_schema),
    ApiRoute(
        "GET",
        f"{_N}/scan",
        _names("method", "cifs", "iscsi", "lvm", "nfs", "pbs", "zfs"),
        permission=by_schema,
    ),
    ApiRoute("GET", f"{_N}/scan/lvm", scan_lvm, permission=by_schema),
    ApiRoute("GET", f"{_N}/scan/lvmthin", scan_thin, permission=by_schema),
    ApiRoute("GET", f"{_N}/scan/zfs", scan_zfs, permission=by_schema),
    *(
        ApiRoute("GET", f"{_N}/scan/{kind}", scan_server, permission=by_schema)
        for kind in ("nfs", "cifs", "iscsi", "pbs")
    ),
)
