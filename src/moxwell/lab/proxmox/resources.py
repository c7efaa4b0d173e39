"""
``GET /cluster/resources``.

Guest rows come from pvestatd, so a new guest has status "unknown" at first and a stopped one may
still be listed as running; pool, tags, lock and HA state come from configuration and are current.
Each guest costs one dictionary, so lists of ten thousand guests stay fast.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from moxwell.lab.proxmox import pvestatd
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone
from moxwell.lab.proxmox.state import (
    Row,
    SimGuest,
    SimHaResource,
    SimHost,
    SimRegion,
    SimStorage,
    StatdStatus,
)

OWN_CPU, OWN_MEMORY = 0.02, 1 << 30  # what a host uses without guests


def list_resources(call: PveCall) -> list[Any]:
    requested = call.get("type")
    rows: list[Any] = []
    if requested is None:
        rows += pool_rows(call)
    if requested in {None, "vm"}:
        # Encoded one by one, which avoids garbage collection runs over thousands of dictionaries.
        encode = msgspec.json.Encoder().encode
        rows += [msgspec.Raw(encode(row)) for row in guest_rows(call)]
    if requested in {None, "node"}:
        rows += node_rows(call, full=True)
    if requested in {None, "storage"}:
        rows += storage_rows(call)
    if requested in {None, "sdn"}:
        rows += network_rows(call, requested)
    return rows


def pool_rows(call: PveCall) -> Iterator[Row]:
    """The pools that the caller may audit, with the usage of their running guests."""
    for name, pool in call.region.pools.items():
        if call.has_privileges(f"/pool/{name}", "Pool.Audit"):
            running = [s for vmid in pool.vms if (s := _running(call, vmid)) is not None]
            row: Row = {"id": f"/pool/{name}", "pool": name, "type": "pool"}
            yield row | (_usage(running, call.now()) if running else {})


def _running(call: PveCall, vmid: int) -> StatdStatus | None:
    found = call.region.statd_status.get(vmid)
    return (
        found if found is not None and int(call.now() - found.started) and found.started else None
    )


def _usage(running: list[StatdStatus], now: float) -> Row:
    cpus = sum(statd.maxcpu for statd in running)
    return {
        "uptime": max(int(now - statd.started) for statd in running),
        "mem": sum(int(statd.maxmem * statd.memory_load) for statd in running),
        "maxmem": sum(statd.maxmem for statd in running),
        "cpu": sum(statd.cpu_load * statd.maxcpu for statd in running) / cpus,
        "maxcpu": cpus,
    }


def pools_by_vmid(call: PveCall) -> dict[int, str]:
    return {vmid: pool.poolid for pool in call.region.pools.values() for vmid in pool.vms}


def guest_rows(call: PveCall, only: set[int] | None = None) -> Iterator[Row]:
    """One row per guest that the caller may audit."""
    region, now, pools = call.region, call.now(), pools_by_vmid(call)
    resources = region.ha.resources.values()
    managed = {r.sid.partition(":")[2]: _ha_state(r) for r in resources}
    status_valid = {
        host.name: pvestatd.is_status_valid(host, now) for host in region.hosts.values()
    }
    visible = call.filter("/vms", "VM.Audit")
    for vmid, guest in region.guests.items():
        if (only is not None and vmid not in only) or not visible(vmid):
            continue
        row = guest_row(guest, region.statd_status.get(vmid), now, status_valid[guest.node])
        pool = pools.get(vmid)
        if pool and call.has_privileges(f"/pool/{pool}", "Pool.Audit"):
            row["pool"] = pool
        if managed and str(vmid) in managed:
            row["hastate"] = managed[str(vmid)]
        yield row


def _ha_state(resource: SimHaResource) -> Any:
    """The state set by the HA manager, or the requested state before its first run."""
    return resource.options.get("state") if resource.crm_state == "queued" else resource.crm_state


def guest_row(guest: SimGuest, statd: StatdStatus | None, now: float, status_valid: bool) -> Row:
    """``status_valid``: whether the last status of the node is still valid."""
    started = statd.started if statd else 0.0
    row: Row = {
        "id": f"{guest.kind}/{guest.vmid}",
        "vmid": guest.vmid,
        "node": guest.node,
        "type": guest.kind,
        "status": "unknown",
    }
    if statd is not None and status_valid:
        row |= {
            "name": statd.name,
            "status": statd.status,
            "template": statd.template,
            "maxcpu": statd.maxcpu,
            "maxmem": statd.maxmem,
            "maxdisk": statd.maxdisk,
            "uptime": max(int(now - started), 0) if started else 0,
            "cpu": statd.cpu_load if started else 0,
            "mem": int(statd.maxmem * statd.memory_load) if started else 0,
            **_NO_USAGE,
        }
    conf = guest.conf
    if conf.get("tags"):
        row["tags"] = conf["tags"]
    if conf.get("lock"):
        row["lock"] = conf["lock"]
    return row


_NO_USAGE = {"disk": 0, "netin": 0, "netout": 0, "diskread": 0, "diskwrite": 0}


def node_rows(call: PveCall, *, full: bool = False) -> list[Row]:
    used = memory_in_use(call.region)
    return [node_row(call, host, used, full=full) for host in call.region.hosts.values()]


def node_row(call: PveCall, host: SimHost, used: dict[str, int], *, full: bool = False) -> Row:
    """A node as in /nodes and /cluster/resources; usage only if the caller may audit it."""
    row: Row = {"id": f"node/{host.name}", "node": host.name, "type": "node"}
    row |= {"status": "online" if host.online else "offline"}
    if full:
        row["cgroup-mode"] = 2
        if call.region.ha.master:
            row["hastate"] = "online" if host.online else "unknown"
    if not pvestatd.is_status_valid(host, call.now()):
        return row
    row["level"] = ""
    if not call.has_privileges(f"/nodes/{host.name}", "Sys.Audit"):
        return row
    row |= {"maxcpu": host.cpus, "maxmem": host.memory, "maxdisk": host.root}
    if host.online:
        row |= {"cpu": cpu_in_use(call.region, host), "mem": used[host.name]}
        row["disk"] = host.root // 10
        row["uptime"] = int(call.now() - host.boot)
    return row


def cpu_in_use(region: SimRegion, host: SimHost) -> float:
    """The share of a host's CPUs in use: its own part, and what its running guests use."""
    guests = (s for s in region.statd_status.values() if s.started and s.node == host.name)
    used = sum(statd.cpu_load * statd.maxcpu for statd in guests)
    return round(min(OWN_CPU + used / host.cpus, 1.0), 6)


