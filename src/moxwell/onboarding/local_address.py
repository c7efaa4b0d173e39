"""The address of this machine that guests of a Proxmox cluster can connect to."""

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit


async def local_address(url: str) -> str:
    """
    The address from which this machine reaches a Proxmox host; empty if that is loopback.

    Nothing is sent: the kernel chooses the address when a datagram socket is connected.
    """
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(parts.hostname, parts.port or 8006, type=socket.SOCK_DGRAM)
    except OSError:
        return ""
    for family, kind, protocol, _, target in found:
        if (address := _source(family, kind, protocol, target)) and not _is_loopback(address):
            return address
    return ""


def _source(family: int, kind: int, protocol: int, target: tuple[object, ...]) -> str:
    with socket.socket(family, kind, protocol) as probe:
        try:
            probe.connect(target)
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
