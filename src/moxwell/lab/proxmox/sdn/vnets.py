"""``/cluster/sdn/vnets``: vnets, their subnets and IP allocations."""

import ipaddress
from typing import Any

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.params import DIGEST
from moxwell.lab.proxmox.errors import FormatError, die, param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Param
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.sdn import ipam as sdn_ipam
from moxwell.lab.proxmox.sdn.zones import by_version, change, listing, pending_row
from moxwell.lab.proxmox.state import Row

_NESTED = "400 Parameter verification failed.\n"


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
    _check(call, call.params["vnet"], "SDN.Audit", "SDN.Allocate")
    return rows[call.params["vnet"]]


def _check(call: PveCall, vnet: str, *privs: str) -> None:
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
        raise die(f"{error_prefix}{_NESTED}tag: vlan tag is not allowed on simple zone")
    if kind == "vlan" and tag is None:
        raise die(f"{error_prefix}{_NESTED}tag: missing vlan tag")
    if kind in {"vxlan", "evpn"} and tag is None:
        raise die(f"{error_prefix}{_NESTED}tag: missing vxlan tag")
    if kind in {"vlan", "qinq"} and tag is not None and tag > 4096:
        words = "vlan tag max value is" if kind == "vlan" else "VLAN tag maximal value is"
        raise die(f"{error_prefix}{_NESTED}tag: {words} 4096")
    _check_tag(call, row, kind, error_prefix)


def _check_tag(call: PveCall, row: Row, kind: str, error_prefix: str) -> None:
    """A VLAN tag must be unique in its zone or on its bridge."""
    sdn, tag = call.region.sdn, row.get("tag")
    for name, other in sdn.vnets.items() if tag is not None else ():
        if other is row or other.get("tag") != tag or name == row.get("vnet"):
            continue
        same_kind = sdn.zones.get(other["zone"], {}).get("type") == kind
        if kind == "vlan" and other["zone"] == row["zone"]:
            raise die(f"{error_prefix}{_NESTED}tag: tag {tag} already exist in vnet {name}")
        if kind == "qinq" and other["zone"] == row["zone"]:
            where = f"zone {row['zone']} vnet {name}"
            raise die(f"{error_prefix}{_NESTED}tag: tag {tag} already exist in {where}")
        if kind in {"vxlan", "evpn"} and same_kind:
            where = f"vnet {name} in zone {other['zone']}"
            raise die(f"{error_prefix}{_NESTED}tag: vxlan tag {tag} already exist in {where} ")


def update_vnet(call: PveCall) -> None:
    error_prefix, sdn = "update sdn vnet object failed: ", call.region.sdn
    name = call.params.pop("vnet")
    if name not in sdn.vnets:
        raise die(f"sdn vnet '{name}' does not exist")
    _check(call, name, "SDN.Allocate")
    _check_zone(call, sdn.vnets[name] | call.params | {"vnet": name}, error_prefix)
    change(call, sdn.vnets[name], digest_of(sdn.vnets), error_prefix)


def delete_vnet(call: PveCall) -> None:
    name, sdn = call.params["vnet"], call.region.sdn
    if name not in sdn.vnets:
        raise die(f"sdn vnet '{name}' does not exist")
    _check(call, name, "SDN.Allocate")
    if any(row["vnet"] == name for row in sdn.subnets.values()):
        text = "vnet: Can't delete vnet if subnets exists"
        raise die(f"delete sdn vnet object failed: {_NESTED}{text}")
    del sdn.vnets[name]


# ---------------------------------------------------------------- subnets


def subnet_id(value: str) -> None:
    text = value.split("-", 1)[1].replace("-", "/") if value.count("-") == 2 else value
    formats.cidr(text)


def dhcp_range(value: str) -> None:
    parts = dict(item.partition("=")[::2] for item in value.split(","))
    if set(parts) != {"start-address", "end-address"}:
        raise FormatError("format error\n")


def _subnet_row(call: PveCall, ident: str, row: Row) -> Row:
    network = ipaddress.ip_network(row["cidr"], strict=False)
    return {
        "id": ident,
        "subnet": ident,
        "network": str(network.network_address),
        "mask": str(network.prefixlen),
        "digest": digest_of(call.region.sdn.subnets),
        "dhcp-range": [],
        **row,
    }


