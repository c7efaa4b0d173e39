"""VM endpoints that read: lists, current status, configuration, pending changes, features."""

from moxwell.lab.proxmox.config_schema import devices, vm
from moxwell.lab.proxmox.config_schema.drives import is_drive, parse_size
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import param_error
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import snapshot, start
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, Row, SimGuest

_BOTH = "cannot use 'snapshot' parameter with 'current'"
SUBDIRS = words(
    "config cloudinit pending status unlink vncproxy termproxy migrate resize move rrd"
    " rrddata monitor agent snapshot spiceproxy sendkey firewall mtunnel remote_migrate"
)


def list_vms(call: PveCall) -> list[Row]:
    """GET qemu: the VMs of a node that the caller may audit."""
    full = bool(call.get("full"))
    return [
        row(call, guest, full=full)
        for guest in list(call.region.guests.values())
        if guest.kind == "qemu"
        and guest.node == call.node
        and call.has_privileges(f"/vms/{guest.vmid}", "VM.Audit")
    ]


def row(call: PveCall, guest: SimGuest, *, full: bool) -> Row:
    """The status of one VM."""
    conf = guest.conf
    found: Row = {
        "vmid": guest.vmid,
        "status": "running" if guest.running else "stopped",
        "name": str(conf.get("name") or f"VM {guest.vmid}"),
        "cpus": _cpus(call, conf),
        "maxmem": vm.memory_mib(conf) << 20,
        "maxdisk": _boot_size(conf),
        "disk": 0,
        "uptime": 0,
        "cpu": 0,
        "mem": 0,
        "netin": 0,
        "netout": 0,
    }
    if call.major >= 9:
        found["memhost"] = 0
    if guest.running:
        found |= _live(call, guest, found["maxmem"])
    for key in ("lock", "tags"):
        if conf.get(key):
            found[key] = conf[key]
    if conf.get("balloon"):
        found["balloon_min"] = int(conf["balloon"]) << 20
        found["shares"] = int(conf.get("shares", 1000))
    if guest.template:
        found["template"] = 1
    if any(key.startswith("serial") for key in conf):
        found["serial"] = 1
    if full:
        found["qmpstatus"] = (guest.running and guest.status_word) or found["status"]
    return found


def _live(call: PveCall, guest: SimGuest, maxmem: int) -> Row:
    found: Row = {
        "pid": guest.pid,
        "uptime": max(int(call.now() - guest.started), 0),
        "cpu": guest.cpu_share,
        "mem": int(maxmem * guest.memory_share),
        "diskread": 0,
        "diskwrite": 0,
    }
    if call.major >= 9:
        found["memhost"] = int(maxmem * guest.memory_share)
        for feature_name in ("cpu", "io", "memory"):
            found |= {f"pressure{feature_name}{kind}": 0 for kind in ("some", "full")}
    return found


def _cpus(call: PveCall, conf: Conf) -> int:
    if conf.get("vcpus"):
        return int(conf["vcpus"])
    count = int(conf.get("sockets") or 1) * int(conf.get("cores") or 1)
    return min(count, call.host.cpus)


def _boot_size(conf: Conf) -> int:
    """The size of the first boot disk, without parsing the drive: lists are long."""
    boot = str(conf.get("boot", ""))
    order = boot[6:].split(";") if boot.startswith("order=") else files.boot_drives(conf)
    for slot in order:
        text = str(conf.get(slot, ""))
        if not is_drive(slot) or not text or "media=cdrom" in text:
            continue
        return parse_size(text.partition(",size=")[2].partition(",")[0]) or 0
    return 0


def current(call: PveCall) -> Row:
    """GET status/current."""
    guest = call.get_guest(call.params["vmid"])
    found = row(call, guest, full=True)
    found["ha"] = ha_manager.ha_status(call.region, guest)
    if guest.conf.get("vga"):
        vga = devices.read(devices.VGA, guest.conf["vga"])
        kind = vga.get("type", "std")
        if kind.startswith(("virtio", "qxl")):
            found["spice"] = 1
        found["clipboard"] = vga.get("clipboard")
    if start.agent_enabled(guest):
        found["agent"] = 1
    return found


def index(call: PveCall) -> list[Row]:
    """GET qemu/ID: does not check for existence."""
    return [{"subdir": name} for name in SUBDIRS]


def commands(call: PveCall) -> list[Row]:
    """GET status."""
    names = ("current", "start", "stop", "reset", "shutdown", "suspend", "reboot")
    return [{"subdir": name} for name in names]


def get_config(call: PveCall) -> Row:
    """GET config: with pending changes, with ``current`` without them, or of a snapshot."""
    if call.get("snapshot") and call.get("current"):
        raise param_error({"snapshot": _BOTH, "current": _BOTH})
    guest = call.get_guest(call.params["vmid"])
    name = call.get("snapshot")
    if name:
        row = snapshot.section(guest, name) | {"digest": files.digest(guest)}
        return row | ({"cipassword": files.HIDDEN} if row.get("cipassword") else {})
    return files.config_response(guest, guest.conf if call.get("current") else files.merged(guest))


def get_pending(call: PveCall) -> list[Row]:
    """GET pending."""
    return files.pending_rows(call.get_guest(call.params["vmid"]))


def feature(call: PveCall) -> Row:
    """GET feature: whether the VM can be cloned, copied or snapshotted, and on which nodes."""
    guest = files.get_local_guest(call, call.params["vmid"])
    conf: Conf = guest.conf
    name = call.get("snapname")
    if name:
        conf = snapshot.get(guest, name).conf
    store, feature_name = files.volume_store(call), call.params["feature"]
    found = [d for d in files.drives(conf) if not d.is_cdrom_media and d.storage]
    able = all(store.feature(feature_name, drive.file, name) for drive in found)
    return {"hasFeature": int(able), "nodes": nodes_for(call, conf)}


def nodes_for(call: PveCall, conf: Conf) -> list[str]:
    """The nodes on which all storages of a configuration are available."""
    nodes = set(call.region.hosts)
    for drive in files.drives(conf):
        storage = call.region.storages.get(drive.storage or "")
        if storage is None:
            continue
        if storage.options.get("disable"):
            return []
        if storage.options.get("nodes"):
            nodes &= set(str(storage.options["nodes"]).split(","))
        elif not storage.shared:
            nodes &= {call.node}
    return sorted(nodes)
