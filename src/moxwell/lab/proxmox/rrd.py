"""
``rrddata`` of nodes, guests and storages: what was in use at the end of each step.

Sizes, and what a storage holds, are those of now.
"""

from collections.abc import Callable

from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.resources import OWN_CPU, OWN_MEMORY
from moxwell.lab.proxmox.route import ApiRoute, Handler
from moxwell.lab.proxmox.route_permissions import by_schema
from moxwell.lab.proxmox.state import Row, SimGuest, SimHost, StatdStatus

_STEPS = {"hour": 60, "day": 1800, "week": 10800, "month": 43200, "year": 604800, "decade": 6048000}
_POINTS = 70


def _times(call: PveCall) -> range:
    """The end of each step of the time frame."""
    step = _STEPS[call.params["timeframe"]]
    last = int(call.now()) // step * step
    return range(last - (_POINTS - 1) * step, last + 1, step)


def series(call: PveCall, since: float, figures: Row) -> list[Row]:
    """One row per step with the same figures; without figures before ``since``."""
    return [{"time": t, **(figures if t >= since else {})} for t in _times(call)]


def node_data(call: PveCall) -> list[Row]:
    host = call.host
    return [
        {"time": t, **(_node_figures(call, host, t) if t >= host.boot else {})}
        for t in _times(call)
    ]


def _node_figures(call: PveCall, host: SimHost, time: int) -> Row:
    found = [call.runtime.loads.at(call.region, vmid, time) for vmid in call.region.guests]
    here = [one for one in found if one is not None and one.node == host.name]
    cpu = min(OWN_CPU + sum(one.cpus for one in here) / host.cpus, 1.0)
    return {
        "cpu": round(cpu, 6),
        "maxcpu": host.cpus,
        "loadavg": cpu * host.cpus,
        "memtotal": host.memory,
        "memused": min(OWN_MEMORY + sum(one.memory for one in here), host.memory),
        "swaptotal": host.swap,
        "swapused": 0,
        "roottotal": host.root,
        "rootused": host.root // 10,
        "iowait": 0,
        "netin": 0,
        "netout": 0,
    }


def _guest_data(kind: str) -> Callable[[PveCall], list[Row]]:
    def handler(call: PveCall) -> list[Row]:
        guest = call.get_guest(call.params["vmid"], kind)
        statd = call.region.statd_status.get(guest.vmid)
        if statd is None:
            return series(call, call.now() + 1, {})
        return [{"time": t, **_guest_figures(call, guest, statd, t)} for t in _times(call)]

    return handler


def _guest_figures(call: PveCall, guest: SimGuest, statd: StatdStatus, time: int) -> Row:
    used = call.runtime.loads.at(call.region, guest.vmid, time)
    if used is None:
        return {}
    return {
        "cpu": used.cpu,
        "maxcpu": statd.maxcpu,
        "mem": used.memory,
        "maxmem": statd.maxmem,
        "disk": 0,
        "maxdisk": statd.maxdisk,
        **dict.fromkeys(("diskread", "diskwrite", "netin", "netout"), 0),
    }


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
