"""``cidrhost`` and ``cidrslaac``: addresses computed from a prefix."""

import re
from ipaddress import IPv4Interface, IPv6Address, IPv6Interface, ip_interface

from moxwell.bootstrap.go_templates.errors import FunctionFailed

_MAC = re.compile(r"[0-9a-fA-F]{2}(?:([:-])[0-9a-fA-F]{2}(?:\1[0-9a-fA-F]{2}){4})")
_MAX_PREFIX = 112


def cidr_host(cidr: str, *numbers: int) -> str:
    """Return the address itself, or the address with that number in the prefix."""
    interface = _interface(cidr)
    if not numbers:
        return str(interface.ip)
    network, number = interface.network, numbers[0]
    size = network.num_addresses
    if not -size <= number < size:
        bits = network.max_prefixlen - network.prefixlen
        raise FunctionFailed(
            f"prefix of {network.prefixlen} does not accommodate a host numbered {number}"
            f" ({bits} bits)"
        )
    return str(network[number])


def cidr_slaac(mac: str, cidr: str) -> str:
    """Return the address with the EUI-64 of the MAC in the prefix."""
    interface = _interface(cidr)
    if not _MAC.fullmatch(mac):
        raise FunctionFailed(f"address {mac}: invalid MAC address")
    if not isinstance(interface, IPv6Interface) or interface.network.prefixlen > _MAX_PREFIX:
        raise FunctionFailed("slaac generator requires a mask of /64 to /112")
    octets = bytes.fromhex(re.sub("[:-]", "", mac))
    host = bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]
    prefix = interface.network.prefixlen
    keep = interface.network.network_address.packed[: prefix // 8]
    address = IPv6Address(keep + (bytes(8) + host)[prefix // 8 :])
    return f"{address}/{prefix}"


def _interface(cidr: str) -> IPv4Interface | IPv6Interface:
    if not re.fullmatch(r"[0-9a-fA-F.:]+/[0-9]{1,3}", cidr):
        raise FunctionFailed(f"invalid CIDR address: {cidr}")
    try:
        return ip_interface(cidr)
    except ValueError as error:
        raise FunctionFailed(f"invalid CIDR address: {cidr}") from error
