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
from typing import NamedTuple, Protocol
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from moxwell.clock import Clock
from moxwell.errors import Denied
from moxwell.pve import errors
from moxwell.pve.breaker import Breaker
from moxwell.pve.config import PasswordAuth, RegionConfig, TokenAuth
from moxwell.pve.failover import Failover
from moxwell.pve.tickets import Tickets
from moxwell.pve.values import Params, as_fields

DEADLINE_SECONDS = 45.0  # a proxied request may take Proxmox itself 30
UPLOAD_SECONDS = 3600.0
CONNECT_SECONDS = 5.0
TRY_SECONDS = 15.0  # for a GET that another URL could answer
KEEPALIVE_SECONDS = 4.0  # below pveproxy's, so that we are the ones who close
HIDDEN = ("password", "cipassword", "input-data", "content", "token", "secret")
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Untrusted(errors.PveError, Denied):
    """The server's certificate is not the expected one."""

    reason = "CertificateRefused"


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to send; ``open`` gives its bytes anew for each try."""

    filename: str
    size_bytes: int
    open: Callable[[], AsyncIterator[bytes]]

    @classmethod
    def of(cls, filename: str, data: bytes) -> "Upload":
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
        file: Upload,
        *,
        deadline_seconds: float = UPLOAD_SECONDS,
    ) -> bytes: ...

    async def close(self) -> None: ...


class Answer(NamedTuple):
    status: int
    reason: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request, independent of URL and credentials; ``body`` is made anew for each try."""

    method: str
    path: str
    body: Callable[[], bytes | AsyncIterator[bytes]] | None
    headers: dict[str, str]
    deadline_seconds: float

    @property
    def repeatable(self) -> bool:
        return self.method == "GET"


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the transport did so far."""

    sent: int
    unanswered: int
    breaker_open: bool
    url: str


def outgoing(method: str, path: str, params: Params | None, deadline_seconds: float) -> Outgoing:
    """Parameters go to the query of GET and DELETE, to the form of POST and PUT."""
    form = urlencode(as_fields(params)) if params else ""
    if method in {"GET", "DELETE"}:
        target = f"{path}?{form}" if form else path
        return Outgoing(method, target, None, {}, deadline_seconds)
    data = form.encode()
    return Outgoing(method, path, lambda: data, _FORM, deadline_seconds)


def tls(config: RegionConfig) -> ssl.SSLContext | aiohttp.Fingerprint | bool:
    """How the server proves itself: by a pinned certificate, by a CA, or (if told) not at all."""
    if config.fingerprint:
        return aiohttp.Fingerprint(bytes.fromhex(config.fingerprint))
    if config.insecure:
        return False
    if config.ca_pem:
        return ssl.create_default_context(cadata=config.ca_pem)
    return True


class HttpTransport:
    """The genuine wire, on aiohttp."""

    def __init__(self, config: RegionConfig, clock: Clock, *, breaker_threshold: int = 3) -> None:
        self._config = config
        self._failover = Failover(config.urls, clock)
        self._breaker = Breaker(clock, threshold=breaker_threshold)
        self._slots = asyncio.Semaphore(config.concurrency)
        self._tls = tls(config)
        self._session: aiohttp.ClientSession | None = None
        self._bases = {url: f"{url}/api2/json" for url in config.urls}
        self._sent = self._unanswered = 0
        self._token: dict[str, str] | None = None
        self._tickets: Tickets | None = None
        match config.auth:
            case TokenAuth(token_id, secret):
                self._token = {"Authorization": f"PVEAPIToken={token_id}={secret.reveal()}"}
            case PasswordAuth(username, password):
                self._tickets = Tickets(username, password, clock, self._login)

    @property
    def region(self) -> str:
        return self._config.region

    def statistics(self) -> Statistics:
        """Numbers for metrics and for the doctor."""
        return Statistics(
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
        file: Upload,
        *,
        deadline_seconds: float = UPLOAD_SECONDS,
    ) -> bytes:
        headers, body = multipart(params, file)
        answer = await self._authorised(Outgoing("POST", path, body, headers, deadline_seconds))
        if answer.status == 200:
            return answer.body
        raise self._refusal(answer, f"POST {path}", params)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _refusal(self, answer: Answer, what: str, params: Params | None) -> errors.PveError:
        where = f"region {self.region}: {what}"
        error = errors.from_answer(answer.status, answer.reason, answer.body, where=where)
        hidden = [str(v) for k, v in (params or {}).items() if k in HIDDEN and v]
        if any(text in str(error) for text in hidden):
            # Proxmox quotes the value it refuses.
            return type(error)("(the answer quotes a secret)", status=answer.status, where=where)
        return error

    async def _authorised(self, out: Outgoing) -> Answer:
        if self._token is not None:
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
        answer = await self._guarded(out, {})
        if answer.status == 200:
            return answer.body
        raise self._refusal(answer, "POST /access/ticket", form)

    async def _guarded(self, out: Outgoing, auth: dict[str, str]) -> Answer:
        if not self._breaker.enter():
            raise errors.RegionUnreachable(
                f"nobody answered; next try in {self._breaker.retry_after:.0f} s",
                where=f"region {self.region}",
            )
        try:
            async with self._slots:
                answer = await self._failing_over(out, auth)
        except errors.PveError:
            self._breaker.failed()
            raise
        except asyncio.CancelledError:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        return answer

    async def _failing_over(self, out: Outgoing, auth: dict[str, str]) -> Answer:
        """Try the URLs in turn until one answers."""
        last: Answer | None = None
        problem: BaseException | None = None
        order = self._failover.order()
        end = asyncio.get_running_loop().time() + out.deadline_seconds
        for n, url in enumerate(order):
            left = end - asyncio.get_running_loop().time()
            others = n + 1 < len(order)
            try:
                answer = await self._try(url, out, auth, _patience(out, left, others))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._unanswered += 1
                self._failover.failed(url)
                problem = error
                if not out.repeatable and not _never_sent(error):
                    raise errors.Uncertain(
                        f"no answer ({_short(error)}); it may have happened",
                        where=f"region {self.region}: {out.method} {out.path.partition('?')[0]}",
                    ) from error
                continue
            self._failover.succeeded(url)
            last = answer
            if answer.status == 595 or (answer.status == 596 and out.repeatable):
                continue
            return answer
        if last is not None:
            return last
        raise self._unreachable(problem) from problem

    def _unreachable(self, problem: BaseException | None) -> errors.PveError:
        where = f"region {self.region}"
        if isinstance(problem, aiohttp.ClientSSLError | aiohttp.ServerFingerprintMismatch):
            return Untrusted(
                f"certificate refused ({_short(problem)}): set ca_file or fingerprint",
                where=where,
            )
        return errors.RegionUnreachable(f"no URL answers ({_short(problem)})", where=where)

    async def _try(
        self, url: str, out: Outgoing, auth: dict[str, str], patience_seconds: float
    ) -> Answer:
        if self._session is None:
            self._session = self._open()
        self._sent += 1
        async with (
            asyncio.timeout(patience_seconds),
            self._session.request(
                out.method,
                URL(self._bases[url] + out.path, encoded=True),
                data=out.body() if out.body else None,
                headers={**out.headers, **auth},
                ssl=self._tls,
                allow_redirects=False,
            ) as answer,
        ):
            return Answer(answer.status, answer.reason or "", await answer.read())

    def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._config.concurrency + 2, keepalive_timeout=KEEPALIVE_SECONDS
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        )


def _patience(out: Outgoing, left: float, others: bool) -> float:
    return max(0.0, min(left, TRY_SECONDS) if others and out.repeatable else left)


def _never_sent(error: BaseException) -> bool:
    """Is it certain that the server did not get the request?"""
    return isinstance(
        error,
        aiohttp.ClientConnectorError
        | aiohttp.ConnectionTimeoutError
        | aiohttp.ServerFingerprintMismatch,
    )


def _short(error: BaseException | None) -> str:
    text = str(error or "").splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__


def multipart(
    params: Params, file: Upload, boundary: str = "moxwell-8d1f5c0e7a9b4d3f"
) -> tuple[dict[str, str], Callable[[], AsyncIterator[bytes]]]:
    """A multipart form whose last part is the file; its length is known, as pveproxy demands."""
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
    headers = {
        "Content-Type": f"multipart/form-data; boundary={boundary}",
        "Content-Length": str(length),
    }
    return headers, body
