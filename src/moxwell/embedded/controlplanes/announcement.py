"""
Announces a new address of an interface, so that other machines update their ARP and NDP caches.

For IPv4 gratuitous ARP (RFC 5227: a request and a reply with the address as sender and target), for
IPv6 an unsolicited neighbour advertisement with the override flag (RFC 4861, 7.2.6).
"""

import ipaddress
import socket
import struct

BROADCAST = b"\xff" * 6
ALL_NODES, ALL_NODES_MAC = ipaddress.IPv6Address("ff02::1").packed, bytes.fromhex("333300000001")
ETHERNET_ARP, ETHERNET_IPV6 = 0x0806, 0x86DD
ARP_REQUEST, ARP_REPLY = 1, 2
ICMPV6, ADVERTISEMENT, OVERRIDE, TARGET_LINK_ADDRESS = 58, 136, 0x20000000, 2
HOP_LIMIT = 255


def announcements(host: str, mac: bytes) -> tuple[bytes, ...]:
    """The Ethernet frames that announce an address."""
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        return (_advertisement(address.packed, mac),)
    return tuple(_arp(kind, address.packed, mac) for kind in (ARP_REQUEST, ARP_REPLY))


def _arp(kind: int, address: bytes, mac: bytes) -> bytes:
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, kind)
    target = BROADCAST if kind == ARP_REPLY else b"\0" * 6
    return _frame(BROADCAST, mac, ETHERNET_ARP, head + mac + address + target + address)


def _advertisement(address: bytes, mac: bytes) -> bytes:
    option = struct.pack("!BB", TARGET_LINK_ADDRESS, 1) + mac
    body = struct.pack("!I", OVERRIDE) + address + option
    pseudo = address + ALL_NODES + struct.pack("!II", len(body) + 4, ICMPV6)
    checksum = _checksum(pseudo + struct.pack("!BBH", ADVERTISEMENT, 0, 0) + body)
    message = struct.pack("!BBH", ADVERTISEMENT, 0, checksum) + body
    head = struct.pack("!IHBB", 6 << 28, len(message), ICMPV6, HOP_LIMIT) + address + ALL_NODES
    return _frame(ALL_NODES_MAC, mac, ETHERNET_IPV6, head + message)


def _frame(target: bytes, source: bytes, kind: int, payload: bytes) -> bytes:
    return target + source + struct.pack("!H", kind) + payload


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def announce(interface: str, host: str) -> str:
    """Send the frames; returns why it was not possible, or an empty text."""
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
            link.bind((interface, 0))
            mac = link.getsockname()[4]
            for frame in announcements(host, mac):
                link.send(frame)
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return ""
