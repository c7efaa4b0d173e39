"""``/cluster/sdn/vnets``: virtual networks of a zone."""

from collections.abc import Iterator

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.errors import PveException, bad_params, die, param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.sdn.locking import locked
from moxwell.lab.proxmox.sdn.objects import check_digest, listing, new_row, object_row
from moxwell.lab.proxmox.sdn.section_types import VNET
from moxwell.lab.proxmox.state import Row, SimSdn

_LARGEST_VLAN, _LARGEST_VXLAN = 4096, 16777216
_SEE = ("SDN.Audit", "SDN.Allocate")


def list_vnets(call: PveCall) -> list[Row]:
    return [row for row in listing(call, "vnets", "vnet") if _may_see(call, row)]


def _may_see(call: PveCall, row: Row) -> bool:
    zone = row.get("zone") or row.get("pending", {}).get("zone")
    return call.has_privileges(f"/sdn/zones/{zone}/{row['vnet']}", *_SEE, any_of=True)


def get_vnet(call: PveCall) -> Row:
    check_vnet(call, call.params["vnet"], *_SEE)
    row = object_row(call, "vnets", call.params["vnet"], "vnet")
    if row is None:
        raise _missing(call.params["vnet"])
    return row


def _missing(vnet: str) -> PveException:
    return die(f"sdn vnet '{vnet}' does not exist")


def check_vnet(call: PveCall, vnet: str, *privs: str) -> None:
    """Check that a vnet is configured and that the caller has any of the privileges."""
    if vnet not in call.region.sdn.vnets:
        raise _missing(vnet)
    call.check(f"/sdn/zones/{call.region.sdn.vnets[vnet]['zone']}/{vnet}", *privs, any_of=True)


def create_vnet(call: PveCall) -> None:
    sdn, name = call.region.sdn, call.params.pop("vnet")
    with locked(call, "create sdn vnet object failed"):
        if name in sdn.vnets:
            raise die(f"sdn vnet object ID '{name}' already defined")
        row = {"type": "vnet", **call.params}
        _check(sdn, name, row)
        sdn.vnets[name] = row


def _check(sdn: SimSdn, name: str, row: Row) -> None:
    """The checks of the zone's type, then those of all vnets."""
    zone = sdn.zones.get(row["zone"])
    if zone is None:
        where = "at /usr/share/perl5/PVE/API2/Network/SDN/Vnets.pm line 232."
        raise die(f"cannot lookup undefined type! {where}")
    _check_tag(zone["type"], row)
    for text in _same_tags(sdn, name, row, zone["type"]):
        raise bad_params(tag=text)
    if row.get("vlanaware") and _has_subnets(sdn, name):
        raise bad_params(vlanaware="vlanaware vnet is not compatible with subnets")


def _check_tag(kind: str, row: Row) -> None:
    tag = row.get("tag")
    if kind == "simple" and tag is not None:
        raise bad_params(tag="vlan tag is not allowed on simple zone")
    if kind == "vlan" and tag is None:
        raise bad_params(tag="missing vlan tag")
    if kind in {"vxlan", "evpn"} and tag is None:
        raise bad_params(tag="missing vxlan tag")
    if kind == "vlan" and tag is not None and tag > _LARGEST_VLAN:
        raise bad_params(tag=f"vlan tag max value is {_LARGEST_VLAN}")
    if kind == "qinq" and tag is not None and tag > _LARGEST_VLAN:
        raise bad_params(tag=f"VLAN tag maximal value is {_LARGEST_VLAN}")
    if kind in {"vxlan", "evpn"} and tag is not None and tag > _LARGEST_VXLAN:
        raise bad_params(tag=f"vxlan tag max value is {_LARGEST_VXLAN}")
    if kind == "evpn" and row.get("vlanaware"):
        raise param_error({"vlan-aware": "vlan-aware option can't be enabled with evpn"})


def _same_tags(sdn: SimSdn, name: str, row: Row, kind: str) -> Iterator[str]:
    """What other vnets have in common with this one that must be unique."""
    tag, zone = row.get("tag"), row["zone"]
    for ident, other in sorted(sdn.vnets.items()):
        if ident == name or other.get("tag") != tag:
            continue
        same_zone = other["zone"] == zone
        if kind == "vlan" and same_zone:
            yield f"tag {tag} already exist in vnet {ident}"
        elif kind == "qinq" and same_zone:
            what = f"tag {tag} already exist" if tag else "tag-less vnet already exists"
            yield f"{what} in zone {zone} vnet {ident}"
        elif kind in {"vxlan", "evpn"} and _is_vxlan(sdn, other["zone"]):
            yield f"vxlan tag {tag} already exist in vnet {ident} in zone {other['zone']} "


def _is_vxlan(sdn: SimSdn, zone: str) -> bool:
    return sdn.zones.get(zone, {}).get("type") in ("vxlan", "evpn")


def _has_subnets(sdn: SimSdn, vnet: str) -> bool:
    return any(row["vnet"] == vnet for row in sdn.subnets.values())


def update_vnet(call: PveCall) -> None:
    sdn, name = call.region.sdn, call.params.pop("vnet")
    check_vnet(call, name, "SDN.Allocate")
    with locked(call, "update sdn vnet object failed"):
        check_digest(call, digest_of(sdn.vnets))
        old = sdn.vnets[name]
        changed = new_row(call, old, VNET)
        if changed["zone"] != old["zone"] and _has_subnets(sdn, name):
            raise bad_params(zone="can't change zone if subnets exist")
        _check(sdn, name, changed)
        sdn.vnets[name] = changed


def delete_vnet(call: PveCall) -> None:
    name, sdn = call.params["vnet"], call.region.sdn
    check_vnet(call, name, "SDN.Allocate")
    with locked(call, "delete sdn vnet object failed"):
        if _has_subnets(sdn, name):
            raise bad_params(vnet="Can't delete vnet if subnets exists")
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
