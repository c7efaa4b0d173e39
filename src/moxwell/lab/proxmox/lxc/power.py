"""
Containers: status, start, stop, shutdown, reboot, interfaces.
"""

import ipaddress

from moxwell.lab.proxmox.config_schema import ct
from moxwell.lab.proxmox.config_schema.drives import parse_size
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import bad_params, die, param_error
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.lxc import conf as files
from moxwell.lab.proxmox.qemu import conf as vm_files
from moxwell.lab.proxmox.qemu import start as vm_start
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.state import Guest, Row
from moxwell.lab.proxmox.tasks import Work
from moxwell.lab.proxmox.volumes.volume_store import Stock

SUBDIRS = words(
    "config pending status vncproxy termproxy vncwebsocket spiceproxy migrate clone rrd rrddata"
    " firewall snapshot resize interfaces"
)


def list_cts(call: Call) -> list[Row]:
    """GET lxc."""
    return [
        row(call, guest)
        for guest in list(call.region.guests.values())
        if guest.kind == "lxc"
        and guest.node == call.node
        and call.may(f"/vms/{guest.vmid}", "VM.Audit")
    ]


def row(call: Call, guest: Guest) -> Row:
    conf = guest.conf
    root = files.mount("rootfs", conf.get("rootfs", ""))
    found: Row = {
        "vmid": guest.vmid,
        "type": "lxc",
        "status": "running" if guest.running else "stopped",
        "name": str(conf.get("hostname") or f"CT{guest.vmid}"),
        "cpus": int(float(conf.get("cores") or conf.get("cpulimit") or 0)) or call.host.cpus,
        "maxmem": int(conf.get("memory") or 512) << 20,
        "maxswap": int(conf.get("swap") or 0) << 20,
        "maxdisk": parse_size(root.get("size", "")) or 4 << 30,
        **dict.fromkeys(words("disk mem swap cpu uptime netin netout diskread diskwrite"), 0),
    }
    for key in ("tags", "lock"):
        if conf.get(key):
            found[key] = conf[key]
    if guest.template:
        found["template"] = 1
    if guest.running:
        found |= {"pid": guest.pid, "uptime": max(int(call.now() - guest.started), 0)}
        found["mem"] = found["maxmem"] // 8
    return found


def current(call: Call) -> Row:
    """GET status/current."""
    guest = call.get_guest(call.params["vmid"], "lxc")
    return row(call, guest) | {"ha": ha_manager.status_of(call.region, guest)}


def index(call: Call) -> list[Row]:
    return [{"subdir": name} for name in SUBDIRS]


def commands(call: Call) -> list[Row]:
    names = ("current", "start", "stop", "shutdown", "reboot", "migrate")
    return [{"subdir": name} for name in names]


def _managed(call: Call, guest: Guest | None) -> bool:
    return (
        guest is not None and not call.via_ha and ha_manager.managed(call.region, guest) is not None
    )


def power_on(call: Call) -> str:
    """POST start."""
    vmid = call.params["vmid"]
    if call.get("skiplock") and not call.is_root:
        raise bad_params(skiplock="Only root may use this option.")
    guest = call.find_guest(vmid, "lxc")
    if guest is not None and guest.running:
        raise die(f"CT {vmid} already running")
    if guest is not None and _managed(call, guest):
        return ha_manager.delegate(call, guest, "start")

    async def worker(work: Work) -> None:
        async with call.hold("lxc", vmid):
            await _start(call, call.get_guest(vmid, "lxc"), work)

    return call.spawn("vzstart", vmid, worker)


async def _start(call: Call, guest: Guest, work: Work) -> None:
    if guest.template:
        raise die("you can't start a CT if it's a template")
    if not call.get("skiplock"):
        vm_files.check_lock(guest)
    place = Stock(call.desk, call.node)
    for key in [k for k in guest.conf if files.is_mount(k)]:
        values = files.mount(key, guest.conf[key])
        if files.is_volume(values) and place.find(values["volume"]) is None:
            raise die(f"volume '{values['volume']}' does not exist")
    for key in sorted(k for k in guest.conf if k.startswith("net") and k[3:].isdigit()):
        bridge = ct.read(ct.NET, guest.conf[key]).get("bridge")
        vnets = call.region.sdn.running.get("vnets", {})
        if bridge and bridge not in call.host.bridges and bridge not in vnets:
            raise die(f"bridge '{bridge}' does not exist")
    await work.sleep(call.region.pace.start)
    vm_start.started(call.desk, guest)


