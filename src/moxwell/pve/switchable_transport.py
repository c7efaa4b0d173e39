"""
Transport that can be replaced while requests are running: for rotated credentials and new URLs.

A replaced transport is closed when its last request has been answered.
"""

import asyncio

from moxwell.pve.transport import DEADLINE_SECONDS, UPLOAD_SECONDS, FileUpload, Transport
from moxwell.pve.values import Params


class SwitchableTransport:
    """The current transport and replaced ones that still have requests."""

    def __init__(self, transport: Transport) -> None:
        self._current = transport
        self._in_flight: dict[Transport, int] = {}

    @property
    def region(self) -> str:
        return self._current.region

    def replace(self, transport: Transport) -> None:
        """Send all further requests through another transport."""
        retired, self._current = self._current, transport
        if not self._in_flight.get(retired):
            self._in_flight[retired] = 0  # closed after the next request, or at the end

    async def request(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> bytes:
        transport = self._enter()
        try:
            return await transport.request(method, path, params, deadline_seconds=deadline_seconds)
        finally:
            await self._leave(transport)

    async def upload(
        self,
        path: str,
        params: Params,
        file: FileUpload,
        *,
        deadline_seconds: float = UPLOAD_SECONDS,
    ) -> bytes:
        transport = self._enter()
        try:
            return await transport.upload(path, params, file, deadline_seconds=deadline_seconds)
        finally:
            await self._leave(transport)

    def _enter(self) -> Transport:
        self._in_flight[self._current] = self._in_flight.get(self._current, 0) + 1
        return self._current

    async def _leave(self, transport: Transport) -> None:
        self._in_flight[transport] -= 1
        if len(self._in_flight) == 1 and transport is self._current:
            return
        for idle in [t for t, n in self._in_flight.items() if n == 0 and t is not self._current]:
            self._in_flight.pop(idle, None)
            await asyncio.shield(idle.close())

    async def close(self) -> None:
        for transport in {*self._in_flight, self._current}:
            await transport.close()
