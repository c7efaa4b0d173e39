"""
The wire to one region: HTTP requests in, the JSON body of a 200 answer out, or an error.

In: method, path below ``/api2/json``, parameters. Out: bytes, decoded by the caller that knows
their type. On the way: credentials, TLS, failover between URLs, a concurrency limit, a circuit
breaker, a deadline. The surprise: nothing but a GET is ever sent twice, unless it is certain that
the first was not received; a 595 comes from a healthy host about a dead one, so it moves the
request to another URL but counts against nobody.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlencode

from moxwell.clock import Clock
from moxwell.errors import Bug, Denied, Invalid, Unreachable
from moxwell.pve import errors
from moxwell.pve.breaker import Breaker
from moxwell.pve.config import PasswordAuth, RegionConfig, TokenAuth
from moxwell.pve.failover import Failover
from moxwell.pve.http import CertificateRejected, DeadlineExceeded, NotSent, Origin
from moxwell.pve.http_response import BadResponse, ConnectionLost, HttpResponse
from moxwell.pve.tickets import Tickets
from moxwell.pve.values import Params, as_fields

DEADLINE_SECONDS = 45.0  # a proxied request may take Proxmox itself 30
UPLOAD_SECONDS = 3600.0
TRY_SECONDS = 30.0  # for a GET that another URL could answer; pveproxy itself gives up then
HIDDEN = ("password", "cipassword", "input-data", "content", "token", "secret")


class CertificateRefused(errors.PveError, Denied):
    """The server's certificate is not the expected one."""

    reason = "CertificateRefused"


@dataclass(frozen=True, slots=True)
class FileUpload:
    """A file to send; ``open`` gives its bytes anew for each try."""

    filename: str
    size_bytes: int
    open: Callable[[], AsyncIterator[bytes]]

    @classmethod
    def of(cls, filename: str, data: bytes) -> "FileUpload":
        """An upload of bytes in memory."""

        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(data), 65536):
                yield data[start : start + 65536]

        return cls(filename, len(data), chunks)


class Transport(Protocol):
    """What the client needs of a wire to one region."""

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
    """A request, independent of URL and credentials; a stream is opened anew for each try."""

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
    """What the transport did so far."""

    sent: int
    unanswered: int
    breaker_open: bool
    url: str


def outgoing(
    method: str, path: str, params: Params | None, deadline_seconds: float
) -> OutgoingRequest:
    """Parameters go to the query of GET and DELETE, to the form of POST and PUT."""
    if not path.isprintable() or " " in path:
        raise Bug(f"{path!r} is no path")
    form = urlencode(as_fields(params)) if params else ""
    if method in {"GET", "DELETE"}:
        return OutgoingRequest(method, f"{path}?{form}" if form else path, "", deadline_seconds)
    data = form.encode()
    headers = f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(data)}\r\n"
    return OutgoingRequest(method, path, headers, deadline_seconds, data)


