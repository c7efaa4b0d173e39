"""
Connections of the HTTPS server: their number, their timeouts, and answers to unhandled errors.

A connection without a complete request within the idle timeout is closed, so that slow headers end
too. An error that no handler expected is answered with a Status and logged in one bounded line.
"""

import asyncio
import re
import resource
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

from moxwell.embedded.apiserver import limits, status_errors
from moxwell.embedded.apiserver.object_cache import encode

IDLE_SECONDS = 90.0
HANDSHAKE_SECONDS = 10.0
BODY_SECONDS = 30.0
WRITE_SECONDS = 60.0
MAX_CONNECTIONS = 4096
MAX_LOGGED = 300  # characters of an error in the log
SECURITY_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-cache, private",
    "X-Content-Type-Options": "nosniff",
}
SPDY_HEADER = re.compile(rb"(\r\nupgrade:[ \t]*)spdy/3\.1[ \t]*\r\n", re.IGNORECASE)
HEAD_END, MAX_HEAD = b"\r\n\r\n", 64 * 1024
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_log = structlog.get_logger("apiserver")


def max_connections() -> int:
    """Return the limit of connections: a part of the files that the process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft < 0 else max(16, min(MAX_CONNECTIONS, soft * 3 // 4))


class RefusedConnection(asyncio.Protocol):
    """A connection above the limit: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class ApiConnection(web.RequestHandler):
    """
    One connection of a client; ``spdy`` is true after a request to upgrade it to SPDY/3.1.

    The parser of aiohttp stops at the end of a request only for WebSocket. The head of a request
    for SPDY is therefore given to it as one for WebSocket; SPDY clients send one as the first
    request of a connection.
    """

    spdy = False
    _head: bytes | None = b""

    def data_received(self, data: bytes) -> None:
        """Look for an upgrade to SPDY in the first request."""
        if self._head is None:
            super().data_received(data)
            return
        head = self._head = self._head + data
        if is_upgrade_request(head) and HEAD_END not in head and len(head) < MAX_HEAD:
            return
        self._head = None
        end = head.find(HEAD_END)
        if is_upgrade_request(head) and SPDY_HEADER.search(head, 0, max(end, 0) + 2):
            self.spdy = True
            head = SPDY_HEADER.sub(b"\\1websocket\r\n", head, count=1)
        super().data_received(head)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a malformed request or an unhandled error; the connection is closed after it."""
        if exc is not None and status >= 500:
            _log.error("request failed", method=request.method, error=describe(exc))
        if request.writer.output_size > 0:
            raise ConnectionError("the response was already begun")
        failed = status_errors.internal("the request failed; the log of the server says why")
        if status < 500:
            failed = status_errors.StatusError(status, "BadRequest", "malformed HTTP request")
        response = web.Response(
            status=status,
            headers={**SECURITY_HEADERS, "Content-Type": "application/json"},
            body=encode(failed.status()) + b"\n",
        )
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log in one bounded line instead of a traceback."""
        error = kw.get("exc_info")
        shown = describe(error) if isinstance(error, BaseException) else str(args[0])[:MAX_LOGGED]
        _log.error("connection failed", error=shown)


def is_upgrade_request(head: bytes) -> bool:
    """Whether the beginning of a request names a resource that connections are upgraded for."""
    line = head.partition(b"\r\n")[0]
    named = any(part in line for part in (b"/exec?", b"/portforward", b"/attach?"))
    return line.startswith((b"POST ", b"GET ")) and named


def describe(error: BaseException) -> str:
    """Describe an error with its place in the code, in a bounded text."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}: {error}"[:MAX_LOGGED]


class ConnectionServer(web.Server):
    """Creates the protocols of accepted connections, up to a limit."""

    def __init__(self, handler: Handler, *, maximum: int) -> None:
        super().__init__(
            handler,
            request_factory=self._request,
            handler_cancellation=True,
        )
        self._handler_loop = asyncio.get_running_loop()
        self._maximum = maximum

    def __call__(self) -> web.RequestHandler:
        if len(self.connections) >= self._maximum:
            return RefusedConnection()  # type: ignore[return-value]  # any protocol is accepted
        return ApiConnection(
            self,
            loop=self._handler_loop,
            keepalive_timeout=IDLE_SECONDS,
            access_log=None,  # type: ignore[arg-type]  # documented, but not in the stubs
            auto_decompress=False,
        )

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        return web.BaseRequest(
            message,
            payload,
            protocol,
            writer,
            task,
            self._handler_loop,
            client_max_size=limits.MAX_BODY,
        )


async def send(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Send a complete response; a client that does not read it is disconnected."""
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        disconnect(request)


def disconnect(request: web.BaseRequest) -> None:
    """End the connection without waiting for its client."""
    if request.transport is not None:
        request.transport.abort()
