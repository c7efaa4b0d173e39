"""Records of regions, hosts and guests. Pure except for the layouts, which keep positions."""

from collections.abc import Iterable, Mapping
from typing import Any

from moxwell.web.layout import Layout, columns
from moxwell.web.model import GuestView, HostView, InfrastructureOverview, MachineView
from moxwell.web.phrasing import MachineText, short_name

Record = dict[str, Any]


class Layouts:
    """One layout for each host, kept while the host keeps its size."""

    def __init__(self) -> None:
        self._layouts: dict[tuple[str, str], tuple[tuple[int, ...], Layout]] = {}

    def of(self, host: HostView) -> Layout:
        shape = tuple(columns(host.memory_mib // host.sockets) for _ in range(host.sockets))
        known = self._layouts.get((host.region, host.name))
        if known is None or known[0] != shape:
            known = self._layouts[host.region, host.name] = (shape, Layout(shape))
        return known[1]


def region_records(overview: InfrastructureOverview) -> Iterable[tuple[str, Record]]:
    """A record for each region; sums are over hosts that are online."""
    for region in overview.regions:
        hosts = [h for h in overview.hosts if h.region == region.name]
        up = [h for h in hosts if h.online]
        guests = [g for g in overview.guests if g.region == region.name and g.running]
        cores, memory = sum(h.cpus for h in up), sum(h.memory_mib for h in up)
        names = {h.name for h in up}
        here = [g for g in guests if g.host in names]
        yield (
            f"region/{region.name}",
            {
                "name": region.name,
                "simulated": region.simulated,
                "reachable": region.reachable,
                "cores": cores,
                "memory_mib": memory,
                "cpu": _meter(
                    sum(g.cpus for g in here),
                    sum(h.cpu_load * h.cpus for h in up),
                    cores,
                    overview.cpu_limit,
                ),
                "memory": _meter(
                    sum(g.memory_mib for g in here), sum(h.memory_used_mib for h in up), memory, 1
                ),
                "without": sorted(h.name for h in hosts if not h.online),
            },
        )


def _meter(promised: float, used: float, of: float, limit: float) -> Record:
    if not of:
        return {"promised": None, "used": None, "limit": limit}
    return {"promised": round(promised / of, 3), "used": round(used / of, 3), "limit": limit}


def host_records(
    overview: InfrastructureOverview,
    machines: Mapping[tuple[str, int], MachineView],
    texts: Mapping[str, MachineText],
    layouts: Layouts,
) -> Iterable[tuple[str, Record]]:
    """A record for each host, and one for each guest on it."""
    for host in overview.hosts:
        guests = [g for g in overview.guests if (g.region, g.host) == (host.region, host.name)]
        shown = [g for g in guests if g.running or (g.region, g.vmid) in machines]
        layout = layouts.of(host)
        keys = {f"guest/{g.region}/{g.vmid}": g for g in shown}
        places = layout.place({key: g.memory_mib for key, g in keys.items()})
        in_block = {key: places[key].block for key in keys}
        yield f"host/{host.region}/{host.name}", _host(host, keys, in_block, overview.cpu_limit)
        for key, guest in keys.items():
            place = places[key]
            cells = {"block": place.block, "x": place.x, "y": place.y, "w": place.w, "h": place.h}
            machine = machines.get((guest.region, guest.vmid))
            yield key, _guest(guest, host, machine, texts) | cells


def _host(
    host: HostView, guests: Mapping[str, GuestView], blocks: Mapping[str, int], cpu_limit: float
) -> Record:
    running = {key: g for key, g in guests.items() if g.running}
    size, cores = host.memory_mib // host.sockets, host.cpus // host.sockets
    rows = []
    for number in range(host.sockets):
        own = [g for key, g in running.items() if blocks[key] == number]
        used = sum(g.memory_used_mib for g in own)
        load = sum(g.cpu_load * g.cpus for g in own)
        rows.append(
            {
                "label": f"socket {number}" if host.sockets > 1 else "1 socket",
                "cores": cores,
                "memory_mib": size,
                "columns": columns(size),
                "cpu": _meter(sum(g.cpus for g in own), load, cores, cpu_limit),
                "memory": _meter(sum(g.memory_mib for g in own), used, size, 1),
            }
        )
    return {
        "region": host.region,
        "name": host.name,
        "zone": host.zone,
        "state": "ok" if host.online else "trouble",
        "since": host.unreachable_since,
        "cores": host.cpus,
        "memory_mib": host.memory_mib,
        "promised_mib": sum(g.memory_mib for g in running.values()),
        "blocks": rows,
    }


def _guest(
    guest: GuestView, host: HostView, machine: MachineView | None, texts: Mapping[str, MachineText]
) -> Record:
    used = round(guest.memory_used_mib / guest.memory_mib, 2) if guest.memory_mib else 0
    record: Record = {
        "region": guest.region,
        "host": guest.host,
        "vmid": guest.vmid,
        "name": guest.name,
        "short": guest.name,
        "cluster": None,
        "machine": None,
        "ours": machine is not None,
        "memory_mib": guest.memory_mib,
        "cpus": guest.cpus,
        "mem_used": used if host.online else None,
        "cpu_used": round(guest.cpu_load, 2) if host.online else None,
        "state": "ready" if host.online else "unknown",
        "move": None,
        "sentence": None if host.online else f"Unknown: host {host.name} does not answer",
        "pods": 0,
    }
    if machine is None:
        return record
    key = f"{machine.namespace}/{machine.name}"
    text = texts[key]
    state = text.state if host.online else "unknown"
    return record | {
        "name": machine.name,
        "short": short_name(machine),
        "cluster": f"{machine.namespace}/{machine.cluster}",
        "machine": key,
        "state": state,
        "move": text.short or None,
        "sentence": text.sentence if host.online else record["sentence"],
        "pods": machine.pods,
    }