def memory_in_use(region: SimRegion) -> dict[str, int]:
    """Memory in use per host: its own, and what its running guests use."""
    used = dict.fromkeys(region.hosts, OWN_MEMORY)
    for statd in region.statd_status.values():
        if statd.started and statd.node in used:
            used[statd.node] += int(statd.maxmem * statd.memory_load)
    return {name: min(used[name], host.memory) for name, host in region.hosts.items()}


def storage_rows(call: PveCall, names: set[str] | None = None) -> Iterator[Row]:
    for storage in call.region.storages.values():
        if names is not None and storage.name not in names:
            continue
        if not call.has_privileges(f"/storage/{storage.name}", "Datastore.Audit"):
            continue
        everywhere = storage.used(call.node) if storage.shared else None
        for host in call.region.hosts.values():
            if storage.is_available_on(host.name) and not storage.options.get("disable"):
                yield storage_row(call, storage, host, everywhere)


def storage_row(call: PveCall, storage: SimStorage, host: SimHost, used: int | None = None) -> Row:
    """``used`` avoids summing a shared storage once per node."""
    status_valid = pvestatd.is_status_valid(host, call.now())
    row: Row = {
        "id": f"storage/{host.name}/{storage.name}",
        "storage": storage.name,
        "node": host.name,
        "type": "storage",
        "plugintype": storage.type,
        "content": storage.options.get("content", ""),
        "shared": int(storage.shared),
        "status": "available" if status_valid else "unknown",
    }
    if status_valid:
        taken = storage.used(host.name) if used is None else used
        row |= {"disk": min(taken, storage.capacity), "maxdisk": storage.capacity}
    return row


def network_rows(call: PveCall, requested: str | None) -> Iterator[Row]:
    """SDN zones: type ``sdn`` on 8, type ``network`` on 9."""
    if call.major >= 9 and requested == "sdn":
        return
    zones = ["localnetwork", *call.region.sdn.running.get("zones", {})]
    for host in call.region.hosts.values():
        for zone in zones:
            if not call.has_privileges(f"/sdn/zones/{zone}", "SDN.Audit"):
                continue
            status = "ok" if host.online else "unknown"
            if call.major >= 9:
                yield {
                    "id": f"network/{host.name}/zone/{zone}",
                    "type": "network",
                    "network": zone,
                    "network-type": "zone",
                    "node": host.name,
                    "status": status,
                }
            else:
                yield {
                    "id": f"sdn/{host.name}/{zone}",
                    "type": "sdn",
                    "sdn": zone,
                    "node": host.name,
                    "status": status,
                }


ROUTES: tuple[Any, ...] = (
    ApiRoute("GET", "/cluster/resources", list_resources, permission=anyone),
)
