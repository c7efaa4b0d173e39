"""``rrddata`` of nodes, guests and storages: the current figures, as if they had been constant."""

from collections.abc import Callable

from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.resources import cpu_in_use, memory_in_use
from moxwell.lab.proxmox.route import ApiRoute, Handler
from moxwell.lab.proxmox.route_permissions import by_schema
from moxwell.lab.proxmox.state import Row

_STEPS = {"hour": 60, "day": 1800, "week": 10800, "month": 43200, "year": 604800, "decade": 6048000}
_POINTS = 70


def series(call: PveCall, since: float, figures: Row) -> list[Row]:
    """One row per step of the time frame; without figures before ``since``."""
    step = _STEPS[call.params["timeframe"]]
    last = int(call.now()) // step * step
    times = range(last - (_POINTS - 1) * step, last + 1, step)
    return [{"time": t, **(figures if t >= since else {})} for t in times]


def node_data(call: PveCall) -> list[Row]:
    host = call.host
    cpu = cpu_in_use(call.region, host)
    figures = {
        "cpu": cpu,
        "maxcpu": host.cpus,
        "loadavg": cpu * host.cpus,
        "memtotal": host.memory,
        "memused": memory_in_use(call.region)[host.name],
        "swaptotal": host.swap,
        "swapused": 0,
        "roottotal": host.root,
        "rootused": host.root // 10,
        "iowait": 0,
        "netin": 0,
        "netout": 0,
    }
    return series(call, host.boot, figures)


def _guest_data(kind: str) -> Callable[[PveCall], list[Row]]:
    def handler(call: PveCall) -> list[Row]:
        guest = call.get_guest(call.params["vmid"], kind)
        statd = call.region.statd_status.get(guest.vmid)
        if statd is None:
            return series(call, call.now() + 1, {})
        used = int(statd.maxmem * guest.memory_load) if guest.running else 0
        figures = {
            "cpu": guest.cpu_load if guest.running else 0,
            "maxcpu": statd.maxcpu,
            "mem": used,
            "maxmem": statd.maxmem,
            "disk": 0,
            "maxdisk": statd.maxdisk,
            **dict.fromkeys(("diskread", "diskwrite", "netin", "netout"), 0),
        }
        return series(call, guest.started, figures)

    return handler


def storage_data(call: PveCall) -> list[Row]:
    storage = call.region.storages.get(call.params["storage"])
    if storage is None:
        return series(call, call.now() + 1, {})
    figures = {"total": storage.capacity, "used": storage.used(call.node)}
    return series(call, call.host.boot, figures)


_PATHS: dict[str, Handler] = {
    "/nodes/{node}/rrddata": node_data,
    "/nodes/{node}/qemu/{vmid}/rrddata": _guest_data("qemu"),
    "/nodes/{node}/lxc/{vmid}/rrddata": _guest_data("lxc"),
    "/nodes/{node}/storage/{storage}/rrddata": storage_data,
}
ROUTES = tuple(
    ApiRoute("GET", path, handler, permission=by_schema) for path, handler in _PATHS.items()
)
