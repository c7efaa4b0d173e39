"""
HTTP/1.1 connections to pveproxy: one request at a time, kept alive, with a deadline per request.

It sends prepared bytes and returns the parsed response (:mod:`moxwell.pve.http_response`). There
are no redirects, cookies, proxies or compression; general clients spend most of their CPU on those
(ADR 0040).
"""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from moxwell.errors import Unreachable
from moxwell.pve.http_response import BadResponse, ConnectionLost, HttpResponse, ResponseReader

CONNECT_SECONDS = 5.0
KEEPALIVE_SECONDS = 4.0  # pveproxy closes after five; the client must be first


class NotSent(Unreachable):
    """No connection was established: the server certainly did not get the request."""


class CertificateRejected(NotSent):
    """The server's certificate is not the expected one."""


class DeadlineExceeded(ConnectionLost):
    """The response was not complete in time."""


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._response: asyncio.Future[HttpResponse] | None = None
        self._reader: ResponseReader | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    # ------------------------------------------------------------------ called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._writable.set()
        if self._response is None or self._response.done():
            return
        response = self._reader.end() if self._reader and exc is None else None
        if response is not None:
            self._response.set_result(response)
        else:
            self._response.set_exception(ConnectionLost("connection closed"))

    def data_received(self, data: bytes) -> None:
        if self._reader is None or self._response is None or self._response.done():
            self.abort()  # no request is waiting
            return
        try:
            response = self._reader.feed(data)
        except BadResponse as error:
            self._response.set_exception(error)
            self.abort()
        else:
            if response is not None:
                self._response.set_result(response)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ------------------------------------------------------------------ called by the pool

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        return self.is_open and self._reader is not None and self._reader.keep_alive

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def certificate(self) -> bytes:
        """Return the server's certificate in DER."""
        assert self._transport is not None
        peer: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return (peer.getpeercert(binary_form=True) if peer else None) or b""

    async def exchange(
        self, head: bytes, body: AsyncIterator[bytes] | None, until: float
    ) -> HttpResponse:
        """Send a request and wait for the complete response until a time of the loop."""
        loop = asyncio.get_running_loop()
        self._reader = ResponseReader()
        response: asyncio.Future[HttpResponse] = loop.create_future()
        self._response = response
        timer = loop.call_at(until, self._expire)
        try:
            self._write(head)
            if body is not None:
                await self._send(body)
            return await response
        finally:
            timer.cancel()
            self._response = None
            if not response.done() or response.cancelled() or response.exception() is not None:
                self.abort()

    def _expire(self) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(DeadlineExceeded("no complete response in time"))

    def _write(self, data: bytes) -> None:
        if self._transport is None:
            raise ConnectionLost("connection closed")
        self._transport.write(data)

    async def _send(self, body: AsyncIterator[bytes]) -> None:
        """Send a body at the speed of the server; an early response ends it."""
        assert self._response is not None
        async for piece in body:
            if self._response.done():
                return
            self._write(piece)
            if not self._writable.is_set():
                waiting = asyncio.ensure_future(self._writable.wait())
                await asyncio.wait((waiting, self._response), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()


class Origin:
    """One URL of a region and its idle connections."""

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
        response = await connection.exchange(head, body, until)
        if connection.is_reusable:
            now = asyncio.get_running_loop().time()
            self._idle.append((connection, now + KEEPALIVE_SECONDS))
        else:
            connection.abort()
        return response

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
            raise CertificateRejected(f"{self.authority}: the certificate is not the pinned one")

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].abort()


def _why(error: Exception) -> str:
    return "timeout" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
