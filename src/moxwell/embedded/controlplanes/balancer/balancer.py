"""
Passes TCP connections on to the API servers that are ready, to the one with the fewest first.

TLS is not terminated. An API server that stops fails ``/readyz`` before it stops answering, so
that no new connection reaches it; one whose port refuses is skipped at once. Only the standard
library is imported, because one such process runs for each tenant.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field

CHUNK = 64 * 1024
CHECK_SECONDS, CHECK_TIMEOUT_SECONDS = 0.5, 3.0
CONNECT_SECONDS = 3.0
CLOSING_SECONDS = 30.0  # for a client to read the rest after its API server has ended
BIND_RETRY_SECONDS = 0.1
MAX_CONNECTIONS = 4096
SERVER_NAME = "kubernetes"  # which is in the certificate of every API server


@dataclass
class Backend:
    """One API server."""

    host: str
    port: int
    ready: bool = False
    connections: int = field(default=0, compare=False)


def order(backends: Sequence[Backend]) -> list[Backend]:
    """The backends to try: ready ones first, each group by the number of connections."""
    return sorted(backends, key=lambda b: (not b.ready, b.connections))


class Balancer:
    """Listens on one address and port."""

    def __init__(self, host: str, port: int, ca: str, backends: Sequence[str]) -> None:
        """``backends`` are addresses that listen on the same port; ``ca`` is a file."""
        self.host, self.port, self._ca = host, port, ca
        self.backends = [Backend(address, port) for address in backends]

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            for backend in self.backends:
                group.create_task(self._check(backend))
            group.create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            try:
                server = await asyncio.start_server(self._accept, self.host, self.port)
            except OSError:  # the API server that listened here before has not stopped yet
                await asyncio.sleep(BIND_RETRY_SECONDS)
                continue
            async with server:
                await server.serve_forever()

    async def _check(self, backend: Backend) -> None:
        context = ssl.create_default_context(cafile=self._ca)
        while True:
            try:
                async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                    backend.ready = await is_ready(backend, context)
            except (OSError, ValueError, TimeoutError):  # no connection, or no HTTP
                backend.ready = False
            await asyncio.sleep(CHECK_SECONDS)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            if sum(b.connections for b in self.backends) >= MAX_CONNECTIONS:
                return
            for backend in order(self.backends):
                backend.connections += 1
                try:
                    if await self._serve(backend, reader, writer):
                        return
                finally:
                    backend.connections -= 1

    async def _serve(
        self, backend: Backend, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """
        Pass bytes on until the backend has ended; False if it did not accept.

        A backend ends connections of clients that say nothing; one that stayed would keep its
        place for ever.
        """
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                inner_reader, inner = await asyncio.open_connection(backend.host, backend.port)
        except (OSError, TimeoutError):
            backend.ready = False
            return False
        with contextlib.closing(inner):
            sending = asyncio.create_task(_copy(reader, inner))
            try:
                await _copy(inner_reader, writer)
                await asyncio.wait((sending,), timeout=CLOSING_SECONDS)
            finally:
                sending.cancel()
                writer.transport.abort()
        return True


async def is_ready(backend: Backend, context: ssl.SSLContext) -> bool:
    """Whether ``/readyz`` of an API server answers 200."""
    reader, writer = await asyncio.open_connection(
        backend.host, backend.port, ssl=context, server_hostname=SERVER_NAME
    )
    with contextlib.closing(writer):
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: kubernetes\r\nConnection: close\r\n\r\n")
        await writer.drain()
        head = await reader.readline()
    return head.split()[1:2] == [b"200"]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction; its end is passed on, a reset ends both."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        return
    writer.close()
