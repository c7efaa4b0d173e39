"""
HTTP transport of a region: credentials, TLS, failover between URLs, circuit breaker, deadlines.

A request (method, path below ``/api2/json``, parameters) returns the body of a 200 response or
raises an error. Only a GET is ever sent twice, unless the server certainly did not receive the
first. A 595 comes from a healthy host about another one, so it moves the request to the next URL
without counting as a failure of this one.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode

from moxwell.clock import Clock
from moxwell.errors import Bug, Denied, Invalid, Unreachable
from moxwell.pve import errors
from moxwell.pve.audit import is_secret
from moxwell.pve.breaker import Breaker
from moxwell.pve.config import PasswordAuth, RegionConfig, TokenAuth
from moxwell.pve.failover import Failover
from moxwell.pve.http import CertificateRejected, DeadlineExceeded, NotSent, Origin
from moxwell.pve.http_response import BadResponse, ConnectionLost, HttpResponse
from moxwell.pve.tickets import Tickets
from moxwell.pve.values import Params, as_fields

DEADLINE_SECONDS = 45.0  # Proxmox itself may need 30 for a proxied request
UPLOAD_SECONDS = 3600.0
TRY_SECONDS = 30.0  # per URL for a GET that another URL could answer; pveproxy's own timeout


class CertificateRefused(errors.PveError, Denied):
    """The server's certificate is not the expected one."""

    reason = "CertificateRefused"


@dataclass(frozen=True, slots=True)
class FileUpload:
    """A file to upload; ``open`` returns its bytes again for each attempt."""

    filename: str
    size_bytes: int
    open: Callable[[], AsyncIterator[bytes]]

    @classmethod
    def of(cls, filename: str, data: bytes) -> "FileUpload":
        """Return an upload of bytes in memory."""

        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(data), 65536):
                yield data[start : start + 65536]

        return cls(filename, len(data), chunks)

    @classmethod
    def of_path(cls, filename: str, path: Path, size_bytes: int) -> "FileUpload":
        """Return an upload of a file, which is read while it is sent."""

        async def chunks() -> AsyncIterator[bytes]:
            with await asyncio.to_thread(path.open, "rb") as file:
                while data := await asyncio.to_thread(file.read, 1 << 20):
                    yield data

        return cls(filename, size_bytes, chunks)


class Transport(Protocol):
    """Sends requests to one region."""

    @property
    def region(self) -> str: ...

    async def request(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> bytes: ...

    async def upload(
        self,
        path: str,
        params: Params,
        file: FileUpload,
        *,
        deadline_seconds: float = UPLOAD_SECONDS,
    ) -> bytes: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class OutgoingRequest:
    """A request without URL and credentials; ``stream`` returns its body again for each attempt."""

    method: str
    path: str
    headers: str
    deadline_seconds: float
    body: bytes = b""
    stream: Callable[[], AsyncIterator[bytes]] | None = None

    @property
    def repeatable(self) -> bool:
        return self.method == "GET"


@dataclass(frozen=True, slots=True)
class TransportStatistics:
    """Counters of a transport."""

    sent: int
    unanswered: int
    breaker_open: bool
    url: str


def outgoing(
    method: str, path: str, params: Params | None, deadline_seconds: float
) -> OutgoingRequest:
    """Build a request; parameters become the query of GET and DELETE, the form of POST and PUT."""
    if not path.isprintable() or " " in path:
        raise Bug(f"{path!r} is not a URL path")
    form = urlencode(as_fields(params)) if params else ""
    if method in {"GET", "DELETE"}:
        return OutgoingRequest(method, f"{path}?{form}" if form else path, "", deadline_seconds)
    data = form.encode()
    headers = f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(data)}\r\n"
    return OutgoingRequest(method, path, headers, deadline_seconds, data)


