"""
Serves the embedded API server over HTTPS (aiohttp), with client certificate and token
authentication.

Listens on loopback by default. Unauthenticated requests run as ``system:anonymous``; invalid
credentials are rejected. Watches are streamed.
"""

import asyncio
import hmac
import re
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web
from multidict import CIMultiDict

from moxwell.api import requests
from moxwell.atomic_file import write_private
from moxwell.embedded.apiserver import connections, limits, status_errors
from moxwell.embedded.apiserver.auth import bootstrap_tokens
from moxwell.embedded.apiserver.auth.impersonation import REPEATED
from moxwell.embedded.apiserver.connections import ConnectionServer
from moxwell.embedded.apiserver.flow_control import FlowController, RejectedRequest
from moxwell.embedded.apiserver.kubelet.pod_target import PodConnection
from moxwell.embedded.apiserver.kubelet.upgrades import Upgrades
from moxwell.embedded.apiserver.server import EmbeddedApiServer, status_response
from moxwell.errors import MoxwellError
from moxwell.kube import kubeconfig_writer
from moxwell.pki.folder import CertificateAuthority

log = structlog.get_logger(__name__)
MAX_UNSENT = 64 * 1024  # a larger response keeps its seat until it is sent
ANONYMOUS = requests.UserInfo(name="system:anonymous", groups=("system:unauthenticated",))
_WARNINGS = re.compile(r', (?=299 - ")')
LOOPBACK = ("127.0.0.1", "::1", "localhost")
SERVICE = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")


