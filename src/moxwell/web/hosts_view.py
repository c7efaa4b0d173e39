"""Records of regions, hosts and guests. Pure except for the layouts, which keep positions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moxwell.web.layout import GuestArea, Layout, columns
from moxwell.web.model import (
    GuestView,
    HostView,
    InfrastructureOverview,
    MachineView,
    RegionView,
    VolumeView,
)
from moxwell.web.phrasing import MachineText, short_name

Record = dict[str, Any]


class Layouts:
    """One layout for each host, kept while the host keeps its size."""

    def __init__(self) -> None:
        self._layouts: dict[tuple[str, str], tuple[tuple[int, ...], Layout]] = {}

    def of(self, host: HostView) -> Layout:
        sizes = [node.memory_mib for node in host.numa] or [host.memory_mib]
        shape = tuple(map(columns, sizes))
        known = self._layouts.get((host.region, host.name))
        if known is None or known[0] != shape:
            known = self._layouts[host.region, host.name] = (shape, Layout(shape))
        return known[1]


def region_records(overview: InfrastructureOverview) -> Iterable[tuple[str, Record]]:
    """A record for each region; sums are over hosts that are online."""
    for region in overview.regions:
        hosts = [h for h in overview.hosts if h.region == region.name]
        yield f"region/{region.name}", _region(region, hosts, overview)


def _region(
    region: RegionView, hosts: Sequence[HostView], overview: InfrastructureOverview
) -> Record:
    up = [h for h in hosts if h.online]
    names = {h.name for h in up}
    here = [g for g in overview.guests if g.region == region.name and g.running and g.host in names]
    cores, memory = sum(h.cpus for h in up), sum(h.memory_mib for h in up)
    load = sum(h.cpu_load * h.cpus for h in up)
    used = sum(h.memory_used_mib for h in up)
    lost = region.read and not region.reachable
    return {
        "name": region.name,
        "simulated": region.simulated,
        "read": region.read,
        "reachable": not lost,
        "since": region.since if lost else None,
        "cores": cores,
        "memory_mib": memory,
        "cpu": _meter(sum(g.cpus for g in here), load, cores, overview.cpu_limit),
        "memory": _meter(sum(g.memory_mib for g in here), used, memory, 1),
        "without": [] if lost else sorted(h.name for h in hosts if not h.online),
    }


def _meter(promised: float, used: float, of: float, limit: float) -> Record:
    if not of:
        return {"promised": None, "used": None, "limit": limit}
    return {"promised": round(promised / of, 3), "used": round(used / of, 3), "limit": limit}


def host_records(
    overview: InfrastructureOverview, texts: Mapping[str, MachineText], layouts: Layouts
) -> Iterable[tuple[str, Record]]:
    """A record for each host, and one for each guest on it."""
    machines = {(m.region, m.vmid): m for m in overview.machines if m.vmid}
    volumes: dict[str, list[VolumeView]] = defaultdict(list)
    for volume in overview.volumes:
        volumes[f"{volume.cluster}/{volume.guest}"].append(volume)
    guests: dict[tuple[str, str], list[GuestView]] = defaultdict(list)
    for guest in overview.guests:
        if guest.running or (guest.region, guest.vmid) in machines:
            guests[guest.region, guest.host].append(guest)
    for host in overview.hosts:
        own = {f"guest/{g.region}/{g.vmid}": g for g in guests[host.region, host.name]}
        blocks = {k: _block(host, machines.get((g.region, g.vmid))) for k, g in own.items()}
        sizes = {key: GuestArea(g.memory_mib, blocks[key]) for key, g in own.items()}
        places = layouts.of(host).place(sizes)
        yield f"host/{host.region}/{host.name}", _host(host, sizes, own, overview)
        for key, guest in own.items():
            place = places[key]
            cells = {"block": place.block, "x": place.x, "y": place.y, "w": place.w, "h": place.h}
            machine = machines.get((guest.region, guest.vmid))
            record = (
                _guest(guest, host, machine, texts) | cells | {"bound": blocks[key] is not None}
            )
            attached = volumes.get(_node_key(machine), []) if machine else []
            yield key, record | _volumes(record, attached)


def _node_key(machine: MachineView) -> str:
    return f"{machine.namespace}/{machine.cluster}/{machine.node or machine.name}"


def _block(host: HostView, machine: MachineView | None) -> int | None:
    """The block of the one NUMA node that a machine is bound to; None: drawn in any."""
    numbers = [node.number for node in host.numa]
    if machine is None or len(machine.numa) != 1 or machine.numa[0] not in numbers:
        return None
    return numbers.index(machine.numa[0])


def _host(
    host: HostView,
    sizes: Mapping[str, GuestArea],
    guests: Mapping[str, GuestView],
    overview: InfrastructureOverview,
) -> Record:
    running = [g for g in guests.values() if g.running]
    promised = sum(g.memory_mib for g in running)
    vcpus = sum(g.cpus for g in running)
    return {
        "region": host.region,
        "name": host.name,
        "zone": host.zone,
        "state": "ok" if host.online else "trouble",
        "since": host.unreachable_since,
        "cores": host.cpus,
        "memory_mib": host.memory_mib,
        "promised_mib": promised,
        "cpu": _meter(vcpus, host.cpu_load * host.cpus, host.cpus, overview.cpu_limit),
        "memory": _meter(promised, host.memory_used_mib, host.memory_mib, 1),
        "blocks": _blocks(host, sizes.values()),
    }


def _blocks(host: HostView, sizes: Iterable[GuestArea]) -> list[Record]:
    """The NUMA nodes with the memory that is bound to them; without a host agent one block."""
    if not host.numa:
        return [{"label": "", "columns": columns(host.memory_mib), "bound_mib": None}]
    bound = list(sizes)
    return [
        {
            "label": f"numa {node.number}",
            "cores": node.cpus,
            "memory_mib": node.memory_mib,
            "columns": columns(node.memory_mib),
            "bound_mib": sum(s.memory_mib for s in bound if s.block == number),
        }
        for number, node in enumerate(host.numa)
    ]


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
    return record | {
        "name": machine.name,
        "short": short_name(machine),
        "cluster": f"{machine.namespace}/{machine.cluster}",
        "machine": key,
        "state": text.state,
        "move": text.short or None,
        "sentence": text.sentence,
        "pods": machine.pods,
    }


def _volumes(record: Record, volumes: Sequence[VolumeView]) -> Record:
    """What a guest shows of its volumes; one that is being attached or detached comes first."""
    shown: Record = {"volumes": len(volumes), "volumes_mib": sum(v.size_mib for v in volumes)}
    busy = next((v for v in volumes if v.state == "attaching"), None)
    if busy is not None and record["state"] == "ready":
        claim = busy.claim.rpartition("/")[2] or busy.name
        word = busy.message.partition(" ")[0]
        shown |= {"state": "attaching", "move": word, "sentence": f"{word} {claim}"}
    return shown
