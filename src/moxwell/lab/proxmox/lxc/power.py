"""Container endpoints: status, start, stop, shutdown, reboot, interfaces."""

import ipaddress

from moxwell.lab.proxmox.bridges import has_bridge
from moxwell.lab.proxmox.config_schema import ct
from moxwell.lab.proxmox.config_schema.drives import parse_size
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import bad_params, die, param_error
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.lxc import conf as files
from moxwell.lab.proxmox.lxc import update
from moxwell.lab.proxmox.qemu import conf as vm_files
from moxwell.lab.proxmox.qemu import start as vm_start
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Row, SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore

SUBDIRS = words(
    "config pending status vncproxy termproxy vncwebsocket spiceproxy migrate clone rrd rrddata"
    " firewall snapshot resize interfaces"
)


def list_cts(call: PveCall) -> list[Row]:
    """GET lxc."""
    return [
        row(call, guest)
        for guest in list(call.region.guests.values())
        if guest.kind == "lxc"
        and guest.node == call.node
        and call.has_privileges(f"/vms/{guest.vmid}", "VM.Audit")
    ]


def row(call: PveCall, guest: SimGuest) -> Row:
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


def current(call: PveCall) -> Row:
    """GET status/current."""
    guest = call.get_guest(call.params["vmid"], "lxc")
    return row(call, guest) | {"ha": ha_manager.ha_status(call.region, guest)}


def index(call: PveCall) -> list[Row]:
    return [{"subdir": name} for name in SUBDIRS]


def commands(call: PveCall) -> list[Row]:
    names = ("current", "start", "stop", "shutdown", "reboot", "migrate")
    return [{"subdir": name} for name in names]


def _managed(call: PveCall, guest: SimGuest | None) -> bool:
    return (
        guest is not None
        and not call.via_ha
        and ha_manager.find_managed(call.region, guest) is not None
    )


def power_on(call: PveCall) -> str:
    """POST start."""
    vmid = call.params["vmid"]
    if call.get("skiplock") and not call.is_root:
        raise bad_params(skiplock="Only root may use this option.")
    guest = call.find_guest(vmid, "lxc")
    if guest is not None and guest.running:
        raise die(f"CT {vmid} already running")
    if guest is not None and _managed(call, guest):
        return ha_manager.delegate(call, guest, "start")

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("lxc", vmid):
            await _start(call, call.get_guest(vmid, "lxc"), ctx)

    return call.spawn("vzstart", vmid, worker)


async def _start(call: PveCall, guest: SimGuest, ctx: WorkerContext) -> None:
    if guest.template:
        raise die("you can't start a CT if it's a template")
    if not call.get("skiplock") and guest.lock != "mounted":
        vm_files.check_lock(guest)
    mounts = [files.mount(key, guest.conf[key]) for key in guest.conf if files.is_mount(key)]
    if guest.conf.get("unprivileged") and any(values.get("quota") == "1" for values in mounts):
        raise die("Quotas are not supported by unprivileged containers.")
    _apply_pending(call, guest)
    _check_bridges(call, guest)
    store = VolumeStore(call.runtime, call.node)
    for key in [k for k in guest.conf if files.is_mount(k)]:
        values = files.mount(key, guest.conf[key])
        if files.is_volume(values) and store.find(values["volume"]) is None:
            raise die(f"volume '{values['volume']}' does not exist")
    await ctx.sleep(call.region.pace.start)
    vm_start.mark_running(call.runtime, guest)


def _check_bridges(call: PveCall, guest: SimGuest) -> None:
    """The bridges, which PVE reads when it writes the configuration of LXC."""
    for key in sorted(k for k in guest.conf if k.startswith("net") and k[3:].isdigit()):
        bridge = ct.read(ct.NET, guest.conf[key]).get("bridge")
        if bridge and not has_bridge(call, bridge):
            raise die(f"bridge '{bridge}' does not exist")


def start_now(call: PveCall, guest: SimGuest) -> None:
    """Start a container after its creation (``start=1``)."""

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("lxc", guest.vmid):
            await _start(call, guest, ctx)

    call.spawn("vzstart", guest.vmid, worker)


def _running(call: PveCall, guest_label: str = "CT") -> SimGuest | None:
    vmid = call.params["vmid"]
    guest = call.find_guest(vmid, "lxc")
    if guest is None or not guest.running:
        raise die(f"{guest_label} {vmid} not running")
    return guest


def power_off(call: PveCall) -> str:
    """POST stop."""
    if call.get("skiplock") and not call.is_root:
        raise bad_params(skiplock="Only root may use this option.")
    guest = _running(call)
    if guest is not None and _managed(call, guest):
        if call.get("overrule-shutdown"):
            raise param_error({"overrule-shutdown": "Not applicable for HA resources."})
        return ha_manager.delegate(call, guest, "stop")
    return _stop_task(call, "vzstop", graceful=False)


def shut_down(call: PveCall) -> str:
    """POST shutdown; succeeds immediately, as nothing runs in a container."""
    guest = _running(call)
    if guest is not None and _managed(call, guest):
        return ha_manager.delegate(call, guest, "shutdown")
    return _stop_task(call, "vzshutdown", graceful=True)


def suspend(call: PveCall) -> str:
    """POST suspend: fails in its task, as a host without CRIU cannot checkpoint a container."""
    _running(call)
    return _checkpoint(call, "vzsuspend", "-s")


def resume(call: PveCall) -> str:
    """POST resume: fails in its task, as there is no checkpoint."""
    guest = call.find_guest(call.params["vmid"], "lxc")
    if guest is not None and guest.running:
        raise die(f"CT {guest.vmid} already running")
    return _checkpoint(call, "vzresume", "-r --foreground")


def _checkpoint(call: PveCall, kind: str, option: str) -> str:
    vmid = call.params["vmid"]

    async def worker(ctx: WorkerContext) -> None:
        if kind == "vzsuspend":
            vm_files.check_lock(call.get_guest(vmid, "lxc"))
        command = f"lxc-checkpoint -n {vmid} {option} -D /var/lib/vz/dump"
        raise die(f"command '{command}' failed: exit code 1")

    return call.spawn(kind, vmid, worker)


def reboot(call: PveCall) -> str:
    """POST reboot."""
    _running(call, "VM")
    return _stop_task(call, "vzreboot", graceful=True, again=True)


def _stop_task(call: PveCall, kind: str, *, graceful: bool, again: bool = False) -> str:
    vmid = call.params["vmid"]

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("lxc", vmid):
            guest = call.get_guest(vmid, "lxc")
            if not call.get("skiplock"):
                vm_files.check_lock(guest)
            if graceful:
                await ctx.sleep(call.region.pace.shutdown)
            await vm_start.mark_stopped(call.runtime, guest)
            _apply_pending(call, guest)
            if again:
                await _start(call, guest, ctx)

    return call.spawn(kind, vmid, worker)


def _apply_pending(call: PveCall, guest: SimGuest) -> None:
    """Apply pending changes before a start and after a stop; what fails stays pending."""
    if vm_files.is_pending(guest):
        update.ContainerUpdate(call, guest).apply_all()


def interfaces(call: PveCall) -> list[Row] | None:
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


def get_config(call: PveCall) -> Row:
    """GET config."""
    guest = call.get_guest(call.params["vmid"], "lxc")
    conf = guest.conf if call.get("current") else vm_files.merged(guest)
    return files.config_response(guest, conf)


def get_pending(call: PveCall) -> list[Row]:
    """GET pending."""
    return files.pending_rows(call.get_guest(call.params["vmid"], "lxc"))
