"""
The built-in ``pve`` IPAM.

A gateway is registered with its subnet. Network devices on a vnet in a zone with DHCP get the next
free address of the subnet's ranges and release it when they are removed. Allocations are updated on
read, so code that changes guests does not deal with them.
"""

import ipaddress
import re

from moxwell.lab.proxmox.state import Row, SimRegion

_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")


def update_allocations(region: SimRegion) -> None:
    """Allocate addresses for all network devices and release those of removed ones."""
    if not any(zone.get("dhcp") for zone in region.sdn.running.get("zones", {}).values()):
        return
    cards = _cards(region)
    mine = [a for a in region.sdn.addresses if a.get("vmid") is not None and "mac" in a]
    removed = [a for a in mine if (a["vmid"], a["mac"], a["vnet"]) not in cards]
    region.sdn.addresses = [a for a in region.sdn.addresses if a not in removed]
    have = {(a["vmid"], a["mac"], a["vnet"]) for a in mine}
    for vmid, mac, bridge in cards:
        if (vmid, mac, bridge) not in have:
            name = str(region.guests[vmid].conf.get("name", ""))
            allocate(region, bridge, vmid, mac, name)


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
                entry |= {"ip": address, "mac": mac, "vmid": vmid, "hostname": hostname}
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
