"""
``/nodes/{node}/network``: the network configuration of a node.

As in PVE a change is written to a second file, is shown at once and takes effect when it is applied
(PUT). Only interfaces with ``autostart`` come up.
"""

from collections.abc import Iterator

from moxwell.lab.proxmox import network_file
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import bad_params, die, param_error
from moxwell.lab.proxmox.network_checks import check_interface
from moxwell.lab.proxmox.request_context import PagedList, PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.state import Row
from moxwell.lab.proxmox.tasks import WorkerContext

_SEE = ("SDN.Audit", "SDN.Use")
_SDN = frozenset({"any_bridge", "include_sdn", "vnet"})
_BRIDGES = frozenset({"bridge", "OVSBridge"})


def apply_network(call: PveCall) -> str:
    """PUT network: the new file replaces the old one."""

    async def worker(ctx: WorkerContext) -> None:
        host, running = call.host, call.host.bridges
        if host.new_network is not None:
            host.bridges, host.new_network = host.new_network, None
        for iface, row in host.bridges.items():
            if row.get("autostart") or running.get(iface, {}).get("active"):
                row["active"] = 1
        ctx.log("info: executing ifreload")

    return call.spawn("srvreload", "networking", worker)


def revert_network(call: PveCall) -> None:
    """DELETE network: forgets what was not applied."""
    call.host.new_network = None


def _shown(call: PveCall) -> dict[str, Row]:
    """The interfaces of the newest file; those that are up are active."""
    host = call.host
    if host.new_network is None:
        return host.bridges
    up = {iface for iface, row in host.bridges.items() if row.get("active")}
    return {
        iface: {**row, "active": 1} if iface in up else row
        for iface, row in host.new_network.items()
    }


def list_network(call: PveCall) -> PagedList:
    """GET network: the interfaces, and the difference to the file that is in effect."""
    rows = [*_local(call), *_vnets(call)]
    if call.host.new_network is None:
        return PagedList(rows)
    changes = network_file.difference(call.host.bridges, call.host.new_network)
    return PagedList(rows, beside={"changes": changes} if changes else {})


def _local(call: PveCall) -> Iterator[Row]:
    requested = call.get("type")
    any_bridge = requested in {"any_bridge", "any_local_bridge"}
    for iface, row in _shown(call).items():
        is_bridge = row["type"] in _BRIDGES
        if requested not in {None, "include_sdn", row["type"]} and not (is_bridge and any_bridge):
            continue
        zone = f"/sdn/zones/localnetwork/{iface}"
        if not is_bridge or requested is None or call.has_privileges(zone, *_SEE, any_of=True):
            yield {"iface": iface, **row}


def _vnets(call: PveCall) -> Iterator[Row]:
    if call.get("type") not in _SDN:
        return
    for name, row in call.region.sdn.running.get("vnets", {}).items():
        if call.has_privileges(f"/sdn/zones/{row['zone']}/{name}", *_SEE, any_of=True):
            yield {"iface": name, "type": "vnet", "active": 1, "alias": row.get("alias", name)}


def get_network(call: PveCall) -> Row:
    row = _shown(call).get(call.params["iface"])
    if row is None:
        raise bad_params(iface="interface does not exist")
    return dict(row)


def create_network(call: PveCall) -> None:
    iface, known = call.params["iface"], _stored(call)
    if iface in known:
        raise bad_params(iface="interface already exists")
    known[iface] = _change(call, {}, known)
    _write(call, known)


def update_network(call: PveCall) -> None:
    iface, known = call.params["iface"], _stored(call)
    if iface not in known:
        raise bad_params(iface="interface does not exist")
    deleted = set(formats.split_list(call.params.get("delete", "")))
    for name in ("cidr", "cidr6"):
        if name in deleted:
            deleted |= {name.replace("cidr", "address"), name.replace("cidr", "netmask")}
    kept = {name: value for name, value in known[iface].items() if name not in deleted}
    known[iface] = _change(call, kept, known)
    _write(call, known)


def delete_network(call: PveCall) -> None:
    known = _stored(call)
    if call.params["iface"] not in known:
        raise bad_params(iface="interface does not exist")
    del known[call.params["iface"]]
    _write(call, known)


def _stored(call: PveCall) -> dict[str, Row]:
    """A copy of the newest file."""
    host = call.host
    newest = host.bridges if host.new_network is None else host.new_network
    return {
        iface: {name: value for name, value in row.items() if name != "active"}
        for iface, row in newest.items()
    }


def _change(call: PveCall, old: Row, known: dict[str, Row]) -> Row:
    """The new settings of an interface, checked and as they are read from the file."""
    iface = call.params["iface"]
    given = {k: v for k, v in call.params.items() if k not in {"node", "iface", "delete", "digest"}}
    for suffix in ("", "6"):
        _split_cidr(given, suffix)
    check_interface(iface, given, known)
    if given["type"].startswith("OVS"):
        raise die("Open VSwitch is not installed (need package 'openvswitch-switch')")
    return network_file.as_read(iface, {**old, **given}, len(known) + 4)


def _split_cidr(given: Row, suffix: str) -> None:
    cidr, address, netmask = (f"{name}{suffix}" for name in ("cidr", "address", "netmask"))
    if cidr not in given:
        return
    for name in (address, netmask):
        if name in given:
            raise param_error({name: f"{name} conflicts with {cidr}"})
    given[address], _, given[netmask] = given.pop(cidr).partition("/")


def _write(call: PveCall, interfaces: dict[str, Row]) -> None:
    call.host.new_network = interfaces


_AUDIT, _MODIFY = perm("/nodes/{node}", "Sys.Audit"), perm("/nodes/{node}", "Sys.Modify")
_LIST, _ONE = "/nodes/{node}/network", "/nodes/{node}/network/{iface}"

ROUTES = (
    ApiRoute("GET", _LIST, list_network, permission=anyone, until=8),
    ApiRoute("GET", _LIST, list_network, permission=anyone, version=9),
    ApiRoute("PUT", _LIST, apply_network, permission=_MODIFY),
    ApiRoute("DELETE", _LIST, revert_network, permission=_MODIFY),
    ApiRoute("POST", _LIST, create_network, permission=_MODIFY),
    ApiRoute("GET", _ONE, get_network, permission=_AUDIT),
    ApiRoute("PUT", _ONE, update_network, permission=_MODIFY),
    ApiRoute("DELETE", _ONE, delete_network, permission=_MODIFY),
)
