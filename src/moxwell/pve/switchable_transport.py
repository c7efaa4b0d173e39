"""
Transport that can be replaced while requests are running: for rotated credentials and new URLs.

A replaced transport is closed when its last request has been answered.
"""

import asyncio

from moxwell.pve.forwarding_transport import ForwardingTransport, SendTo
from moxwell.pve.transport import Transport


class SwitchableTransport(ForwardingTransport):
    """The current transport and replaced ones that still have requests."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._in_flight: dict[Transport, int] = {}

    def replace(self, transport: Transport) -> None:
        """Send all further requests through another transport."""
        retired, self._inner = self._inner, transport
        if not self._in_flight.get(retired):
            self._in_flight[retired] = 0  # closed after the next request, or at the end

    async def _forward(self, method: str, path: str, send: SendTo) -> bytes:
        transport = self._enter()
        try:
            return await send(transport)
        finally:
            await self._leave(transport)

    def _enter(self) -> Transport:
        self._in_flight[self._inner] = self._in_flight.get(self._inner, 0) + 1
        return self._inner

    async def _leave(self, transport: Transport) -> None:
        self._in_flight[transport] -= 1
        if len(self._in_flight) == 1 and transport is self._inner:
            return
        for idle in [t for t, n in self._in_flight.items() if n == 0 and t is not self._inner]:
            self._in_flight.pop(idle, None)
            await asyncio.shield(idle.close())

    async def close(self) -> None:
        for transport in {*self._in_flight, self._inner}:
            await transport.close()
