"""``/cluster/sdn/vnets/{vnet}/subnets`` and ``/ips``: subnets and addresses in the IPAM."""

import ipaddress

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema.property_strings import split
from moxwell.lab.proxmox.errors import die, param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.sdn import ipam as sdn_ipam
from moxwell.lab.proxmox.sdn.objects import NESTED, check_digest, new_row, pending_row
from moxwell.lab.proxmox.sdn.vnets import check_vnet
from moxwell.lab.proxmox.state import Row

_DERIVED = ("cidr", "zone", "vnet")


def _subnet_row(ident: str, row: Row, digest: str | None) -> Row:
    network = ipaddress.ip_network(row["cidr"], strict=False)
    return {
        "id": ident,
        "subnet": ident,
        "network": str(network.network_address),
        "mask": str(network.prefixlen),
        "digest": digest,
        **row,
        "dhcp-range": [split(text, None) for text in row.get("dhcp-range", [])],
    }


def _pending(call: PveCall, ident: str) -> Row | None:
    """A subnet with its pending changes; what its name implies is never pending."""
    sdn = call.region.sdn
    new, old = sdn.subnets.get(ident), sdn.running.get("subnets", {}).get(ident)
    known = new or old
    if known is None:
        return None
    row = pending_row(
        "subnet",
        ident,
        {k: v for k, v in new.items() if k not in _DERIVED} if new else None,
        {k: v for k, v in old.items() if k not in _DERIVED} if old else None,
    )
    shown = _subnet_row(ident, {k: known[k] for k in _DERIVED} | (old or {}), None)
    return shown | {k: v for k, v in (row or {}).items() if k != "dhcp-range"}


def list_subnets(call: PveCall) -> list[Row]:
    vnet, sdn = call.params["vnet"], call.region.sdn
    check_vnet(call, vnet, "SDN.Audit", "SDN.Allocate")
    running = sdn.running.get("subnets", {})
    if call.get("running"):
        return [_subnet_row(k, r, None) for k, r in running.items() if r["vnet"] == vnet]
    if call.get("pending"):
        both = {**running, **sdn.subnets}
        rows = [_pending(call, ident) for ident, row in both.items() if row["vnet"] == vnet]
        return [row for row in rows if row is not None]
    digest = digest_of(sdn.subnets)
    return [_subnet_row(k, r, digest) for k, r in sdn.subnets.items() if r["vnet"] == vnet]


def get_subnet(call: PveCall) -> Row:
    ident, sdn = call.params["subnet"], call.region.sdn
    rows = sdn.running.get("subnets", {}) if call.get("running") else sdn.subnets
    found = _pending(call, ident) if call.get("pending") else rows.get(ident)
    if found is None:
        raise die(f"sdn subnet '{ident}' does not exist")
    if found["vnet"] != call.params["vnet"]:
        raise param_error({"vnet": "wrong vnet"})
    if call.get("pending"):
        return found
    return _subnet_row(ident, found, None if call.get("running") else digest_of(sdn.subnets))


def create_subnet(call: PveCall) -> None:
    error_prefix, sdn = "create sdn subnet object failed: ", call.region.sdn
    vnet = call.params["vnet"]
    if vnet not in sdn.vnets:
        raise die(f"sdn vnet '{vnet}' does not exist")
    check_vnet(call, vnet, "SDN.Allocate")
    cidr = call.params.pop("subnet")
    call.params.pop("lock-token", None)
    zone = sdn.vnets[vnet]["zone"]
    ident = f"{zone}-{cidr.replace('/', '-')}"
    if ident in sdn.subnets:
        raise die(f"{error_prefix}sdn subnet object ID '{ident}' already defined")
    row = {**call.params, "cidr": cidr, "zone": zone}
    if sdn.vnets[vnet].get("vlanaware"):
        raise die(f"{error_prefix}{NESTED}vnet: you can't add a subnet on a vlanaware vnet")
    _check_addresses(row, error_prefix)
    sdn.subnets[ident] = row
    _set_gateway(call, row)


def _set_gateway(call: PveCall, row: Row) -> None:
    """Register the gateway in the IPAM of the zone."""
    sdn = call.region.sdn
    others = [a for a in sdn.addresses if not (a.get("gateway") and sdn_ipam.in_subnet(a, row))]
    if sdn.zones.get(row["zone"], {}).get("ipam") != "pve" or "gateway" not in row:
        sdn.addresses = others
        return
    entry = {"zone": row["zone"], "vnet": row["vnet"], "subnet": row["cidr"]}
    sdn.addresses = [*others, {**entry, "ip": row["gateway"], "gateway": 1}]


