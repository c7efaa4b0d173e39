"""``/nodes/{node}/services`` and ``capabilities``."""

from moxwell.lab.proxmox.config_schema import devices
from moxwell.lab.proxmox.config_schema.cpu_models import ABSTRACT, cpu_types, vendor
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Handler
from moxwell.lab.proxmox.route_permissions import anyone, by_schema
from moxwell.lab.proxmox.state import Row
from moxwell.lab.proxmox.tasks import WorkerContext

_SERVICES = {
    "chrony": "chrony, an NTP client/server",
    "corosync": "Corosync Cluster Engine",
    "cron": "Regular background program processing daemon",
    "ksmtuned": "Kernel Samepage Merging (KSM) Tuning Daemon",
    "lxcfs": "FUSE filesystem for LXC",
    "postfix": "Postfix Mail Transport Agent",
    "proxmox-firewall": "Proxmox nftables firewall",
    "pve-cluster": "The Proxmox VE cluster filesystem",
    "pve-firewall": "Proxmox VE firewall",
    "pve-ha-crm": "PVE Cluster HA Resource Manager Daemon",
    "pve-ha-lrm": "PVE Local HA Resource Manager Daemon",
    "pve-lxc-syscalld": "Proxmox VE LXC Syscall Daemon",
    "pvedaemon": "PVE API Daemon",
    "pvefw-logger": "Proxmox VE firewall logger",
    "pveproxy": "PVE API Proxy Server",
    "pvescheduler": "Proxmox VE scheduler",
    "pvestatd": "PVE Status Daemon",
    "qmeventd": "PVE Qemu Event Daemon",
    "spiceproxy": "PVE SPICE Proxy Server",
    "sshd": "OpenBSD Secure Shell server",
    "systemd-journald": "Journal Service",
}
_ESSENTIAL = ("pveproxy", "pvedaemon", "pve-cluster")
_FLAGS = {
    "nested-virt": "Controls nested virtualization, namely 'svm' for AMD CPUs and 'vmx' for Intel.",
    "md-clear": "Required to let the guest OS know if MDS is mitigated correctly.",
    "pcid": "Meltdown fix cost reduction on Westmere, Sandy-, and IvyBridge Intel CPUs.",
    "spec-ctrl": "Allows improved Spectre mitigation with Intel CPUs.",
    "ssbd": "Protection for 'Speculative Store Bypass' for Intel models.",
    "ibpb": "Allows improved Spectre mitigation with AMD CPUs.",
    "virt-ssbd": "Basis for 'Speculative Store Bypass' protection for AMD models.",
    "amd-ssbd": "Improves Spectre mitigation performance with AMD CPUs.",
    "amd-no-ssb": "Notifies guest OS that host is not vulnerable for Spectre on AMD CPUs.",
    "pdpe1gb": "Allow guest OS to use 1GB size pages, if host HW supports it.",
    "hv-tlbflush": "Improve performance in overcommitted Windows guests.",
    "hv-evmcs": "Improve performance for nested virtualization. Only supported on Intel CPUs.",
    "aes": "Activate AES instruction set for HW acceleration.",
}


def _service_row(call: PveCall, name: str) -> Row:
    stopped = (name == "corosync" and not call.region.cluster) or name not in _SERVICES
    return {
        "service": name,
        "name": name,
        "desc": _SERVICES.get(name, name),
        "state": "dead" if stopped else "running",
        "active-state": "inactive" if stopped else "active",
        "unit-state": "enabled",
    }


def list_services(call: PveCall) -> list[Row]:
    return [_service_row(call, name) for name in _SERVICES]


def service_state(call: PveCall) -> Row:
    return _service_row(call, call.params["service"])


def _command(verb: str) -> Handler:
    """Start, stop, restart or reload a service: a task without an effect."""

    def handler(call: PveCall) -> str:
        async def worker(ctx: WorkerContext) -> None:
            if verb == "stop" and call.params["service"] in _ESSENTIAL:
                command = f"{call.params['service']} {verb}"
                raise die(f"invalid service cmd '{command}': refusing to stop essential service!")
            ctx.log(f"systemctl {verb} {call.params['service']}")

        return call.spawn(f"srv{verb}", call.params["service"], worker)

    return handler


def cpu_models(call: PveCall) -> list[Row]:
    return [
        {"name": name, "vendor": vendor(name), "custom": 0}
        | ({"abstract": 1} if call.major >= 9 and name in ABSTRACT else {})
        for name in sorted(cpu_types(call.major), key=str.lower)
    ]


def cpu_flags(call: PveCall) -> list[Row]:
    return [{"name": name, "description": _FLAGS[name]} for name in devices.CPU_FLAGS[9]]


def machines(call: PveCall) -> list[Row]:
    version = "9.2" if call.major < 9 else "10.1"
    return [
        {"id": f"pc-{kind}-{version}", "type": kind, "version": version}
        for kind in ("i440fx", "q35")
    ]


def migration(call: PveCall) -> Row:
    return {"has-dbus-vmstate": True}


def capabilities(call: PveCall) -> list[Row]:
    new = ("cpu-flags", "migration") if call.major >= 9 else ()
    return [{"name": name} for name in ("cpu", "machines", *new)]


def _only_qemu(call: PveCall) -> list[Row]:
    return [{"name": "qemu"}]


_S, _C = "/nodes/{node}/services", "/nodes/{node}/capabilities"
ROUTES = (
    ApiRoute("GET", _S, list_services, permission=by_schema),
    ApiRoute("GET", f"{_S}/{{service}}/state", service_state, permission=by_schema),
    *(
        ApiRoute("POST", f"{_S}/{{service}}/{verb}", _command(verb), permission=by_schema)
        for verb in ("start", "stop", "restart", "reload")
    ),
    ApiRoute("GET", _C, _only_qemu, permission=anyone),
    ApiRoute("GET", f"{_C}/qemu", capabilities, permission=anyone),
    ApiRoute("GET", f"{_C}/qemu/cpu", cpu_models, permission=anyone),
    ApiRoute("GET", f"{_C}/qemu/machines", machines, permission=anyone),
    ApiRoute("GET", f"{_C}/qemu/cpu-flags", cpu_flags, permission=by_schema, version=9),
    ApiRoute("GET", f"{_C}/qemu/migration", migration, permission=by_schema, version=9),
)
