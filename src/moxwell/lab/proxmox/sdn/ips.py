"""``/cluster/sdn/vnets/{vnet}/ips`` and ``/cluster/sdn/ipams/{ipam}/status``: addresses."""

import ipaddress

from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.sdn import ipam
from moxwell.lab.proxmox.state import Row, SimSdn


def ipam_status(call: PveCall) -> list[Row]:
    """The addresses of the running subnets."""
    if call.params["ipam"] != "pve":
        where = "at /usr/share/perl5/PVE/API2/Network/SDN/Ipams.pm line 319."
        raise die(f"Currently only PVE IPAM is supported! {where}")
    ipam.update_allocations(call.region)
    return [
        row
        for row in ipam.visible_addresses(call.region.sdn)
        if call.has_privileges(
            f"/sdn/zones/{row['zone']}/{row['vnet']}", "SDN.Audit", "SDN.Allocate", any_of=True
        )
    ]


def create_address(call: PveCall) -> None:
    """POST ips: an address without a guest."""
    ipam.update_allocations(call.region)
    _add(call.region.sdn, call.params)


def _add(sdn: SimSdn, request: Row) -> None:
    subnet = ipam.find_subnet(sdn, request["vnet"], request["ip"])
    if ipam.server_of(sdn, request["vnet"]):
        entry: Row = {k: request[k] for k in ("ip", "mac", "vmid") if k in request}
        if subnet.get("dnszoneprefix"):
            entry["hostname"] = f".{subnet['dnszoneprefix']}"
        ipam.reserve(sdn, subnet, entry)


def _remove(sdn: SimSdn, vnet: str, ip: str) -> None:
    subnet = ipam.find_subnet(sdn, vnet, ip)
    if not ipam.server_of(sdn, vnet):
        return
    kept = [a for a in sdn.addresses if a["ip"] != ip or not ipam.in_subnet(a, subnet)]
    if len(kept) == len(sdn.addresses):
        raise die(f"IP '{ip}' does not exist in IPAM DB")
    sdn.addresses = kept


def update_address(call: PveCall) -> None:
    """PUT ips: the address of a network device replaces its previous one, which must exist."""
    sdn, given = call.region.sdn, call.params
    ipam.update_allocations(call.region)
    old = _known_address(sdn, given)
    _remove(sdn, given["vnet"], old)
    try:
        _add(sdn, given)
    except PveException as problem:
        _add(sdn, given | {"ip": old})
        raise die(f"{problem.message}\n") from problem


def _known_address(sdn: SimSdn, given: Row) -> str:
    """The address of a MAC address with the same family, or "" if there is none."""
    if not ipam.has_dhcp(sdn, given["vnet"]):
        return ""
    family = ipaddress.ip_address(given["ip"]).version
    return next(
        (
            str(a["ip"])
            for a in sdn.addresses
            if a.get("mac") == given["mac"] and ipaddress.ip_address(a["ip"]).version == family
        ),
        "",
    )


def delete_address(call: PveCall) -> None:
    try:
        _remove(call.region.sdn, call.params["vnet"], call.params["ip"])
    except PveException as problem:
        raise die(f"{problem.message}\n") from problem


_IPS = "/cluster/sdn/vnets/{vnet}/ips"
_ALLOCATE = perm("/sdn/zones/{zone}/{vnet}", "SDN.Allocate")
ROUTES = (
    ApiRoute("GET", "/cluster/sdn/ipams/{ipam}/status", ipam_status, permission=anyone),
    ApiRoute("POST", _IPS, create_address, permission=_ALLOCATE),
    ApiRoute("PUT", _IPS, update_address, permission=_ALLOCATE),
    ApiRoute("DELETE", _IPS, delete_address, permission=_ALLOCATE),
)
