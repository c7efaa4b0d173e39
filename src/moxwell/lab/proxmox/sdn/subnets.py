"""``/cluster/sdn/vnets/{vnet}/subnets``: subnets, with their gateways in the IPAM."""

import ipaddress

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema.property_strings import split
from moxwell.lab.proxmox.errors import PveException, die, param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone
from moxwell.lab.proxmox.sdn import ipam as sdn_ipam
from moxwell.lab.proxmox.sdn.locking import locked
from moxwell.lab.proxmox.sdn.objects import check_digest, new_row, pending_row
from moxwell.lab.proxmox.sdn.section_types import SUBNET
from moxwell.lab.proxmox.sdn.vnets import check_vnet
from moxwell.lab.proxmox.state import Row, SimSdn

_DERIVED = ("cidr", "zone", "vnet")
_HOST_PREFIX = 32
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _subnet_row(ident: str, row: Row, digest: str | None) -> Row:
    network, _, mask = row["cidr"].partition("/")
    return {
        "id": ident,
        "subnet": ident,
        "network": network,
        "mask": mask,
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


def _row(call: PveCall, ident: str) -> Row | None:
    """A subnet as configured, running, or with pending changes."""
    sdn = call.region.sdn
    if call.get("pending"):
        return _pending(call, ident)
    running = sdn.running.get("subnets", {})
    rows, digest = (running, None) if call.get("running") else (sdn.subnets, digest_of(sdn.subnets))
    return _subnet_row(ident, rows[ident], digest) if ident in rows else None


def list_subnets(call: PveCall) -> list[Row]:
    vnet, sdn = call.params["vnet"], call.region.sdn
    check_vnet(call, vnet, "SDN.Audit", "SDN.Allocate")
    names = dict.fromkeys([*sdn.running.get("subnets", {}), *sdn.subnets])
    rows = [_row(call, ident) for ident in names]
    return [row for row in rows if row is not None and row["vnet"] == vnet]


def get_subnet(call: PveCall) -> Row:
    vnet, ident = call.params["vnet"], call.params["subnet"]
    check_vnet(call, vnet, "SDN.Audit", "SDN.Allocate")
    found = _row(call, ident)
    if found is None:
        raise _missing(ident)
    if found["vnet"] != vnet:
        raise param_error({"vnet": "wrong vnet"})
    return found


def _missing(ident: str) -> PveException:
    return die(f"sdn subnet '{ident}' does not exist")


def create_subnet(call: PveCall) -> None:
    vnet, sdn = call.params["vnet"], call.region.sdn
    check_vnet(call, vnet, "SDN.Allocate")
    cidr = call.params.pop("subnet")
    with locked(call, "create sdn subnet object failed"):
        zone = sdn.vnets[vnet]["zone"]
        ident = f"{zone}-{cidr.replace('/', '-')}"
        if ident in sdn.subnets:
            raise die(f"sdn subnet object ID '{ident}' already defined")
        if "/" not in cidr:  # the format takes the name of a subnet as well
            raise die("value does not look like a valid CIDR network")
        row = {**call.params, "cidr": cidr, "zone": zone}
        _check(sdn, row)
        _set_gateway(call, row, None)
        sdn.subnets[ident] = row


def _check(sdn: SimSdn, row: Row) -> None:
    if sdn.vnets[row["vnet"]].get("vlanaware"):
        raise param_error({"vnet": "you can't add a subnet on a vlanaware vnet"})
    network, gateway = ipaddress.ip_network(row["cidr"], strict=False), row.get("gateway")
    outside = gateway is not None and ipaddress.ip_address(gateway) not in network
    if outside and not _is_point_to_point(row):
        raise param_error({"gateway": f"{gateway} is not in subnet {row['cidr']}"})
    _check_ranges(row, network)


def _is_point_to_point(row: Row) -> bool:
    """A single IPv4 address, whose gateway is elsewhere and not in the IPAM."""
    gateway = row.get("gateway")
    is_v4 = gateway is not None and ipaddress.ip_address(gateway).version == 4
    return is_v4 and int(row["cidr"].partition("/")[2]) == _HOST_PREFIX


def _check_ranges(row: Row, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> None:
    valid: list[tuple[_Address, _Address]] = []
    for text in row.get("dhcp-range", []):
        ends = split(text, None)
        first, last = (ipaddress.ip_address(ends[f"{side}-address"]) for side in ("start", "end"))
        if int(first) > int(last):
            words = f"start-address {ends['start-address']} must be smaller than end-address"
            raise param_error({"dhcp-range": f"{words} {ends['end-address']}"})
        for side in ("start-address", "end-address"):
            if ipaddress.ip_address(ends[side]) not in network:
                place = f"{side} {ends[side]} is not in subnet {row['cidr']}"
                raise param_error({"dhcp-range": place})
        if any(int(first) <= int(b) and int(a) <= int(last) for a, b in valid):
            raise param_error({"dhcp-range": "dhcp ranges must not overlap"})
        valid.append((first, last))


def _set_gateway(call: PveCall, row: Row, old: Row | None) -> None:
    """Register the gateway in the IPAM of the zone."""
    sdn, gateway = call.region.sdn, row.get("gateway")
    if not sdn.zones.get(row["zone"], {}).get("ipam") or _is_point_to_point(row):
        return
    before = old.get("gateway") if old else None
    if gateway and gateway != before:
        sdn_ipam.reserve(sdn, row, {"ip": gateway, "gateway": 1})
    if before and gateway != before:
        sdn.addresses = [
            a for a in sdn.addresses if a["ip"] != before or not sdn_ipam.in_subnet(a, row)
        ]


def update_subnet(call: PveCall) -> None:
    sdn, ident = call.region.sdn, call.params.pop("subnet")
    check_vnet(call, call.params["vnet"], "SDN.Allocate")
    with locked(call, "update sdn subnet object failed"):
        if ident not in sdn.subnets:
            raise _missing(ident)
        check_digest(call, digest_of(sdn.subnets))
        changed = new_row(call, sdn.subnets[ident], SUBNET)
        _check(sdn, changed)
        _set_gateway(call, changed, sdn.subnets[ident])
        sdn.subnets[ident] = changed


def delete_subnet(call: PveCall) -> None:
    """A subnet that does not exist is an error only if its zone has an IPAM."""
    sdn, ident, vnet = call.region.sdn, call.params["subnet"], call.params["vnet"]
    check_vnet(call, vnet, "SDN.Allocate")
    with locked(call, "delete sdn subnet object failed"):
        row = sdn.subnets.get(ident)
        if sdn.zones.get(sdn.vnets[vnet]["zone"], {}).get("ipam"):
            if row is None:
                raise die("zone '' doesn't exist in IPAM DB")
            sdn_ipam.update_allocations(call.region)
            sdn_ipam.forget_subnet(sdn, row)
        sdn.subnets.pop(ident, None)


_SUBNETS = "/cluster/sdn/vnets/{vnet}/subnets"
_SUBNET = f"{_SUBNETS}/{{subnet}}"

ROUTES = (
    ApiRoute("GET", _SUBNETS, list_subnets, permission=anyone),
    ApiRoute("POST", _SUBNETS, create_subnet, permission=anyone),
    ApiRoute("GET", _SUBNET, get_subnet, permission=anyone),
    ApiRoute("PUT", _SUBNET, update_subnet, permission=anyone),
    ApiRoute("DELETE", _SUBNET, delete_subnet, permission=anyone),
)
