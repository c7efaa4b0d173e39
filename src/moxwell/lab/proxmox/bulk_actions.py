"""
Endpoints of ``/nodes/{node}``: startall, stopall, migrateall, hosts, subscription, SDN.
"""

from typing import Any

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import PveException, die, forbidden, param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.state import Row, SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext


def _chosen(call: PveCall, priv: str) -> list[SimGuest]:
    """The guests of a bulk action on which the caller has the privilege."""
    requested = [int(v) for v in formats.split_list(call.get("vms", ""))]
    if not call.has_privileges("/", priv):
        if not requested:
            raise forbidden(f"/, {priv}")
        for vmid in requested:
            call.check(f"/vms/{vmid}", priv)
    local_guests = [
        g for g in call.region.guests.values() if g.node == call.node and not g.template
    ]
    return sorted(
        (g for g in local_guests if not requested or g.vmid in requested), key=lambda g: g.vmid
    )


async def _each(
    call: PveCall, ctx: WorkerContext, guests: list[SimGuest], command: str, params: dict[str, Any]
) -> None:
    for guest in guests:
        path = f"/nodes/{call.node}/{guest.kind}/{guest.vmid}/{command}"
        try:
            upid = await call.runtime.module_data["perform"]("POST", path, params)
            task = await call.runtime.workers.wait(upid)
        except PveException as problem:
            ctx.log(problem.message)
            continue
        if task.exitstatus != "OK":
            ctx.log(f"{guest.vmid}: {task.exitstatus}")


def start_all(call: PveCall) -> str:
    chosen = _chosen(call, "VM.PowerMgmt")

    async def worker(ctx: WorkerContext) -> None:
        due = [g for g in chosen if not g.running and (call.get("force") or g.conf.get("onboot"))]
        await _each(call, ctx, due, "status/start", {})

    return call.spawn("startall", "", worker)


def stop_all(call: PveCall) -> str:
    chosen = _chosen(call, "VM.PowerMgmt")

    async def worker(ctx: WorkerContext) -> None:
        params = {"timeout": str(call.get("timeout", 180)), "forceStop": "1"}
        await _each(call, ctx, [g for g in chosen if g.running], "status/shutdown", params)

    return call.spawn("stopall", "", worker)


def migrate_all(call: PveCall) -> str:
    chosen, target = _chosen(call, "VM.Migrate"), call.params["target"]
    if target == call.node:
        raise param_error({"target": "target is local node."})
    if target not in call.region.hosts:
        raise die(f"no such cluster node '{target}'")

    async def worker(ctx: WorkerContext) -> None:
        for guest in chosen:
            online = {"online": "1"} if guest.running else {}
            await _each(call, ctx, [guest], "migrate", {"target": target, **online})

    return call.spawn("migrateall", "", worker)


def hosts_file(call: PveCall) -> Row:
    lines = ["127.0.0.1 localhost"]
    lines += [f"{h.address.partition('/')[0]} {h.name}" for h in call.region.hosts.values()]
    data = call.host.settings.get("hosts", "\n".join(lines) + "\n")
    return {"data": data, "digest": digest_of(data)}


def write_hosts_file(call: PveCall) -> None:
    call.host.settings["hosts"] = call.params["data"]


def subscription(call: PveCall) -> Row:
    return {
        "status": "notfound",
        "message": "There is no subscription key",
        "serverid": digest_of(call.node)[:32].upper(),
        "url": "https://www.proxmox.com/proxmox-ve/pricing",
    }


def sdn_zones(call: PveCall) -> list[Row]:
    zones = ["localnetwork", *call.region.sdn.running.get("zones", {})]
    privs = ("SDN.Audit", "SDN.Allocate")
    return [
        {"zone": zone, "status": "available"}
        for zone in zones
        if call.has_privileges(f"/sdn/zones/{zone}", *privs, any_of=True)
    ]


def sdn_zone_content(call: PveCall) -> list[Row]:
    zone = call.params["zone"]
    if zone == "localnetwork":
        names = [n for n, row in call.host.bridges.items() if row["type"] == "bridge"]
    else:
        vnets = call.region.sdn.running.get("vnets", {})
        names = [n for n, row in vnets.items() if row["zone"] == zone]
    return [{"vnet": name, "status": "available"} for name in names]


def _names(*names: str, key: str = "name") -> Any:
    return lambda call: [{key: name} for name in names]


def _sdn_index(call: PveCall) -> list[Row]:
    names = ("fabrics", "vnets", "zones") if call.major >= 9 else ("zones",)
    return [{"name": name} for name in names]


def _zone_index(call: PveCall) -> list[Row]:
    new = ("bridges", "ip-vrf") if call.major >= 9 else ()
    return [{"subdir": name} for name in ("content", *new)]


def not_simulated(call: PveCall) -> list[Row]:
    """Logs and RRD data are not simulated."""
    return []


_AUDIT, _MODIFY = perm("/nodes/{node}", "Sys.Audit"), perm("/nodes/{node}", "Sys.Modify")
_ZONE = perm("/sdn/zones/{zone}", "SDN.Audit")

ROUTES = (
    ApiRoute(
        "POST",
        "/nodes/{node}/startall",
        start_all,
        permission=anyone,
    ),
    ApiRoute(
        "POST",
        "/nodes/{node}/stopall",
        stop_all,
        permission=anyone,
    ),
    ApiRoute(
        "POST",
        "/nodes/{node}/migrateall",
        migrate_all,
        permission=anyone,
    ),
    ApiRoute("GET", "/nodes/{node}/hosts", hosts_file, permission=perm("/", "Sys.Audit")),
    ApiRoute(
        "POST",
        "/nodes/{node}/hosts",
        write_hosts_file,
        permission=_MODIFY,
    ),
    ApiRoute("GET", "/nodes/{node}/subscription", subscription, permission=anyone),
    ApiRoute("GET", "/nodes/{node}/sdn", _sdn_index, permission=anyone),
    ApiRoute("GET", "/nodes/{node}/sdn/zones", sdn_zones, permission=anyone),
    ApiRoute("GET", "/nodes/{node}/sdn/zones/{zone}", _zone_index, permission=_ZONE),
    ApiRoute("GET", "/nodes/{node}/sdn/zones/{zone}/content", sdn_zone_content, permission=_ZONE),
    ApiRoute("GET", "/nodes/{node}/netstat", not_simulated, permission=_AUDIT),
    ApiRoute(
        "GET", "/nodes/{node}/syslog", not_simulated, permission=perm("/nodes/{node}", "Sys.Syslog")
    ),
)
