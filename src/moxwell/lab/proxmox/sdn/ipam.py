"""
The built-in ``pve`` IPAM.

A gateway is registered with its subnet. Network devices on a vnet in a zone with DHCP get the next
free address of the ranges (or of the subnet), and release it when removed. Allocations are updated
on read, so code that changes guests does not deal with them.
"""

import ipaddress
import re

from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.state import Row, SimRegion, SimSdn

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")


def update_allocations(region: SimRegion) -> None:
    """Allocate addresses for all network devices and release those of removed ones."""
    if not any(zone.get("dhcp") for zone in region.sdn.running.get("zones", {}).values()):
        return
    cards = _cards(region)
    places = {(mac, bridge) for _, mac, bridge in cards}
    for row in region.sdn.addresses:
        if (row.get("mac"), row["vnet"]) in places:
            row["attached"] = 1
    kept = [
        a
        for a in region.sdn.addresses
        if not a.get("attached") or (a.get("mac"), a["vnet"]) in places
    ]
    region.sdn.addresses = kept
    have = {(a.get("mac"), a["vnet"]) for a in kept}
    for vmid, mac, bridge in cards:
        if (mac, bridge) not in have:
            name = str(region.guests[vmid].conf.get("name", ""))
            allocate(region, bridge, vmid, mac, name)


def visible_addresses(sdn: SimSdn) -> list[Row]:
    """The addresses of applied subnets in zones whose DHCP uses this IPAM."""
    zones, running = sdn.running.get("zones", {}), sdn.running.get("subnets", {}).values()
    shown = [
        address
        for address in sdn.addresses
        if zones.get(address["zone"], {}).get("ipam") == "pve"
        and zones[address["zone"]].get("dhcp")
        and any(in_subnet(address, subnet) for subnet in running)
    ]
    return [{k: v for k, v in row.items() if k != "attached"} for row in shown]


def in_subnet(address: Row, subnet: Row) -> bool:
    return bool(address["subnet"] == subnet["cidr"] and address["zone"] == subnet["zone"])


def _zone(sdn: SimSdn, vnet: str) -> Row:
    return sdn.zones.get(sdn.vnets.get(vnet, {}).get("zone", ""), {})


def server_of(sdn: SimSdn, vnet: str) -> str:
    """The IPAM of a vnet's zone, or ""."""
    return str(_zone(sdn, vnet).get("ipam") or "")


def has_dhcp(sdn: SimSdn, vnet: str) -> bool:
    """Whether network devices on a vnet get addresses."""
    return bool(server_of(sdn, vnet) and _zone(sdn, vnet).get("dhcp"))


def find_subnet(sdn: SimSdn, vnet: str, ip: str) -> Row:
    """The running subnet of an address."""
    if vnet not in sdn.vnets:
        raise die("no sdn zone ID specified")
    for _, subnet in sorted(sdn.running.get("subnets", {}).items()):
        network = ipaddress.ip_network(subnet["cidr"], strict=False)
        if ip and subnet["vnet"] == vnet and ipaddress.ip_address(ip) in network:
            return subnet
    where = "at /usr/share/perl5/PVE/Network/SDN/Subnets.pm line 115."
    raise die(f"can't find any subnet for ip {ip} {where}")


def reserve(sdn: SimSdn, subnet: Row, entry: Row) -> None:
    """Store an address of a subnet; a gateway may be stored twice."""
    ip = str(ipaddress.ip_address(entry["ip"]))
    known = [a for a in sdn.addresses if a["ip"] == ip and in_subnet(a, subnet)]
    if any(not (entry.get("gateway") and a.get("gateway")) for a in known):
        raise die(f"IP '{ip}' already exist")
    place = {"zone": subnet["zone"], "vnet": subnet["vnet"], "subnet": subnet["cidr"]}
    kept = [a for a in sdn.addresses if a not in known]
    sdn.addresses = [*kept, place | entry | {"ip": ip}]


def forget_subnet(sdn: SimSdn, subnet: Row) -> None:
    """Remove a subnet that has no address but its gateway's."""
    mine = [a for a in sdn.addresses if in_subnet(a, subnet)]
    if len(mine) > 1 or any(not a.get("gateway") for a in mine):
        raise die(f"cannot delete subnet '{subnet['cidr']}', not empty")
    sdn.addresses = [a for a in sdn.addresses if a not in mine]


def _cards(region: SimRegion) -> dict[tuple[int, str, str], None]:
    """(vmid, MAC, vnet) of every network device on a vnet."""
    vnets = region.sdn.running.get("vnets", {})
    found: dict[tuple[int, str, str], None] = {}
    for vmid, guest in region.guests.items():
        for key, value in guest.conf.items():
            if not key.startswith("net") or not key[3:].isdigit():
                continue
            options = dict(part.partition("=")[::2] for part in str(value).split(","))
            mac = _MAC.search(str(value))
            if mac and options.get("bridge") in vnets:
                found[vmid, mac[0], options["bridge"]] = None
    return found


def allocate(region: SimRegion, bridge: str, vmid: int, mac: str, hostname: str = "") -> None:
    """Allocate an address of each family if the bridge is a vnet with DHCP."""
    sdn = region.sdn
    if not has_dhcp(sdn, bridge):
        return
    for family in (4, 6):
        for subnet in _subnets(sdn, bridge, family):
            if address := _next_free(sdn, subnet):
                prefix = subnet.get("dnszoneprefix")
                entry = {"ip": address, "mac": mac, "vmid": vmid, "attached": 1}
                entry["hostname"] = f"{hostname}.{prefix}" if prefix else hostname
                reserve(sdn, subnet, entry)
                break


def _subnets(sdn: SimSdn, vnet: str, family: int) -> list[Row]:
    """The running subnets of a vnet and an IP family."""
    rows = sorted(sdn.running.get("subnets", {}).items())
    return [
        row
        for _, row in rows
        if row["vnet"] == vnet and ipaddress.ip_network(row["cidr"], strict=False).version == family
    ]


def _next_free(sdn: SimSdn, subnet: Row) -> str | None:
    taken = {a["ip"] for a in sdn.addresses if in_subnet(a, subnet)}
    for first, last in _ranges(subnet) or [_whole(subnet)]:
        for number in range(int(first), int(last) + 1):
            address = str(type(first)(number))
            if address not in taken:
                return address
    return None


def _whole(subnet: Row) -> tuple[Address, Address]:
    """The addresses of a subnet without ranges."""
    network = ipaddress.ip_network(subnet["cidr"], strict=False)
    if network.num_addresses == 1:
        return network.network_address, network.network_address
    is_v4 = isinstance(network, ipaddress.IPv4Network)
    return network.network_address + is_v4, network.broadcast_address - 1


def _ranges(subnet: Row) -> list[tuple[Address, Address]]:
    found = []
    for text in subnet.get("dhcp-range", []):
        parts = dict(item.partition("=")[::2] for item in text.split(","))
        first, last = parts["start-address"], parts["end-address"]
        found.append((ipaddress.ip_address(first), ipaddress.ip_address(last)))
    return found
