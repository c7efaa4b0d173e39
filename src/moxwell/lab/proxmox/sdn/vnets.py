"""``/cluster/sdn/vnets``: virtual networks of a zone."""

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.sdn.objects import NESTED, check_digest, listing, new_row
from moxwell.lab.proxmox.state import Row

_LARGEST_VXLAN = 16777216


def _may(call: PveCall, vnet: str, *privs: str) -> bool:
    row = call.region.sdn.vnets.get(vnet) or call.region.sdn.running.get("vnets", {}).get(vnet)
    zone = row["zone"] if row else "unknown"
    return call.has_privileges(f"/sdn/zones/{zone}/{vnet}", *privs, any_of=True)


def list_vnets(call: PveCall) -> list[Row]:
    rows = listing(call, "vnets", "vnet")
    return [r for r in rows if _may(call, r["vnet"], "SDN.Audit", "SDN.Allocate")]


def get_vnet(call: PveCall) -> Row:
    rows = {row["vnet"]: row for row in listing(call, "vnets", "vnet")}
    if call.params["vnet"] not in rows:
        raise die(f"sdn vnet '{call.params['vnet']}' does not exist")
    check_vnet(call, call.params["vnet"], "SDN.Audit", "SDN.Allocate")
    return rows[call.params["vnet"]]


def check_vnet(call: PveCall, vnet: str, *privs: str) -> None:
    row = call.region.sdn.vnets.get(vnet)
    zone = row["zone"] if row else "unknown"
    call.check(f"/sdn/zones/{zone}/{vnet}", *privs, any_of=True)


def create_vnet(call: PveCall) -> None:
    error_prefix, sdn = "create sdn vnet object failed: ", call.region.sdn
    name = call.params.pop("vnet")
    call.params.pop("lock-token", None)
    if name in sdn.vnets:
        raise die(f"{error_prefix}sdn vnet object ID '{name}' already defined")
    _check_zone(call, call.params, error_prefix)
    sdn.vnets[name] = {"type": "vnet", **call.params}


def _check_zone(call: PveCall, row: Row, error_prefix: str) -> None:
    zone = call.region.sdn.zones.get(row["zone"])
    if zone is None:
        where = "at /usr/share/perl5/PVE/API2/Network/SDN/Vnets.pm line 232."
        raise die(f"{error_prefix}cannot lookup undefined type! {where}")
    kind, tag = zone["type"], row.get("tag")
    if kind == "simple" and tag is not None:
        raise die(f"{error_prefix}{NESTED}tag: vlan tag is not allowed on simple zone")
    if kind == "vlan" and tag is None:
        raise die(f"{error_prefix}{NESTED}tag: missing vlan tag")
    if kind in {"vxlan", "evpn"} and tag is None:
        raise die(f"{error_prefix}{NESTED}tag: missing vxlan tag")
    if kind in {"vlan", "qinq"} and tag is not None and tag > 4096:
        words = "vlan tag max value is" if kind == "vlan" else "VLAN tag maximal value is"
        raise die(f"{error_prefix}{NESTED}tag: {words} 4096")
    if kind in {"vxlan", "evpn"} and tag is not None and tag > _LARGEST_VXLAN:
        raise die(f"{error_prefix}{NESTED}tag: vxlan tag max value is {_LARGEST_VXLAN}")
    _check_tag(call, row, kind, error_prefix)


def _check_tag(call: PveCall, row: Row, kind: str, error_prefix: str) -> None:
    """A VLAN tag must be unique in its zone or on its bridge."""
    sdn, tag = call.region.sdn, row.get("tag")
    for name, other in sdn.vnets.items() if tag is not None else ():
        if other is row or other.get("tag") != tag or name == row.get("vnet"):
            continue
        same_kind = sdn.zones.get(other["zone"], {}).get("type") == kind
        if kind == "vlan" and other["zone"] == row["zone"]:
            raise die(f"{error_prefix}{NESTED}tag: tag {tag} already exist in vnet {name}")
        if kind == "qinq" and other["zone"] == row["zone"]:
            where = f"zone {row['zone']} vnet {name}"
            raise die(f"{error_prefix}{NESTED}tag: tag {tag} already exist in {where}")
        if kind in {"vxlan", "evpn"} and same_kind:
            where = f"vnet {name} in zone {other['zone']}"
            raise die(f"{error_prefix}{NESTED}tag: vxlan tag {tag} already exist in {where} ")


def update_vnet(call: PveCall) -> None:
    error_prefix, sdn = "update sdn vnet object failed: ", call.region.sdn
    name = call.params.pop("vnet")
    if name not in sdn.vnets:
        raise die(f"sdn vnet '{name}' does not exist")
    check_vnet(call, name, "SDN.Allocate")
    check_digest(call, digest_of(sdn.vnets), error_prefix)
    changed = new_row(call, sdn.vnets[name], error_prefix)
    _check_zone(call, changed | {"vnet": name}, error_prefix)
    sdn.vnets[name] = changed


def delete_vnet(call: PveCall) -> None:
    name, sdn = call.params["vnet"], call.region.sdn
    if name not in sdn.vnets:
        raise die(f"sdn vnet '{name}' does not exist")
    check_vnet(call, name, "SDN.Allocate")
    if any(row["vnet"] == name for row in sdn.subnets.values()):
        text = "vnet: Can't delete vnet if subnets exists"
        raise die(f"delete sdn vnet object failed: {NESTED}{text}")
    del sdn.vnets[name]
    sdn.firewalls.pop(name, None)


_BASE, _ONE = "/cluster/sdn/vnets", "/cluster/sdn/vnets/{vnet}"
ROUTES = (
    ApiRoute("GET", _BASE, list_vnets, permission=anyone),
    ApiRoute("POST", _BASE, create_vnet, permission=perm("/sdn/zones/{zone}", "SDN.Allocate")),
    ApiRoute("GET", _ONE, get_vnet, permission=anyone),
    ApiRoute("PUT", _ONE, update_vnet, permission=anyone),
    ApiRoute("DELETE", _ONE, delete_vnet, permission=anyone),
)
