"""
Accepts TLS connections on one port and passes each on to the API server of the tenant it names.

TLS is not terminated: keys, client certificates and the checks of the API server stay there. What a
client can use is limited: the time and the bytes until its name is known, the connections of one
address and of all, and the buffers in both directions.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from moxwell.embedded.controlplanes.sni.client_hello import InvalidClientHello, server_name

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

log = structlog.get_logger(__name__)
CHUNK = 64 * 1024
RETRY_SECONDS = 5.0
IPV6_NETWORK = 64  # the prefix that one host or router gets
Accept = Callable[["StreamReader", "StreamWriter"], None]
UNRECOGNIZED_NAME = bytes((21, 3, 3, 0, 2, 2, 112))  # a fatal alert (RFC 6066)


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """What clients may use."""

    hello_seconds: float = 5.0
    connect_seconds: float = 5.0
    idle_seconds: float = 3600.0  # without a byte in either direction
    closing_seconds: float = 30.0  # to read the rest after the API server has ended
    connections: int = 4096
    connections_per_address: int = 512


class SniProxy:
    """
    A proxy on one address; ``routes`` maps names to addresses and may change while it runs.
    """

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, tuple[str, int]],
        limits: ProxyLimits | None = None,
    ) -> None:
        self.host, self.port, self._routes = host, port, routes
        self._limits = limits or ProxyLimits()
        self._open: Counter[str] = Counter()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._open.total()

    async def run(self) -> None:
        """Listen until cancelled, then close all connections."""
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: "StreamReader", writer: "StreamWriter") -> None:
            task = asyncio.ensure_future(self._serve(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await self._listen(accept)
        self.port = server.sockets[0].getsockname()[1]
        log.info("control planes are exposed by name", address=self.host, port=self.port)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, accept: Accept) -> asyncio.Server:
        """Listen as soon as the address and the port are free: tenants run meanwhile."""
        while True:
            try:
                return await asyncio.start_server(accept, self.host, self.port, limit=CHUNK)
            except OSError as error:
                why = error.strerror or "cannot listen"
                log.error("proxy does not listen", address=self.host, port=self.port, error=why)
                await asyncio.sleep(RETRY_SECONDS)

    async def _serve(self, reader: "StreamReader", writer: "StreamWriter") -> None:
        peer = client_of((writer.get_extra_info("peername") or ("",))[0])
        limits = self._limits
        full = self.connections >= limits.connections
        if full or self._open[peer] >= limits.connections_per_address:
            writer.transport.abort()
            return
        self._open[peer] += 1
        try:
            await self._pass_on(reader, writer)
        except (OSError, TimeoutError, InvalidClientHello) as error:
            log.debug("connection refused", peer=peer, error=type(error).__name__)
        finally:
            self._open -= Counter({peer: 1})
            writer.transport.abort()

    async def _pass_on(self, reader: "StreamReader", writer: "StreamWriter") -> None:
        async with asyncio.timeout(self._limits.hello_seconds):
            name, begun = await _read_name(reader)
        route = self._routes.get(name)
        if route is None:
            writer.write(UNRECOGNIZED_NAME)
            async with asyncio.timeout(self._limits.hello_seconds):
                await writer.drain()
                writer.write_eof()
                await reader.read(1)  # until the client has read the alert and closes
            return
        async with asyncio.timeout(self._limits.connect_seconds):
            inner_reader, inner_writer = await asyncio.open_connection(*route, limit=CHUNK)
        try:
            inner_writer.write(begun)
            for each in (writer, inner_writer):
                _keep_alive(each)
            await self._join(reader, inner_writer, inner_reader, writer)
        finally:
            inner_writer.transport.abort()

    async def _join(
        self,
        reader: "StreamReader",
        inner_writer: "StreamWriter",
        inner_reader: "StreamReader",
        writer: "StreamWriter",
    ) -> None:
        """
        Copy in both directions until the API server has ended or the idle timeout has passed.

        An API server ends connections of clients that say nothing; one that stayed would keep
        its place.
        """
        idle = _IdleTimer(self._limits.idle_seconds)
        async with asyncio.timeout(None) as deadline:
            idle.attach(deadline)

            async def receive() -> None:
                await _copy(inner_reader, writer, idle)
                idle.end_in(self._limits.closing_seconds)

            await asyncio.gather(_copy(reader, inner_writer, idle), receive())


def client_of(address: str) -> str:
    """Whose connection it is: a host has all addresses of its IPv6 network."""
    with contextlib.suppress(ValueError):
        found = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, IPV6_NETWORK), strict=False))
    return address


class _IdleTimer:
    """Moves a deadline with every byte."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline: asyncio.Timeout | None = None

    def attach(self, deadline: asyncio.Timeout) -> None:
        self._deadline = deadline
        self.touch()

    def touch(self) -> None:
        if self._deadline is not None:
            self._deadline.reschedule(asyncio.get_running_loop().time() + self._seconds)

    def end_in(self, seconds: float) -> None:
        """Move the deadline for the last time."""
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.reschedule(asyncio.get_running_loop().time() + seconds)


async def _read_name(reader: "StreamReader") -> tuple[str, bytes]:
    """The name that the client asks for, and the bytes read so far."""
    data = b""
    while True:
        part = await reader.read(CHUNK)
        if not part:
            raise InvalidClientHello("the connection ended before the name was known")
        data += part
        if (name := server_name(data)) is not None:
            return name, data


async def _copy(reader: "StreamReader", writer: "StreamWriter", idle: _IdleTimer) -> None:
    """Copy until the end; ``drain`` waits while the other side does not read."""
    while data := await reader.read(CHUNK):
        idle.touch()
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def _keep_alive(writer: "StreamWriter") -> None:
    """Let the kernel find out that the other side is gone."""
    found = writer.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