def start_now(call: Call, guest: Guest) -> None:
    """The start that a create request asked for."""

    async def worker(work: Work) -> None:
        async with call.hold("lxc", guest.vmid):
            await _start(call, guest, work)

    call.spawn("vzstart", guest.vmid, worker)


def _running(call: Call, word: str = "CT") -> Guest | None:
    vmid = call.params["vmid"]
    guest = call.find_guest(vmid, "lxc")
    if guest is None or not guest.running:
        raise die(f"{word} {vmid} not running")
    return guest


def power_off(call: Call) -> str:
    """POST stop."""
    if call.get("skiplock") and not call.is_root:
        raise bad_params(skiplock="Only root may use this option.")
    guest = _running(call)
    if guest is not None and _managed(call, guest):
        if call.get("overrule-shutdown"):
            raise param_error({"overrule-shutdown": "Not applicable for HA resources."})
        return ha_manager.delegate(call, guest, "stop")
    return _ending(call, "vzstop", gentle=False)


def shut_down(call: Call) -> str:
    """POST shutdown; a container without an inside obeys at once."""
    guest = _running(call)
    if guest is not None and _managed(call, guest):
        return ha_manager.delegate(call, guest, "shutdown")
    return _ending(call, "vzshutdown", gentle=True)


def reboot(call: Call) -> str:
    """POST reboot."""
    _running(call, "VM")
    return _ending(call, "vzreboot", gentle=True, again=True)


def _ending(call: Call, kind: str, *, gentle: bool, again: bool = False) -> str:
    vmid = call.params["vmid"]

    async def worker(work: Work) -> None:
        async with call.hold("lxc", vmid):
            guest = call.get_guest(vmid, "lxc")
            if not call.get("skiplock"):
                vm_files.check_lock(guest)
            if gentle:
                await work.sleep(call.region.pace.shutdown)
            await vm_start.ended(call.desk, guest)
            _settle(call, guest)
            if again:
                await _start(call, guest, work)

    return call.spawn(kind, vmid, worker)


def _settle(call: Call, guest: Guest) -> None:
    """Pending changes become real when a container has stopped."""
    for name in list(guest.deletes):
        guest.conf.pop(name, None)
    guest.deletes.clear()
    for name, value in list(guest.pending.items()):
        made: str | int | float = value
        if name.startswith("mp") and name[2:].isdigit():
            made = files.make_volume(call, guest.vmid, name, str(value))[0]
        guest.conf[name] = made
    guest.pending.clear()
    vm_files.write(call.desk, guest)


def interfaces(call: Call) -> list[Row] | None:
    """GET interfaces: null unless the container runs."""
    guest = call.find_guest(call.params["vmid"], "lxc")
    if guest is None or not guest.running:
        return None
    rows: list[Row] = [
        {
            "name": "lo",
            "hwaddr": "00:00:00:00:00:00",
            "inet": "127.0.0.1/8",
            "inet6": "::1/128",
        }
    ]
    for key in sorted(k for k in guest.conf if k.startswith("net") and k[3:].isdigit()):
        net = ct.read(ct.NET, guest.conf[key])
        found: Row = {"name": net.get("name", "eth0"), "hwaddr": net.get("hwaddr", "").lower()}
        for option, label in (("ip", "inet"), ("ip6", "inet6")):
            if "/" in net.get(option, ""):
                found[label] = str(ipaddress.ip_interface(net[option]))
        rows.append(found)
    return rows


def get_config(call: Call) -> Row:
    """GET config."""
    guest = call.get_guest(call.params["vmid"], "lxc")
    conf = guest.conf if call.get("current") else vm_files.merged(guest)
    return files.shown(guest, conf)


def get_pending(call: Call) -> list[Row]:
    """GET pending."""
    return files.pending_rows(call.get_guest(call.params["vmid"], "lxc"))
