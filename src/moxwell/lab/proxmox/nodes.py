"""``/nodes``: list, status, time, DNS and configuration of nodes."""

import zoneinfo

from moxwell.lab.proxmox.cluster import digest_of, version
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import bad_params, die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.resources import cpu_in_use, memory_in_use, node_rows
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.state import Row, SimHost


def list_nodes(call: PveCall) -> list[Row]:
    return node_rows(call)


def node_status(call: PveCall) -> Row:
    host, region = call.host, call.region
    memory = {"total": host.memory, "used": memory_in_use(region)[host.name]}
    memory["free"] = host.memory - memory["used"]
    root_used, cpu = host.root // 10, cpu_in_use(region, host)
    row: Row = {
        "uptime": int(call.now() - host.boot),
        "loadavg": [f"{cpu * host.cpus:.2f}"] * 3,
        "cpu": cpu,
        "wait": 0,
        "idle": 0,
        "kversion": "Linux 6.8.12-pve #1 SMP simulated",
        "current-kernel": {
            "sysname": "Linux",
            "release": "6.8.12-pve",
            "version": "#1 SMP simulated",
            "machine": host.machine,
        },
        "boot-info": {"mode": "legacy-bios"},
        "pveversion": f"pve-manager/{region.version}/{region.repoid}",
        "cpuinfo": _cpuinfo(host, region.major),
        "memory": memory,
        "swap": {"total": host.swap, "used": 0, "free": host.swap},
        "rootfs": {
            "total": host.root,
            "used": root_used,
            "free": host.root - root_used,
            "avail": host.root - root_used,
        },
        "ksm": {"shared": 0},
    }
    if region.major >= 9:
        memory["available"] = memory["free"]
    return row


def _cpuinfo(host: SimHost, major: int) -> Row:
    info: Row = {
        "cpus": host.cpus,
        "cores": host.cpus,
        "sockets": host.sockets,
        "model": host.cpu_model,
        "mhz": "2400.000",
        "flags": _FLAGS,
        "hvm": "1",
        "user_hz": 100,
    }
    return info | ({"vendor": "GenuineIntel", "family": "6"} if major >= 9 else {})


_FLAGS = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse"
    " sse2 ss ht syscall nx pdpe1gb rdtscp lm constant_tsc rep_good nopl cpuid pni pclmulqdq vmx"
    " ssse3 fma cx16 pcid sse4_1 sse4_2 x2apic movbe popcnt aes xsave avx f16c rdrand hypervisor"
    " lahf_lm abm 3dnowprefetch ssbd ibrs ibpb stibp tpr_shadow ept vpid fsgsbase bmi1 avx2 smep"
    " bmi2 erms invpcid avx512f avx512dq rdseed adx smap clflushopt clwb avx512cd avx512bw avx512vl"
)


def get_time(call: PveCall) -> Row:
    now = int(call.now())
    return {
        "time": now,
        "localtime": now,
        "timezone": call.host.settings.get("timezone", "Etc/UTC"),
    }


def set_time(call: PveCall) -> None:
    known = zoneinfo.available_timezones()
    if known and call.params["timezone"] not in known:
        raise bad_params(timezone="No such timezone")
    call.host.settings["timezone"] = call.params["timezone"]


_DNS = ("search", "dns1", "dns2", "dns3")


def get_dns(call: PveCall) -> Row:
    return {name: v for name in _DNS if (v := call.host.settings.get(name)) is not None}


def set_dns(call: PveCall) -> None:
    for name in _DNS:
        call.host.settings.pop(name, None)
        if name in call.params:
            call.host.settings[name] = call.params[name]


def get_config(call: PveCall) -> Row:
    """GET config; one property comes without the digest."""
    kept = {k: v for k, v in call.host.settings.items() if k in _CONFIG}
    if "property" in call.params:
        return {k: v for k, v in kept.items() if k == call.params["property"]}
    return kept | {"digest": digest_of(kept)} if kept else {}


def set_config(call: PveCall) -> None:
    """PUT config: sets options, then deletes."""
    settings = call.host.settings
    digest, kept = call.get("digest"), {k: v for k, v in settings.items() if k in _CONFIG}
    if digest and kept and digest != digest_of(kept):
        raise die("detected modified configuration - file changed by other user? Try again.")
    for name in _CONFIG:
        if name in call.params:
            settings[name] = call.params[name]
    if "description" in call.params:
        settings["description"] = call.params["description"].rstrip("\n") + "\n"
    for name in formats.split_list(call.params.get("delete", "")):
        settings.pop(name, None)


def power(call: PveCall) -> None:
    """Accept reboot and shutdown without an effect; see the action ``host-down``."""


_CONFIG = (
    *("description", "wakeonlan", "startall-onboot-delay", "ballooning-target", "acme"),
    *(f"acmedomain{number}" for number in range(6)),
)
_AUDIT, _MODIFY = perm("/nodes/{node}", "Sys.Audit"), perm("/nodes/{node}", "Sys.Modify")

ROUTES = (
    ApiRoute("GET", "/nodes", list_nodes, permission=anyone),
    ApiRoute("GET", "/nodes/{node}/status", node_status, permission=_AUDIT),
    ApiRoute(
        "POST",
        "/nodes/{node}/status",
        power,
        permission=perm("/nodes/{node}", "Sys.PowerMgmt"),
    ),
    ApiRoute("GET", "/nodes/{node}/version", version, permission=anyone),
    ApiRoute("GET", "/nodes/{node}/time", get_time, permission=_AUDIT),
    ApiRoute("PUT", "/nodes/{node}/time", set_time, permission=_MODIFY),
    ApiRoute("GET", "/nodes/{node}/dns", get_dns, permission=_AUDIT),
    ApiRoute(
        "PUT",
        "/nodes/{node}/dns",
        set_dns,
        permission=_MODIFY,
    ),
    ApiRoute(
        "GET",
        "/nodes/{node}/config",
        get_config,
        permission=perm("/", "Sys.Audit"),
    ),
    ApiRoute(
        "PUT",
        "/nodes/{node}/config",
        set_config,
        permission=perm("/", "Sys.Modify"),
    ),
)
