"""
A scripted Proxmox on a real socket: what the wire is tested with, refusals and silences included.

In: a function from request to answer. Out: a URL, and a record of what arrived. The surprise: it
runs on the loop of the test, so on the virtual loop a timeout of a minute takes no time.
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
class Arrived:
    """A request as the server saw it."""

    method: str
    path: str
    fields: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Say:
    """An answer; ``cut`` drops the connection, ``silent`` never answers."""

    status: int = 200
    body: str = '{"data":null}'
    reason: str | None = None
    cut: bool = False
    silent: bool = False


Script = Callable[[Arrived], Say | Awaitable[Say]]


def always(say: Say) -> Script:
    """The same answer to everything."""
    return lambda _: say


@dataclass(slots=True)
class Peer:
    """A running scripted server."""

    script: Script
    url: str = ""
    arrived: list[Arrived] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        form = body.decode() if request.content_type.endswith("urlencoded") else ""
        arrived = Arrived(
            request.method,
            request.rel_url.raw_path.removeprefix("/api2/json"),
            {**dict(request.query), **dict(parse_qsl(form))},
            {name.lower(): value for name, value in request.headers.items()},
            body,
        )
        self.arrived.append(arrived)
        said = self.script(arrived)
        say = said if isinstance(said, Say) else await said
        if say.silent:
            await asyncio.Event().wait()
        if say.cut:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(
            status=say.status, reason=say.reason, text=say.body, content_type="application/json"
        )


@asynccontextmanager
async def serving(
    script: Script, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[Peer]:
    """A scripted server for as long as the block runs."""
    peer = Peer(script)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{tail:.*}", peer.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
    await site.start()
    bound = runner.addresses[0][1]
    peer.url = f"{'https' if tls else 'http'}://127.0.0.1:{bound}"
    try:
        yield peer
    finally:
        await runner.cleanup()


def closed_url() -> str:
    """A URL on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
