"""
A scripted Proxmox API on a real socket, to test the HTTP transport with refusals and bad responses.

A function maps each request to a ``Reply``; the server keeps what it received. It runs on the event
loop of the test, so on the virtual loop a timeout of a minute takes no time.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from aiohttp import web


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as the server received it."""

    method: str
    path: str
    fields: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """A response; ``cut`` drops the connection, ``silent`` never answers.

    ``raw`` is sent as it is instead of a response, one byte every ``drip_seconds`` if that is set,
    and the connection stays open.
    """

    status: int = 200
    body: str = '{"data":null}'
    reason: str | None = None
    cut: bool = False
    silent: bool = False
    raw: bytes = b""
    drip_seconds: float = 0.0


Script = Callable[[ReceivedRequest], Reply | Awaitable[Reply]]


def always_reply(say: Reply) -> Script:
    """Return a script with the same reply for every request."""
    return lambda _: say


@dataclass(slots=True)
class ScriptedServer:
    """A running scripted server."""

    script: Script
    url: str = ""
    received: list[ReceivedRequest] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        form = body.decode() if request.content_type.endswith("urlencoded") else ""
        received = ReceivedRequest(
            request.method,
            request.rel_url.raw_path.removeprefix("/api2/json"),
            {**dict(request.query), **dict(parse_qsl(form))},
            {name.lower(): value for name, value in request.headers.items()},
            body,
        )
        self.received.append(received)
        scripted = self.script(received)
        reply = scripted if isinstance(scripted, Reply) else await scripted
        assert request.transport is not None
        if reply.raw:
            await _send_raw(request.transport, reply)
        if reply.silent or reply.raw:
            await asyncio.Event().wait()
        if reply.cut:
            request.transport.abort()
        return web.Response(
            status=reply.status,
            reason=reply.reason,
            text=reply.body,
            content_type="application/json",
        )


async def _send_raw(transport: asyncio.Transport, reply: Reply) -> None:
    step = 1 if reply.drip_seconds else 1 << 20
    for start in range(0, len(reply.raw), step):
        if transport.is_closing():
            return
        transport.write(reply.raw[start : start + step])
        await asyncio.sleep(reply.drip_seconds)


@asynccontextmanager
async def serve_script(
    script: Script, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[ScriptedServer]:
    """Run a scripted server."""
    server = ScriptedServer(script)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
    await site.start()
    bound = runner.addresses[0][1]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{bound}"
    try:
        yield server
    finally:
        await runner.cleanup()


def closed_url() -> str:
    """Return a URL on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