def tls(config: RegionConfig) -> ssl.SSLContext | None:
    """How the server proves itself: by a pinned certificate, by a CA, or (if told) not at all."""
    if not any(url.startswith("https:") for url in config.urls):
        return None
    context = ssl.create_default_context(cadata=config.ca_pem or None)
    if config.fingerprint or config.insecure:  # a pinned certificate is compared, not verified
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class PveHttpTransport:
    """The genuine wire, on aiohttp."""

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
        """Numbers for metrics and for the doctor."""
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
        answer = await self._authorised(outgoing(method, path, params, deadline_seconds))
        if answer.status == 200:
            return answer.body
        raise self._refusal(answer, f"{method} {path}", params)

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
        answer = await self._authorised(out)
        if answer.status == 200:
            return answer.body
        raise self._refusal(answer, f"POST {path}", params)

    async def close(self) -> None:
        for origin in self._origins.values():
            origin.close()
        await asyncio.sleep(0)  # the loop's own turn to close them

    def _refusal(self, answer: HttpResponse, what: str, params: Params | None) -> errors.PveError:
        where = f"region {self.region}: {what}"
        error = errors.from_response(answer.status, answer.reason, answer.body, where=where)
        hidden = [str(v) for k, v in (params or {}).items() if k in HIDDEN and v]
        if any(text in str(error) for text in hidden):
            # Proxmox quotes the value it refuses.
            return type(error)("(the answer quotes a secret)", status=answer.status, where=where)
        return error

    async def _authorised(self, out: OutgoingRequest) -> HttpResponse:
        if self._token:
            return await self._guarded(out, self._token)
        assert self._tickets is not None
        headers = await self._tickets.headers(out.method)
        answer = await self._guarded(out, headers)
        if answer.status != 401:
            return answer
        # A 401 is decided before the effect, so any method may be repeated after it.
        self._tickets.refused(headers)
        return await self._guarded(out, await self._tickets.headers(out.method))

    async def _login(self, username: str, password: str) -> bytes:
        form = {"username": username, "password": password}
        out = outgoing("POST", "/access/ticket", form, DEADLINE_SECONDS)
        answer = await self._guarded(out, "")
        if answer.status == 200:
            return answer.body
        raise self._refusal(answer, "POST /access/ticket", form)

    async def _guarded(self, out: OutgoingRequest, auth: str) -> HttpResponse:
        end = asyncio.get_running_loop().time() + out.deadline_seconds
        await self._take_slot(end)
        try:
            return await self._through_breaker(out, auth, end)
        finally:
            self._slots.release()

    async def _take_slot(self, end: float) -> None:
        """One of the region's requests at once; the time in the queue counts."""
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout_at(end):
                await self._slots.acquire()
        except TimeoutError as error:
            raise errors.Overloaded(
                f"{self._config.concurrency} other requests did not end in time",
                where=f"region {self.region}",
            ) from error

    async def _through_breaker(self, out: OutgoingRequest, auth: str, end: float) -> HttpResponse:
        if not self._breaker.enter():
            raise errors.RegionUnreachable(
                f"nobody answered; next try in {self._breaker.retry_after:.0f} s",
                where=f"region {self.region}",
            )
        try:
            answer = await self._failing_over(out, auth, end)
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
        return answer

    async def _failing_over(self, out: OutgoingRequest, auth: str, end: float) -> HttpResponse:
        """Try the URLs in turn until one answers."""
        last: HttpResponse | None = None
        problem: Unreachable | None = None
        order = self._failover.order()
        if len(order) == 1 and out.repeatable:
            order *= 2  # a connection that broke says nothing about the next one
        loop = asyncio.get_running_loop()
        for n, url in enumerate(order):
            others = n + 1 < len(order)
            until = min(end, loop.time() + TRY_SECONDS) if others and out.repeatable else end
            self._sent += 1
            try:
                answer = await self._try(self._origins[url], out, auth, until)
            except Unreachable as error:
                self._unanswered += 1
                if not isinstance(error, BadResponse):
                    self._failover.failed(url)
                problem = error
                if not out.repeatable and not isinstance(error, NotSent):
                    raise errors.OutcomeUnknown(
                        f"no answer ({error}); it may have happened", where=self._where(out)
                    ) from error
                if len(self._origins) == 1 and not _broke(error):
                    break
                continue
            self._failover.succeeded(url)
            last = answer
            elsewhere = answer.status == 595 or (answer.status == 596 and out.repeatable)
            if not elsewhere or len(self._origins) == 1:
                return answer
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


def _broke(error: Unreachable) -> bool:
    """Report whether a connection broke while a response was awaited, so that a retry may help."""
    return isinstance(error, ConnectionLost) and not isinstance(
        error, DeadlineExceeded | BadResponse
    )


def multipart(
    params: Params, file: FileUpload, boundary: str = "moxwell-8d1f5c0e7a9b4d3f"
) -> tuple[str, Callable[[], AsyncIterator[bytes]]]:
    """A multipart form whose last part is the file; its length is known, as pveproxy demands."""
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