class HttpServer:
    """Serves one API server on one address; ``url`` is known after ``start``."""

    def __init__(
        self,
        api_server: EmbeddedApiServer,
        authority: CertificateAuthority,
        *,
        folder: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        names: Sequence[str] = (),
        tokens: Mapping[str, requests.UserInfo] | None = None,
        max_connections: int | None = None,
    ) -> None:
        self._api_server, self._authority, self._folder = api_server, authority, folder
        self._host, self._port, self._names = host, port, names
        self._static = dict(tokens or {})
        self._revocations = authority.revocations
        self._max_connections = max_connections or connections.max_connections()
        self._flow_controller = FlowController()
        kubelets = api_server.kubelets
        self._upgrades = Upgrades(kubelets) if kubelets is not None else None
        self._listener: asyncio.Server | None = None
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        shown = f"[{self._host}]" if ":" in self._host else self._host
        return f"https://{shown}:{self._port}"

    async def start(self) -> None:
        """Start to listen."""
        server = ConnectionServer(self._handle, maximum=self._max_connections)
        self._runner = web.ServerRunner(server, shutdown_timeout=1)
        await self._runner.setup()
        self._listener = await asyncio.get_running_loop().create_server(
            server,
            self._host,
            self._port,
            ssl=self._tls(),
            ssl_handshake_timeout=connections.HANDSHAKE_SECONDS,
        )
        self._port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._runner is not None:
            self._api_server.core.watch_caches.end()
            if self._listener is not None:
                self._listener.close()
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> "HttpServer":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def write_kubeconfig(self, path: Path) -> None:
        """Write the kubeconfig of an administrator with mode 0600, unless it is valid for long."""
        text = path.read_text() if path.exists() else ""
        known = kubeconfig_writer.client_certificate(text) if self.url in text else None
        pair = self._authority.administrator(known)
        if pair is not None:
            text = kubeconfig_writer.render(self.url, self._authority.certificate, pair, "moxwell")
            write_private(path, text.encode())

    def _tls(self) -> ssl.SSLContext:
        pair = self._authority.server([*LOOPBACK, *SERVICE, self._host, *self._names])
        certificate, key = self._folder / "server.crt", self._folder / "server.key"
        write_private(certificate, pair.certificate)
        write_private(key, pair.key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(cadata=self._authority.certificate.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    # requests

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            headers = _request_headers(request)
            user = self._user(request, headers.pop("authorization", ""))
            async with self._flow_controller.seat(user, str(request.remote)):
                answer = await self._api_server.handle(await _api_request(request, headers, user))
                if answer.chunks is None and answer.upgrade is None:
                    response = _full_response(answer)
                    if len(answer.body) > MAX_UNSENT:
                        await connections.send(request, response)
                    return response
            if isinstance(answer.upgrade, PodConnection) and self._upgrades is not None:
                return await self._upgrades.serve(request, answer.upgrade)
        except status_errors.StatusError as error:
            return _full_response(status_response(error))
        except RejectedRequest as error:
            return _too_many_requests(error)
        return await _stream(request, answer)

    def _user(self, request: web.BaseRequest, authorization: str) -> requests.UserInfo:
        transport = request.transport
        peer = transport.get_extra_info("peercert") if transport is not None else None
        if peer:
            self._require_valid(peer)
            return _from_certificate(peer["subject"])
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise status_errors.unauthorized()
        found = self.authenticate(token.strip())
        if found is None:
            raise status_errors.unauthorized()
        return found

    def _require_valid(self, peer: Mapping[str, Any]) -> None:
        """Refuse a certificate that was revoked, or that expired on an open connection."""
        expired = _seconds(peer["notAfter"]) <= self._api_server.core.clock.now().timestamp()
        try:
            revoked = self._revocations.is_revoked(int(peer["serialNumber"], 16))
        except MoxwellError as error:
            log.error("client certificates are refused", error=str(error))
            revoked = True
        if expired or revoked:
            raise status_errors.unauthorized()

    def authenticate(self, token: str) -> requests.UserInfo | None:
        """Authenticate a bearer token."""
        for known, user in self._static.items():
            if hmac.compare_digest(known.encode(), token.encode(errors="surrogateescape")):
                return _authenticated(user)
        verified = self._api_server.tokens.verify(token)
        if verified is not None:
            return verified.user
        core = self._api_server.core
        return bootstrap_tokens.authenticate(token, core.cache, core.clock)


def _authenticated(user: requests.UserInfo) -> requests.UserInfo:
    if "system:authenticated" in user.groups:
        return user
    groups = (*user.groups, "system:authenticated")
    return requests.UserInfo(name=user.name, groups=groups, uid=user.uid, extra=user.extra)


@lru_cache(maxsize=4096)  # a connection has one certificate for all its requests
def _seconds(not_after: str) -> int:
    return ssl.cert_time_to_seconds(not_after)


@lru_cache(maxsize=4096)
def _from_certificate(subject: tuple[tuple[tuple[str, str], ...], ...]) -> requests.UserInfo:
    parts = [pair for part in subject for pair in part]
    name = next((value for key, value in parts if key == "commonName"), "")
    groups = tuple(value for key, value in parts if key == "organizationName")
    if not name:
        raise status_errors.unauthorized()
    return _authenticated(requests.UserInfo(name=name, groups=groups))


def _headers(answer: requests.Response) -> CIMultiDict[str]:
    """Split the warnings into one header each."""
    found = CIMultiDict(connections.SECURITY_HEADERS)
    found.update(answer.headers)
    for warning in _WARNINGS.split(found.pop("warning", "")):
        if warning:
            found.add("warning", warning)
    return found


def _request_headers(request: web.BaseRequest) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        key = name.lower()
        repeated = key.startswith("impersonate-") and key in headers
        headers[key] = f"{headers[key]}{REPEATED}{value}" if repeated else value
    return headers


async def _api_request(
    request: web.BaseRequest, headers: Mapping[str, str], user: requests.UserInfo
) -> requests.Request:
    """Read the body, within its limits of size and time."""
    try:
        async with asyncio.timeout(connections.BODY_SECONDS):
            body = await request.read() if request.can_read_body else b""
    except web.HTTPRequestEntityTooLarge:
        raise limits.too_large(f"limit is {limits.MAX_BODY}") from None
    except TimeoutError:
        text = f"the request body did not arrive within {connections.BODY_SECONDS:.0f} seconds"
        raise status_errors.StatusError(408, "Timeout", text) from None
    return requests.Request(
        method=request.method,
        path=request.path,
        query=tuple(request.query.items()),
        headers=headers,
        body=body,
        remote=request.remote or "",
        user=user,
    )


def _full_response(answer: requests.Response) -> web.Response:
    return web.Response(status=answer.status, headers=_headers(answer), body=answer.body)


def _too_many_requests(error: RejectedRequest) -> web.Response:
    headers = {**connections.SECURITY_HEADERS, "Retry-After": "1"}
    return web.Response(status=429, headers=headers, text=f"{error}\n")


async def _stream(request: web.BaseRequest, answer: requests.Response) -> web.StreamResponse:
    """Stream the chunks; a client that does not read is disconnected, which is not an error."""
    response = web.StreamResponse(status=answer.status, headers=_headers(answer))
    assert answer.chunks is not None
    chunks = answer.chunks
    with suppress(ConnectionError):
        try:
            await response.prepare(request)
            async for chunk in chunks:
                async with asyncio.timeout(connections.WRITE_SECONDS):
                    await response.write(chunk)
            await response.write_eof()
        except TimeoutError:
            connections.disconnect(request)
    if (close := getattr(chunks, "aclose", None)) is not None:
        await close()  # remove the watch now, not at garbage collection
    return response
