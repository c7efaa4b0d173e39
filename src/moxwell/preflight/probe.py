"""
Finds addresses that answer: a connection that is accepted or refused proves a host.

A host that drops everything is not found; Proxmox gives no other means without a guest.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Iterable

from moxwell.api.infra.address_ranges import AddressRange

PORTS = (22, 80, 443, 6443, 10250)
SECONDS = 1.0
AT_ONCE = 64
Connects = Callable[[str, int], Awaitable[bool | None]]
MOST = 256  # addresses of a plan; the first ones are given to nodes first


async def answers(host: str, port: int) -> bool:
    """Whether a TCP connection is accepted."""
    return await connect(host, port) is True


async def answering(
    ranges: Iterable[AddressRange],
    known: frozenset[str],
    ports: tuple[int, ...] = PORTS,
    attempt: Connects | None = None,
) -> tuple[str, ...]:
    """The first addresses of the ranges that answer and are not known."""
    limit, attempt = asyncio.Semaphore(AT_ONCE), attempt or connect

    async def one(address: str) -> bool:
        async with limit:
            found = await asyncio.gather(*(attempt(address, port) for port in ports))
            return any(answer is not None for answer in found)

    wanted = [a for a in _first(ranges, MOST) if a not in known]
    taken = await asyncio.gather(*(one(address) for address in wanted))
    return tuple(a for a, is_taken in zip(wanted, taken, strict=True) if is_taken)


def _first(ranges: Iterable[AddressRange], most: int) -> list[str]:
    found: list[str] = []
    for each in ranges:
        kind = ipaddress.IPv4Address if each.version == 4 else ipaddress.IPv6Address
        last = min(each.last, each.first + most - len(found) - 1)
        found += [str(kind(number)) for number in range(each.first, last + 1)]
    return found


async def connect(host: str, port: int) -> bool | None:
    """True: accepted; False: refused by the host; None: no answer."""
    try:
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return False
    except (OSError, TimeoutError):
        return None
    writer.close()
    return True
