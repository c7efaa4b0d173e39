"""
The built-in IPAM: which address of a subnet belongs to whom.

Gateways are entered with their subnets. Cards on a vnet whose zone serves DHCP get the next free
address of the subnet's ranges when the guest is made, and lose it with the guest.
"""

import ipaddress

from moxwell.sim.state import Region, Row


def claim(region: Region, bridge: str, vmid: int, mac: str, hostname: str = "") -> str | None:
    """Give a card an address if its bridge is a vnet with DHCP; the address, or None."""
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


def release(region: Region, vmid: int, mac: str | None = None) -> None:
    """Take the addresses of a guest (or of one of its cards) back."""
    region.sdn.addresses = [
        a
        for a in region.sdn.addresses
        if a.get("vmid") != vmid or (mac is not None and a.get("mac") != mac)
    ]


def _next_free(region: Region, subnet: Row) -> str | None:
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
