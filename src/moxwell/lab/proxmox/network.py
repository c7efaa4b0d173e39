"""
``/nodes/{node}/network``: network interfaces.

Changes take effect immediately; ``PUT`` (reload) only starts a task.
"""

from typing import Any

from moxwell.lab.proxmox.errors import param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.state import Row
from moxwell.lab.proxmox.tasks import WorkerContext


def apply_network(call: PveCall) -> str:
    async def worker(ctx: WorkerContext) -> None:
        ctx.log("info: executing ifreload")

    return call.spawn("srvreload", "networking", worker)


def revert_network(call: PveCall) -> None:
    """DELETE network: there is never a change that is not applied."""


def list_network(call: PveCall) -> list[Row]:
    requested, rows = call.get("type"), []
    vnets = call.region.sdn.running.get("vnets", {})
    for iface, row in call.host.bridges.items():
        local = row["type"] in {"bridge", "OVSBridge"}
        if (
            requested is None
            or row["type"] == requested
            or (requested.startswith("any_") and local)
        ):
            zone = f"/sdn/zones/localnetwork/{iface}"
            if requested is None or call.has_privileges(zone, *_SEE, any_of=True):
                rows.append({"iface": iface, **row})
    if requested in {"vnet", "any_bridge", "include_sdn"}:
        rows += [
            {"iface": name, "type": "vnet", "active": 1, "alias": row.get("alias", name)}
            for name, row in vnets.items()
            if call.has_privileges(f"/sdn/zones/{row['zone']}/{name}", *_SEE, any_of=True)
        ]
    return rows


_SEE = ("SDN.Audit", "SDN.Use")


def get_network(call: PveCall) -> Row:
    return dict(_iface(call))


def _iface(call: PveCall) -> Row:
    row: Row | None = call.host.bridges.get(call.params["iface"])
    if row is None:
        raise param_error({"iface": "interface does not exist"})
    return row


def create_network(call: PveCall) -> None:
    iface = call.params["iface"]
    if iface in call.host.bridges:
        raise param_error({"iface": "interface already exists"})
    call.host.bridges[iface] = _new_iface(call)


def _new_iface(call: PveCall) -> Row:
    row: dict[str, Any] = {"method": "manual", "method6": "manual", "families": ["inet"]}
    row |= {k: v for k, v in call.params.items() if k not in {"node", "iface", "delete"}}
    if "cidr" in row:
        row["address"], _, row["netmask"] = row["cidr"].partition("/")
        row["method"] = "static"
    return row | {"priority": 4 + len(call.host.bridges), "active": 1}


def update_network(call: PveCall) -> None:
    _iface(call)
    call.host.bridges[call.params["iface"]] = _new_iface(call)


def delete_network(call: PveCall) -> None:
    _iface(call)
    del call.host.bridges[call.params["iface"]]


_AUDIT, _MODIFY = perm("/nodes/{node}", "Sys.Audit"), perm("/nodes/{node}", "Sys.Modify")

ROUTES = (
    ApiRoute(
        "GET",
        "/nodes/{node}/network",
        list_network,
        permission=anyone,
        until=8,
    ),
    ApiRoute(
        "GET",
        "/nodes/{node}/network",
        list_network,
        permission=anyone,
        version=9,
    ),
    ApiRoute("PUT", "/nodes/{node}/network", apply_network, permission=_MODIFY),
    ApiRoute("DELETE", "/nodes/{node}/network", revert_network, permission=_MODIFY),
    ApiRoute("POST", "/nodes/{node}/network", create_network, permission=_MODIFY),
    ApiRoute("GET", "/nodes/{node}/network/{iface}", get_network, permission=_AUDIT),
    ApiRoute("PUT", "/nodes/{node}/network/{iface}", update_network, permission=_MODIFY),
    ApiRoute("DELETE", "/nodes/{node}/network/{iface}", delete_network, permission=_MODIFY),
)