def tls(config: RegionConfig) -> ssl.SSLContext | None:
    """Return the TLS settings: pinned certificate, CA, or (``insecure``) no verification."""
    if not any(url.startswith("https:") for url in config.urls):
        return None
    context = ssl.create_default_context(cadata=config.ca_pem or None)
    if config.fingerprint or config.insecure:  # a pinned certificate is compared, not verified
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class PveHttpTransport:
    """The transport over HTTP (:mod:`moxwell.pve.http`)."""

    def __init__(self, config: RegionConfig, clock: Clock, *, breaker_threshold: int = 3) -> None:
        self._config = config
        self._failover = Failover(config.urls, clock)
        self._breaker = Breaker(clock, threshold=breaker_threshold)
        self._slots = asyncio.Semaphore(config.concurrency)
        context = tls(config)
        self._origins = {url: Origin(url, context, config.fingerprint) for url in config.urls}
        self._sent = self._unanswered = 0
        self._token = ""
        self._tickets: Tickets | None = None
        match config.auth:
            case TokenAuth(token_id, secret):
                self._token = f"Authorization: PVEAPIToken={token_id}={secret.reveal()}\r\n"
            case PasswordAuth(username, password):
                self._tickets = Tickets(username, password, clock, self._login)

    @property
    def region(self) -> str:
        return self._config.region

    def statistics(self) -> TransportStatistics:
        """Return counters for metrics and diagnosis."""
        return TransportStatistics(
            self._sent, self._unanswered, self._breaker.is_open, self._failover.current
        )

    async def request(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> bytes:
        response = await self._authenticated(outgoing(method, path, params, deadline_seconds))
        if response.status == 200:
            return response.body
        raise self._error(response, f"{method} {path}", params)

    async def upload(
        self,
        path: str,
        params: Params,
        file: FileUpload,
        *,
        deadline_seconds: float = UPLOAD_SECONDS,
    ) -> bytes:
        headers, stream = multipart(params, file)
        out = OutgoingRequest("POST", path, headers, deadline_seconds, stream=stream)
        response = await self._authenticated(out)
        if response.status == 200:
            return response.body
        raise self._error(response, f"POST {path}", params)

    async def close(self) -> None:
        for origin in self._origins.values():
            origin.close()
        await asyncio.sleep(0)  # lets the event loop close them

    def _error(self, response: HttpResponse, what: str, params: Params | None) -> errors.PveError:
        where = f"region {self.region}: {what}"
        error = errors.from_response(response.status, response.reason, response.body, where=where)
        secrets = [value for key, value in as_fields(params) if value and is_secret(key, value)]
        if any(text in str(error) for text in secrets):
            # Proxmox quotes the rejected value.
            return type(error)(
                "(the response quotes a secret)", status=response.status, where=where
            )
        return error

    async def _authenticated(self, out: OutgoingRequest) -> HttpResponse:
        if self._token:
            return await self._send(out, self._token)
        assert self._tickets is not None
        headers = await self._tickets.headers(out.method)
        response = await self._send(out, headers)
        if response.status != 401:
            return response
        # A 401 is decided before any effect, so every method may be repeated.
        self._tickets.refused(headers)
        return await self._send(out, await self._tickets.headers(out.method))

    async def _login(self, username: str, password: str) -> bytes:
        form = {"username": username, "password": password}
        out = outgoing("POST", "/access/ticket", form, DEADLINE_SECONDS)
        response = await self._send(out, "")
        if response.status == 200:
            return response.body
        raise self._error(response, "POST /access/ticket", form)

    async def _send(self, out: OutgoingRequest, auth: str) -> HttpResponse:
        end = asyncio.get_running_loop().time() + out.deadline_seconds
        await self._acquire_slot(end)
        try:
            return await self._through_breaker(out, auth, end)
        finally:
            self._slots.release()

    async def _acquire_slot(self, end: float) -> None:
        """Wait for one of the region's request slots; the time counts towards the deadline."""
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout_at(end):
                await self._slots.acquire()
        except TimeoutError as error:
            raise errors.Overloaded(
                f"{self._config.concurrency} other requests did not finish in time",
                where=f"region {self.region}",
            ) from error

    async def _through_breaker(self, out: OutgoingRequest, auth: str, end: float) -> HttpResponse:
        if not self._breaker.enter():
            raise errors.RegionUnreachable(
                f"no URL answered; next attempt in {self._breaker.retry_after:.0f} s",
                where=f"region {self.region}",
            )
        try:
            response = await self._with_failover(out, auth, end)
        except errors.PveError as error:
            if isinstance(error.__cause__, BadResponse):
                self._breaker.succeeded()  # the region answers; only this request fails
            else:
                self._breaker.failed()
            raise
        except asyncio.CancelledError:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        return response

    async def _with_failover(self, out: OutgoingRequest, auth: str, end: float) -> HttpResponse:
        """Try the URLs in turn until one answers."""
        last: HttpResponse | None = None
        problem: Unreachable | None = None
        order = self._failover.order()
        if len(order) == 1 and out.repeatable:
            order *= 2  # a broken connection says nothing about the next one
        loop = asyncio.get_running_loop()
        for n, url in enumerate(order):
            others = n + 1 < len(order)
            until = min(end, loop.time() + TRY_SECONDS) if others and out.repeatable else end
            self._sent += 1
            try:
                response = await self._try(self._origins[url], out, auth, until)
            except Unreachable as error:
                self._unanswered += 1
                if not isinstance(error, BadResponse):
                    self._failover.failed(url)
                problem = error
                if not out.repeatable and not isinstance(error, NotSent):
                    raise errors.OutcomeUnknown(
                        f"no response ({error}); it may have happened", where=self._where(out)
                    ) from error
                if len(self._origins) == 1 and not _is_broken_connection(error):
                    break
                continue
            self._failover.succeeded(url)
            last = response
            elsewhere = response.status == 595 or (response.status == 596 and out.repeatable)
            if not elsewhere or len(self._origins) == 1:
                return response
        if last is not None:
            return last
        raise self._unreachable(out, problem) from problem

    def _where(self, out: OutgoingRequest) -> str:
        return f"region {self.region}: {out.method} {out.path.partition('?')[0]}"

    def _unreachable(self, out: OutgoingRequest, problem: Unreachable | None) -> errors.PveError:
        where = f"region {self.region}"
        if isinstance(problem, BadResponse):
            return errors.UnreadableResponse(str(problem), where=self._where(out))
        if isinstance(problem, CertificateRejected):
            return CertificateRefused(
                f"certificate refused ({problem}): set ca_file or fingerprint", where=where
            )
        return errors.RegionUnreachable(f"no URL answers ({problem})", where=where)

    @staticmethod
    async def _try(origin: Origin, out: OutgoingRequest, auth: str, until: float) -> HttpResponse:
        head = (
            f"{out.method} {origin.prefix}{out.path} HTTP/1.1\r\n"
            f"Host: {origin.authority}\r\n{auth}{out.headers}\r\n"
        ).encode()
        return await origin.exchange(
            head + out.body if out.body else head, out.stream() if out.stream else None, until
        )


def _is_broken_connection(error: Unreachable) -> bool:
    """Report whether a connection broke while a response was awaited, so that a retry may help."""
    return isinstance(error, ConnectionLost) and not isinstance(
        error, DeadlineExceeded | BadResponse
    )


def multipart(
    params: Params, file: FileUpload, boundary: str = "moxwell-8d1f5c0e7a9b4d3f"
) -> tuple[str, Callable[[], AsyncIterator[bytes]]]:
    """Return headers and body of a multipart form with the file last; pveproxy needs the length."""
    if not file.filename.isprintable() or '"' in file.filename:
        raise Invalid("a file name must be printable and without quotes")
    head = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in as_fields(params)
    )
    head += (
        f'--{boundary}\r\nContent-Disposition: form-data; name="filename"; '
        f'filename="{file.filename}"\r\nContent-Type: application/octet-stream\r\n\r\n'
    )
    first, last = head.encode(), f"\r\n--{boundary}--\r\n".encode()

    async def body() -> AsyncIterator[bytes]:
        yield first
        async for chunk in file.open():
            yield chunk
        yield last

    length = len(first) + file.size_bytes + len(last)
    headers = (
        f"Content-Type: multipart/form-data; boundary={boundary}\r\nContent-Length: {length}\r\n"
    )
    return headers, body