def list_subnets(call: PveCall) -> list[Row]:
    vnet, sdn = call.params["vnet"], call.region.sdn
    if call.get("running"):
        found = sdn.running.get("subnets", {}).items()
        return [_subnet_row(call, k, r) for k, r in found if r["vnet"] == vnet]
    if call.get("pending"):
        old = sdn.running.get("subnets", {})
        names = dict.fromkeys([*sdn.subnets, *old])
        rows = [pending_row("subnet", n, sdn.subnets.get(n), old.get(n)) for n in names]
        return [row for row in rows if row is not None]
    return [_subnet_row(call, k, r) for k, r in sdn.subnets.items() if r["vnet"] == vnet]


def get_subnet(call: PveCall) -> Row:
    row = call.region.sdn.subnets.get(call.params["subnet"])
    if row is None:
        raise die(f"sdn subnet '{call.params['subnet']}' does not exist")
    if row["vnet"] != call.params["vnet"]:
        raise param_error({"vnet": "wrong vnet"})
    return _subnet_row(call, call.params["subnet"], row)


def create_subnet(call: PveCall) -> None:
    error_prefix, sdn, vnet = (
        "create sdn subnet object failed: ",
        call.region.sdn,
        call.params["vnet"],
    )
    if vnet not in sdn.vnets:
        raise die(f"sdn vnet '{vnet}' does not exist")
    _check(call, vnet, "SDN.Allocate")
    cidr = call.params.pop("subnet")
    call.params.pop("lock-token", None)
    zone = sdn.vnets[vnet]["zone"]
    ident = f"{zone}-{cidr.replace('/', '-')}"
    if ident in sdn.subnets:
        raise die(f"{error_prefix}sdn subnet object ID '{ident}' already defined")
    row = {**call.params, "cidr": cidr, "zone": zone}
    if sdn.vnets[vnet].get("vlanaware"):
        raise die(f"{error_prefix}{_NESTED}vnet: you can't add a subnet on a vlanaware vnet")
    _check_gateway(row, error_prefix)
    _check_ranges(row, error_prefix)
    sdn.subnets[ident] = row
    if "gateway" in row and sdn.zones[zone].get("ipam") == "pve":
        entry = {"zone": zone, "vnet": vnet, "subnet": cidr, "ip": row["gateway"], "gateway": 1}
        sdn.addresses.append(entry)


def _check_gateway(row: Row, error_prefix: str) -> None:
    gateway, cidr = row.get("gateway"), row["cidr"]
    if gateway is None:
        return
    network = ipaddress.ip_network(cidr, strict=False)
    if ipaddress.ip_address(gateway) not in network and network.prefixlen < 32:
        raise die(f"{error_prefix}{_NESTED}gateway: {gateway} is not in subnet {cidr}")


def _check_ranges(row: Row, error_prefix: str) -> None:
    network = ipaddress.ip_network(row["cidr"], strict=False)
    for text in row.get("dhcp-range", []):
        parts = dict(item.partition("=")[::2] for item in text.split(","))
        for side in ("start-address", "end-address"):
            if ipaddress.ip_address(parts[side]) not in network:
                place = f"{side} {parts[side]} is not in subnet {row['cidr']}"
                raise die(f"{error_prefix}{_NESTED}dhcp-range: {place}")


def update_subnet(call: PveCall) -> None:
    error_prefix, sdn, ident = (
        "update sdn subnet object failed: ",
        call.region.sdn,
        call.params["subnet"],
    )
    if ident not in sdn.subnets:
        raise die(f"sdn subnet '{ident}' does not exist")
    for name in ("subnet", "vnet"):
        call.params.pop(name, None)
    _check_gateway(sdn.subnets[ident] | call.params, error_prefix)
    change(call, sdn.subnets[ident], digest_of(sdn.subnets), error_prefix)


def delete_subnet(call: PveCall) -> None:
    sdn, ident = call.region.sdn, call.params["subnet"]
    if ident not in sdn.subnets:
        raise die(f"sdn subnet '{ident}' does not exist")
    _check(call, sdn.subnets[ident]["vnet"], "SDN.Allocate")
    cidr = sdn.subnets[ident]["cidr"]
    sdn_ipam.update_allocations(call.region)
    used = [a for a in sdn.addresses if a["subnet"] == cidr and not a.get("gateway")]
    if used:
        text = f"cannot delete subnet '{ident}', not empty"
        raise die(f"delete sdn subnet object failed: {text}")
    sdn.addresses = [a for a in sdn.addresses if a["subnet"] != cidr]
    del sdn.subnets[ident]