def _check_addresses(row: Row, error_prefix: str) -> None:
    network, gateway = ipaddress.ip_network(row["cidr"], strict=False), row.get("gateway")
    nested = error_prefix + NESTED
    outside = gateway is not None and ipaddress.ip_address(gateway) not in network
    if outside and network.prefixlen < 32:
        raise die(f"{nested}gateway: {gateway} is not in subnet {row['cidr']}")
    for text in row.get("dhcp-range", []):
        ends = split(text, None)
        first, last = ends["start-address"], ends["end-address"]
        if int(ipaddress.ip_address(last)) < int(ipaddress.ip_address(first)):
            words = f"start-address {first} must be smaller than end-address {last}"
            raise die(f"{nested}dhcp-range: {words}")
        for side in ("start-address", "end-address"):
            if ipaddress.ip_address(ends[side]) not in network:
                place = f"{side} {ends[side]} is not in subnet {row['cidr']}"
                raise die(f"{nested}dhcp-range: {place}")


def update_subnet(call: PveCall) -> None:
    error_prefix, sdn = "update sdn subnet object failed: ", call.region.sdn
    ident = call.params.pop("subnet")
    call.params.pop("vnet", None)
    if ident not in sdn.subnets:
        raise die(f"{error_prefix}sdn subnet '{ident}' does not exist")
    check_vnet(call, sdn.subnets[ident]["vnet"], "SDN.Allocate")
    check_digest(call, digest_of(sdn.subnets), error_prefix)
    changed = new_row(call, sdn.subnets[ident], error_prefix)
    _check_addresses(changed, error_prefix)
    sdn.subnets[ident] = changed
    _set_gateway(call, changed)


def delete_subnet(call: PveCall) -> None:
    """A subnet that does not exist is no error."""
    sdn, ident = call.region.sdn, call.params["subnet"]
    check_vnet(call, call.params["vnet"], "SDN.Allocate")
    if ident not in sdn.subnets:
        return
    row = sdn.subnets[ident]
    sdn_ipam.update_allocations(call.region)
    mine = [a for a in sdn.addresses if sdn_ipam.in_subnet(a, row)]
    if any(not a.get("gateway") for a in mine):
        text = f"cannot delete subnet '{row['cidr']}', not empty"
        raise die(f"delete sdn subnet object failed: {text}")
    sdn.addresses = [a for a in sdn.addresses if a not in mine]
    del sdn.subnets[ident]


def create_address(call: PveCall) -> None:
    """POST ips: an address without a guest."""
    sdn_ipam.update_allocations(call.region)
    sdn_ipam.reserve(call.region, call.params)


def update_address(call: PveCall) -> None:
    """PUT ips: the address of a network device replaces its previous one."""
    sdn, mac = call.region.sdn, call.params.get("mac")
    sdn_ipam.update_allocations(call.region)
    family = ipaddress.ip_address(call.params["ip"]).version
    sdn.addresses = [
        a
        for a in sdn.addresses
        if not (
            mac is not None
            and str(a.get("mac", "")).lower() == mac.lower()
            and a["vnet"] == call.params["vnet"]
            and ipaddress.ip_address(a["ip"]).version == family
        )
    ]
    sdn_ipam.reserve(call.region, call.params)


def delete_address(call: PveCall) -> None:
    sdn, ip = call.region.sdn, call.params["ip"]
    sdn_ipam.find_subnet(call.region, call.params["vnet"], call.params["zone"], ip)
    kept = [a for a in sdn.addresses if (a["ip"], a["vnet"]) != (ip, call.params["vnet"])]
    if len(kept) == len(sdn.addresses):
        raise die(f"IP '{ip}' does not exist in IPAM DB\n")
    sdn.addresses = kept


_ONE = "/cluster/sdn/vnets/{vnet}"
_SUBNETS, _SUBNET, _IPS = f"{_ONE}/subnets", f"{_ONE}/subnets/{{subnet}}", f"{_ONE}/ips"
_ALLOCATE = perm("/sdn/zones/{zone}/{vnet}", "SDN.Allocate")

ROUTES = (
    ApiRoute("GET", _SUBNETS, list_subnets, permission=anyone),
    ApiRoute("POST", _SUBNETS, create_subnet, permission=anyone),
    ApiRoute("GET", _SUBNET, get_subnet, permission=anyone),
    ApiRoute("PUT", _SUBNET, update_subnet, permission=anyone),
    ApiRoute("DELETE", _SUBNET, delete_subnet, permission=anyone),
    ApiRoute("POST", _IPS, create_address, permission=_ALLOCATE),
    ApiRoute("PUT", _IPS, update_address, permission=_ALLOCATE),
    ApiRoute("DELETE", _IPS, delete_address, permission=_ALLOCATE),
)
