"""
Upgrades HTTP connections for exec and port forwarding, by WebSocket or SPDY/3.1.

kubectl 1.31 and newer uses WebSocket (``v5.channel.k8s.io``, and SPDY inside WebSocket for port
forwarding), older ones and other clients SPDY. The number of upgraded connections is limited.
"""

import asyncio

from aiohttp import WSMsgType, web

from moxwell.embedded.apiserver import connections, status_errors
from moxwell.embedded.apiserver.kubelet import port_forward, remote_command
from moxwell.embedded.apiserver.kubelet.kubelets import Kubelets, KubeletSocket
from moxwell.embedded.apiserver.kubelet.pod_target import PodConnection
from moxwell.embedded.apiserver.kubelet.spdy_session import SpdySession

MAX_CONNECTIONS, MAX_MESSAGE, READ_LIMIT = 64, 1 << 20, 64 * 1024
CHANNELS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
TUNNEL = "SPDY/3.1+portforward.k8s.io"
SPDY, PROTOCOL_HEADER = "spdy/3.1", "X-Stream-Protocol-Version"


class Upgrades:
    """Serves the upgraded connections of one API server."""

    def __init__(self, kubelets: Kubelets) -> None:
        self._kubelets, self._count = kubelets, 0

    async def serve(
        self, request: web.BaseRequest, connection: PodConnection
    ) -> web.StreamResponse:
        """Serve one connection until it ends; raises StatusError before the upgrade."""
        if self._count >= MAX_CONNECTIONS:
            text = f"at most {MAX_CONNECTIONS} exec and port-forward connections are served"
            raise status_errors.StatusError(429, "TooManyRequests", text)
        self._count += 1
        try:
            if getattr(request.protocol, "spdy", False):
                return await self._spdy(request, connection)
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await self._websocket(request, connection)
        finally:
            self._count -= 1
        raise status_errors.bad_request("Upgrade request required")

    async def _websocket(
        self, request: web.BaseRequest, connection: PodConnection
    ) -> web.StreamResponse:
        wanted = (TUNNEL,) if connection.action == "portforward" else CHANNELS
        socket = web.WebSocketResponse(protocols=wanted, max_msg_size=MAX_MESSAGE)
        ready = socket.can_prepare(request)
        if not ready or ready.protocol is None:
            raise status_errors.bad_request(f"supported protocols: {', '.join(wanted)}")
        if connection.action == "portforward":
            await socket.prepare(request)
            session = SpdySession(_TunnelBytes(socket))
            await port_forward.serve(session, self._kubelets, connection)
            await socket.close()
            return socket
        async with self._kubelets.exec(connection.target, connection.query) as kubelet:
            await socket.prepare(request)
            await _copy_messages(socket, kubelet)
        return socket

    async def _spdy(
        self, request: web.BaseRequest, connection: PodConnection
    ) -> web.StreamResponse:
        offered = [
            p.strip() for h in request.headers.getall(PROTOCOL_HEADER, []) for p in h.split(",")
        ]
        known = ("portforward.k8s.io",) if connection.action == "portforward" else CHANNELS[1:]
        chosen = next((protocol for protocol in known if protocol in offered), None)
        if chosen is None:
            text = f"unable to upgrade: supported protocols: {', '.join(known)}"
            raise status_errors.StatusError(403, "Forbidden", text)
        headers = {"Upgrade": "SPDY/3.1", "Connection": "Upgrade", PROTOCOL_HEADER: chosen}
        response = web.StreamResponse(status=101, headers=headers)
        raw = _RawBytes(request, response)
        if connection.action == "portforward":
            await response.prepare(request)
            await port_forward.serve(SpdySession(raw), self._kubelets, connection)
        else:
            async with self._kubelets.exec(connection.target, connection.query) as kubelet:
                await response.prepare(request)
                await remote_command.serve(SpdySession(raw), kubelet, connection)
        response.force_close()
        return response


class _TunnelBytes:
    """SPDY inside the binary messages of a WebSocket."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while (message := await self._socket.receive()).type is WSMsgType.BINARY:
            if message.data:  # Go sends empty messages too
                return bytes(message.data)
        return b""

    async def write(self, data: bytes) -> None:
        if not self._socket.closed:
            async with asyncio.timeout(connections.WRITE_SECONDS):
                await self._socket.send_bytes(data)


class _RawBytes:
    """The bytes of an upgraded connection."""

    def __init__(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        self._response, self._reader = response, asyncio.StreamReader(limit=READ_LIMIT)
        if request.transport is not None:
            self._reader.set_transport(request.transport)
        request.protocol.set_parser(_BytesParser(self._reader))  # type: ignore[arg-type]

    async def read(self) -> bytes:
        return await self._reader.read(READ_LIMIT)

    async def write(self, data: bytes) -> None:
        async with asyncio.timeout(connections.WRITE_SECONDS):
            await self._response.write(data)


class _BytesParser:
    """Gives the bytes after an upgrade to a reader, in the form of a parser of aiohttp."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._reader.feed_data(data)
        return False, b""

    def feed_eof(self) -> None:
        self._reader.feed_eof()


async def _copy_messages(client: web.WebSocketResponse, kubelet: KubeletSocket) -> None:
    """Pass messages on in both directions until the kubelet or the client ends."""

    async def from_client() -> None:
        async for message in client:
            if message.type is WSMsgType.BINARY:
                await kubelet.send_bytes(message.data)
        await kubelet.close()

    task = asyncio.create_task(from_client())
    try:
        async for message in kubelet:
            if message.type is WSMsgType.BINARY and not client.closed:
                async with asyncio.timeout(connections.WRITE_SECONDS):
                    await client.send_bytes(message.data)
    except TimeoutError:
        return
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
