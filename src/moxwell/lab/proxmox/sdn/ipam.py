"""
The built-in ``pve`` IPAM.

A gateway is registered with its subnet. Network devices on a vnet in a zone with DHCP get the next
free address of the subnet's ranges and release it when they are removed. Allocations are updated on
read, so code that changes guests does not deal with them.
"""

import ipaddress
import re

from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.state import Row, SimRegion

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


def visible_addresses(region: SimRegion) -> list[Row]:
    """The addresses of subnets that are applied."""
    running = region.sdn.running.get("subnets", {}).values()
    shown = [a for a in region.sdn.addresses if any(in_subnet(a, subnet) for subnet in running)]
    return [{k: v for k, v in row.items() if k != "attached"} for row in shown]


def in_subnet(address: Row, subnet: Row) -> bool:
    return bool(address["subnet"] == subnet["cidr"] and address["vnet"] == subnet["vnet"])


def find_subnet(region: SimRegion, vnet: str, zone: str, ip: str) -> Row:
    """The running subnet of an address."""
    for subnet in region.sdn.running.get("subnets", {}).values():
        network = ipaddress.ip_network(subnet["cidr"], strict=False)
        same = subnet["vnet"] == vnet and subnet["zone"] == zone
        if same and ipaddress.ip_address(ip) in network:
            return subnet
    where = "at /usr/share/perl5/PVE/Network/SDN/Subnets.pm line 115."
    raise die(f"can't find any subnet for ip {ip} {where}")


def reserve(region: SimRegion, request: Row) -> None:
    """Store an address that a request gives."""
    subnet = find_subnet(region, request["vnet"], request["zone"], request["ip"])
    if any(a["ip"] == request["ip"] and in_subnet(a, subnet) for a in region.sdn.addresses):
        raise die(f"IP '{request['ip']}' already exist")
    entry: Row = {"zone": subnet["zone"], "vnet": subnet["vnet"], "subnet": subnet["cidr"]}
    entry["ip"] = request["ip"]
    entry.update({k: request[k] for k in ("mac", "vmid") if k in request})
    if subnet.get("dnszoneprefix"):
        entry["hostname"] = f".{subnet['dnszoneprefix']}"
    region.sdn.addresses.append(entry)


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


def allocate(region: SimRegion, bridge: str, vmid: int, mac: str, hostname: str = "") -> str | None:
    """Allocate an address if the bridge is a vnet with DHCP; returns it, or None."""
    vnet = region.sdn.running.get("vnets", {}).get(bridge)
    zone = region.sdn.running.get("zones", {}).get(vnet["zone"]) if vnet else None
    if vnet is None or zone is None or not zone.get("dhcp"):
        return None
    for subnet in region.sdn.running.get("subnets", {}).values():
        if subnet["vnet"] == bridge:
            address = _next_free(region, subnet)
            if address:
                entry = {"zone": vnet["zone"], "vnet": bridge, "subnet": subnet["cidr"]}
                prefix = subnet.get("dnszoneprefix")
                entry |= {"ip": address, "mac": mac, "vmid": vmid, "attached": 1}
                entry["hostname"] = f"{hostname}.{prefix}" if prefix else hostname
                region.sdn.addresses.append(entry)
                return address
    return None


def _next_free(region: SimRegion, subnet: Row) -> str | None:
    taken = {a["ip"] for a in region.sdn.addresses if a["subnet"] == subnet["cidr"]}
    for first, last in _ranges(subnet):
        for number in range(first, last + 1):
            address = str(ipaddress.ip_address(number))
            if address not in taken:
                return address
    return None


def _ranges(subnet: Row) -> list[tuple[int, int]]:
    found = []
    for text in subnet.get("dhcp-range", []):
        parts = dict(item.partition("=")[::2] for item in text.split(","))
        first = ipaddress.ip_address(parts["start-address"])
        found.append((int(first), int(ipaddress.ip_address(parts["end-address"]))))
    return found
