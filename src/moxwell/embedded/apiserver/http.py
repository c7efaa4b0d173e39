"""
Serves the embedded API server over HTTPS (aiohttp), with client certificate and token
authentication.

Listens on loopback by default. Unauthenticated requests run as ``system:anonymous``; invalid
credentials are rejected. Watches are streamed.
"""

import hmac
import re
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from aiohttp import web
from multidict import CIMultiDict

from moxwell.api import requests
from moxwell.atomic_file import write_private
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.auth import bootstrap_tokens
from moxwell.embedded.apiserver.server import EmbeddedApiServer, status_response
from moxwell.kube import kubeconfig_writer
from moxwell.pki.folder import CertificateAuthority

MAX_BODY = 3 * 1024 * 1024
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
    ) -> None:
        self._api_server, self._authority, self._folder = api_server, authority, folder
        self._host, self._port, self._names = host, port, names
        self._static = dict(tokens or {})
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        shown = f"[{self._host}]" if ":" in self._host else self._host
        return f"https://{shown}:{self._port}"

    async def start(self) -> None:
        """Start to listen."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls())
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            self._api_server.core.watch_caches.end()
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> "HttpServer":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def write_kubeconfig(
        self,
        path: Path,
        user: str = "kubernetes-admin",
        groups: Sequence[str] = ("system:masters",),
    ) -> None:
        """Write a kubeconfig with mode 0600, for an administrator by default."""
        pair = self._authority.client(user, groups)
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

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            api_request = await self._api_request(request)
        except web.HTTPRequestEntityTooLarge:
            text = "Request entity too large: limit is 3145728"
            error = status_errors.StatusError(413, "RequestEntityTooLarge", text)
            return _full_response(status_response(error))
        except status_errors.StatusError as error:
            return _full_response(status_response(error))
        answer = await self._api_server.handle(api_request)
        if answer.chunks is None:
            return _full_response(answer)
        return await _stream(request, answer)

    async def _api_request(self, request: web.Request) -> requests.Request:
        headers = {name.lower(): value for name, value in request.headers.items()}
        return requests.Request(
            method=request.method,
            path=request.path,
            query=tuple(request.query.items()),
            headers={k: v for k, v in headers.items() if k != "authorization"},
            body=await request.read() if request.can_read_body else b"",
            user=self._user(request, headers.get("authorization", "")),
        )

    def _user(self, request: web.Request, authorization: str) -> requests.UserInfo:
        transport = request.transport
        peer = transport.get_extra_info("peercert") if transport is not None else None
        if peer:
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


def _from_certificate(subject: Sequence[Sequence[tuple[str, str]]]) -> requests.UserInfo:
    parts = [pair for part in subject for pair in part]
    name = next((value for key, value in parts if key == "commonName"), "")
    groups = tuple(value for key, value in parts if key == "organizationName")
    if not name:
        raise status_errors.unauthorized()
    return _authenticated(requests.UserInfo(name=name, groups=groups))


def _headers(answer: requests.Response) -> CIMultiDict[str]:
    """Split the warnings into one header each."""
    found = CIMultiDict(answer.headers)
    for warning in _WARNINGS.split(found.pop("warning", "")):
        if warning:
            found.add("warning", warning)
    return found


def _full_response(answer: requests.Response) -> web.Response:
    return web.Response(status=answer.status, headers=_headers(answer), body=answer.body)


async def _stream(request: web.Request, answer: requests.Response) -> web.StreamResponse:
    """Stream the chunks; a client that disconnects is not an error."""
    response = web.StreamResponse(status=answer.status, headers=_headers(answer))
    assert answer.chunks is not None
    chunks = answer.chunks
    with suppress(ConnectionError):
        await response.prepare(request)
        async for chunk in chunks:
            await response.write(chunk)
        await response.write_eof()
    if (close := getattr(chunks, "aclose", None)) is not None:
        await close()  # remove the watch now, not at garbage collection
    return response