# ---------------------------------------------------------------- ips


def put_address(call: PveCall) -> None:
    region, p = call.region, call.params
    sdn_ipam.update_allocations(region)
    found = [s for s in region.sdn.subnets.values() if s["vnet"] == p["vnet"]]
    subnet = next((s for s in found if _inside(p["ip"], s["cidr"])), None)
    if subnet is None:
        raise die(f"can't find any subnet for ip {p['ip']}")
    others = [a for a in region.sdn.addresses if a["ip"] != p["ip"]]
    if call.method == "POST" and len(others) != len(region.sdn.addresses):
        raise die(f"IP '{p['ip']}' already exist")
    entry = {"zone": p["zone"], "vnet": p["vnet"], "subnet": subnet["cidr"], "ip": p["ip"]}
    entry |= {k: p[k] for k in ("mac", "vmid") if k in p}
    region.sdn.addresses = [*others, entry]


def _inside(ip: str, cidr: str) -> bool:
    return ipaddress.ip_address(ip) in ipaddress.ip_network(cidr, strict=False)


def drop_address(call: PveCall) -> None:
    sdn = call.region.sdn
    sdn.addresses = [a for a in sdn.addresses if a["ip"] != call.params["ip"]]


_BOOL = Param("boolean")
_LOCK = {"lock-token": Param(version=9)}
_VNET: dict[str, Any] = {
    "alias": Param(max_length=256),
    "isolate-ports": _BOOL,
    "tag": Param("integer", minimum=1, maximum=16777215),
    "vlanaware": _BOOL,
    **_LOCK,
}
_NEW = {"zone": Param(optional=False), "type": Param(enum=("vnet",))}
_EDIT = {"delete": Param(), "digest": DIGEST}
_VIEW = {"pending": _BOOL, "running": _BOOL}
_SUBNET = {"subnet": Param(optional=False, format=subnet_id)}
_FIELDS: dict[str, Any] = {
    "dhcp-dns-server": Param(format=formats.ip),
    "dhcp-range": Param("array", format=dhcp_range),
    "dnszoneprefix": Param(format=formats.dns_name),
    "gateway": Param(format=formats.ip),
    "snat": _BOOL,
    **_LOCK,
}
_KIND = {"type": Param(optional=False, enum=("subnet",))}
_IP = {
    "ip": Param(optional=False, format=formats.ip),
    "mac": Param(format=formats.mac),
    "zone": Param(optional=False),
}
_BASE, _ONE = "/cluster/sdn/vnets", "/cluster/sdn/vnets/{vnet}"
_SUBS, _SUB = f"{_ONE}/subnets", f"{_ONE}/subnets/{{subnet}}"
_ZONE = perm("/sdn/zones/{zone}", "SDN.Allocate")
_IPS = perm("/sdn/zones/{zone}/{vnet}", "SDN.Allocate")

ROUTES = (
    ApiRoute("GET", _BASE, list_vnets, _VIEW, anyone),
    *by_version("POST", _BASE, create_vnet, _VNET | _NEW, _ZONE, "vnet"),
    *by_version("GET", _ONE, get_vnet, _VIEW, anyone, "vnet"),
    *by_version("PUT", _ONE, update_vnet, _VNET | _EDIT | {"zone": Param()}, anyone, "vnet"),
    *by_version("DELETE", _ONE, delete_vnet, _LOCK, anyone, "vnet"),
    *by_version("GET", _SUBS, list_subnets, _VIEW, anyone, "vnet"),
    *by_version("POST", _SUBS, create_subnet, _SUBNET | _FIELDS | _KIND, anyone, "vnet"),
    *by_version("GET", _SUB, get_subnet, _SUBNET | _VIEW, anyone, "vnet"),
    *by_version("PUT", _SUB, update_subnet, _SUBNET | _FIELDS | _EDIT, anyone, "vnet"),
    *by_version("DELETE", _SUB, delete_subnet, _SUBNET | _LOCK, anyone, "vnet"),
    *by_version("POST", f"{_ONE}/ips", put_address, _IP, _IPS, "vnet"),
    *by_version("PUT", f"{_ONE}/ips", put_address, _IP | {"vmid": Param("integer")}, _IPS, "vnet"),
    *by_version("DELETE", f"{_ONE}/ips", drop_address, _IP, _IPS, "vnet"),
)
