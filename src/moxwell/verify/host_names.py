"""Resolves names of servers on this machine."""

import asyncio
import ipaddress
import socket

SECONDS = 3.0  # a name server that does not answer must not delay the rest


async def resolve_host(host: str) -> frozenset[str]:
    """The addresses of a host name; a name that cannot be resolved here has none."""
    try:
        return frozenset({str(ipaddress.ip_address(host))})
    except ValueError:
        pass  # a name
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(SECONDS):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # TimeoutError is an OSError
        return frozenset()
    return frozenset(str(address[0]) for *_, address in found)
