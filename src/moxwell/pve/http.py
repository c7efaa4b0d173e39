"""
HTTP/1.1 as pveproxy speaks it, and no more of it: requests as bytes in, answers out, kept alive.

In: the bytes of a request, a deadline. Out: status, reason phrase, body. General clients spend two
thirds of the CPU of a small JSON request on what Proxmox never does (redirects, cookies, proxies,
compression); a client that is to be easy on its own host leaves that out (see bench/pve.py).
The surprise: the reason phrase matters, as a 401 or 595 has no body and says why only there.
"""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urlsplit

from moxwell.errors import Unreachable

CONNECT_SECONDS = 5.0
KEEPALIVE_SECONDS = 4.0  # below pveproxy's five, so that we are the ones who close
MOST_HEAD_BYTES = 65536


class NotSent(Unreachable):
    """No connection came about: the server certainly did not get the request."""


class CertificateRejected(NotSent):
    """The server's certificate is not the expected one."""


class ConnectionLost(Unreachable):
    """The request was sent, but no whole answer came back."""


class DeadlineExceeded(ConnectionLost):
    """No answer came in time."""


class HttpResponse(NamedTuple):
    """What the server said."""

    status: int
    reason: str
    body: bytes


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpResponse] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._reset()

    def _reset(self) -> None:
        self._buffer = bytearray()
        self._status = 0
        self._reason = ""
        self._length = -1  # of the body; -1: not told
        self._chunked = False
        self._keep = True

    # ------------------------------------------------------------------ what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._writable.set()
        if self._answer is None or self._answer.done():
            return
        if exc is None and self._status and self._length < 0 and not self._chunked:
            self._finish(bytes(self._buffer))  # a body without a length ends with the connection
        else:
            self._fail("connection closed")

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # nobody asked
            return
        self._buffer += data
        try:
            self._advance()
        except ValueError:
            self._fail("not an HTTP answer")
            self.abort()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ------------------------------------------------------------------ reading an answer

    def _advance(self) -> None:
        if not self._status and not self._read_head():
            return
        if self._chunked:
            body = _unchunked(bytes(self._buffer))
            if body is not None:
                self._finish(body)
        elif 0 <= self._length <= len(self._buffer):
            self._finish(bytes(self._buffer[: self._length]))

    def _read_head(self) -> bool:
        """Is the head there? Interim answers (1xx) are passed over."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MOST_HEAD_BYTES:
                raise ValueError("head too long")
            return False
        first, *fields = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(version)
        status, _, self._reason = rest.partition(" ")
        self._read_fields(fields, version)
        if status.startswith("1"):
            return self._read_head()
        self._status = int(status)
        if self._status in (204, 304):
            self._length = 0
        return True

    def _read_fields(self, fields: list[str], version: str) -> None:
        self._keep = version != "HTTP/1.0"
        for line in fields:
            name, _, value = line.partition(":")
            name = name.lower()
            if name == "content-length":
                self._length = int(value)
            elif name == "transfer-encoding":
                self._chunked = "chunked" in value.lower()
            elif name == "connection":
                self._keep = "close" not in value.lower()

    def _finish(self, body: bytes) -> None:
        assert self._answer is not None
        self._answer.set_result(HttpResponse(self._status, self._reason, body))

    def _fail(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionLost(why))

    def _expire(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(DeadlineExceeded("no answer in time"))

    # ------------------------------------------------------------------ what the pool calls

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        return self._keep and self.is_open

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def certificate(self) -> bytes:
        """The server's certificate, in DER."""
        assert self._transport is not None
        peer: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return (peer.getpeercert(binary_form=True) if peer else None) or b""

    async def exchange(
        self, head: bytes, body: AsyncIterator[bytes] | None, until: float
    ) -> HttpResponse:
        """Send a request and wait for its answer until a time of the loop."""
        loop = asyncio.get_running_loop()
        self._reset()
        answer: asyncio.Future[HttpResponse] = loop.create_future()
        self._answer = answer
        timer = loop.call_at(until, self._expire)
        try:
            self._write(head)
            if body is not None:
                await self._send(body)
            return await answer
        finally:
            timer.cancel()
            self._answer = None
            if not answer.done() or answer.cancelled() or answer.exception() is not None:
                self.abort()

    def _write(self, data: bytes) -> None:
        if self._transport is None:
            raise ConnectionLost("connection closed")
        self._transport.write(data)

    async def _send(self, body: AsyncIterator[bytes]) -> None:
        """Send a body piece by piece, no faster than it is taken; stops at an early answer."""
        assert self._answer is not None
        async for piece in body:
            if self._answer.done():
                return
            self._write(piece)
            if not self._writable.is_set():
                waiting = asyncio.ensure_future(self._writable.wait())
                await asyncio.wait((waiting, self._answer), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()


def _unchunked(data: bytes) -> bytes | None:
    """The body of a chunked answer, None while it is not whole."""
    pieces: list[bytes] = []
    at = 0
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(data[at:end].partition(b";")[0], 16)
        if size == 0:
            return b"".join(pieces) if data.find(b"\r\n\r\n", end) >= 0 else None
        if len(data) < end + 2 + size + 2:
            return None
        pieces.append(data[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


class Origin:
    """One URL: where it is, and its idle connections."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, fingerprint: str = "") -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = tls if parts.scheme == "https" else None
        self._fingerprint = fingerprint
        self._idle: list[tuple[Connection, float]] = []
        self.prefix = f"{parts.path}/api2/json"
        self.authority = parts.netloc

    async def exchange(
        self, head: bytes, body: AsyncIterator[bytes] | None, until: float
    ) -> HttpResponse:
        """Send a request over an idle or a new connection."""
        connection = self._reuse() or await self._connect(until)
        answer = await connection.exchange(head, body, until)
        if connection.is_reusable:
            now = asyncio.get_running_loop().time()
            self._idle.append((connection, now + KEEPALIVE_SECONDS))
        else:
            connection.abort()
        return answer

    def _reuse(self) -> Connection | None:
        while self._idle:
            connection, until = self._idle.pop()
            if connection.is_open and asyncio.get_running_loop().time() < until:
                return connection
            connection.abort()
        return None

    async def _connect(self, until: float) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(min(until, loop.time() + CONNECT_SECONDS)):
                _, connection = await loop.create_connection(
                    Connection,
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls else None,
                    happy_eyeballs_delay=0.25,
                )
        except ssl.SSLError as error:
            kind = (
                CertificateRejected if isinstance(error, ssl.SSLCertVerificationError) else NotSent
            )
            raise kind(f"{self.authority}: {error.reason or type(error).__name__}") from error
        except (OSError, TimeoutError) as error:
            raise NotSent(f"{self.authority}: {_why(error)}") from error
        self._check(connection)
        return connection

    def _check(self, connection: Connection) -> None:
        if not self._fingerprint or self._tls is None:
            return
        if hashlib.sha256(connection.certificate()).hexdigest() != self._fingerprint:
            connection.abort()
            raise CertificateRejected(f"{self.authority}: another certificate than the pinned one")

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].abort()


def _why(error: Exception) -> str:
    return "timeout" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
