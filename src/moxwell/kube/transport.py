"""
HTTP transport to an apiserver on one aiohttp session.

A watch is returned as chunks and keeps its connection until closed. After a 401 the credentials are
renewed and the request is sent once more, since it was not executed. A new client certificate opens
a new session, because a connection keeps its identity; the old session closes when its last request
or watch has ended. An answer is limited, because the kubeconfig of a cluster chooses its server.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from yarl import URL

from moxwell.api.requests import Request, Response
from moxwell.errors import Denied, Invalid, Unreachable
from moxwell.kube.credentials import ApiIdentity
from moxwell.kube.kubeconfig import ApiAccess

CONNECT_SECONDS = 10
KEEP_SECONDS = 60
CHUNK = 1 << 18
MAX_ANSWER = 256 << 20  # a page of 500 objects of half a megabyte


class ApiServerUnreachable(Unreachable):
    """The connection failed or broke."""

    reason = "Unreachable"


class UntrustedApiServer(Denied):
    """The server certificate is not signed by the configured CA."""

    reason = "CertificateUntrusted"


class BadClientCertificate(Invalid):
    """The client certificate or key is invalid."""

    reason = "InvalidCertificate"


class _Line:
    """A session, its identity and the number of its users."""

    def __init__(self, session: aiohttp.ClientSession, proof: tuple[str, str]) -> None:
        self.session, self.proof = session, proof
        self.users = 0
        self.retired = False

    async def leave(self) -> None:
        self.users -= 1
        if self.retired and self.users == 0:
            await self.session.close()


class KubeTransport:
    """A :class:`moxwell.api.requests.Handler` over the network."""

    def __init__(
        self, access: ApiAccess, *, connections: int = 0, max_answer: int = MAX_ANSWER
    ) -> None:
        self._access = access
        self._connections, self._max_answer = connections, max_answer
        self._lines: list[_Line] = []

    @property
    def open_sessions(self) -> tuple[bool, ...]:
        """Whether the sessions of earlier credentials and the current one are open, in order."""
        return tuple(not line.session.closed for line in self._lines)

    async def __aenter__(self) -> "KubeTransport":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; watches end."""
        lines, self._lines = self._lines, []
        for line in lines:
            await line.session.close()
        await asyncio.sleep(0)  # aborted connections close in the next iteration of the loop

    async def handle(self, request: Request) -> Response:
        """Send a request and return the response."""
        response = await self._once(request)
        if response.status == 401:
            self._access.credentials.forget()
            response = await self._once(request)
        return response

    async def _once(self, request: Request) -> Response:
        identity = await self._access.credentials.identity()
        line = await self._joined(identity)
        kept = False
        try:
            answer = await self._sent(line.session, identity, request)
            kept = _streams(request) and answer.status < 300
            return await self._taken(answer, line if kept else None)
        except aiohttp.ClientConnectorCertificateError as error:
            raise UntrustedApiServer(
                f"the certificate of {self._access.server} is not trusted"
            ) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiServerUnreachable(
                f"cannot reach {self._access.server}: {_said(error)}"
            ) from error
        finally:
            if not kept:
                await line.leave()

    async def _sent(
        self, session: aiohttp.ClientSession, identity: ApiIdentity, request: Request
    ) -> aiohttp.ClientResponse:
        headers = dict(request.headers)
        if identity.authorization:
            headers["authorization"] = identity.authorization.reveal
        return await session.request(
            request.method,
            self._url(request),
            headers=headers,
            data=request.body or None,
            allow_redirects=False,
            proxy=self._access.proxy or None,
            server_hostname=self._access.server_name or None,
        )

    def _url(self, request: Request) -> URL:
        base = URL(self._access.server)
        path = base.path.rstrip("/") + request.path
        return base.with_path(path).with_query(list(request.query))

    async def _taken(self, answer: aiohttp.ClientResponse, line: _Line | None) -> Response:
        headers = {name.lower(): value for name, value in answer.headers.items()}
        if warnings := answer.headers.getall("Warning", []):
            headers["warning"] = ", ".join(warnings)
        if line is not None:
            chunks = self._chunks(answer, line)
            return Response(status=answer.status, headers=headers, chunks=chunks)
        async with answer:
            return Response(status=answer.status, headers=headers, body=await self._body(answer))

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        parts, size = list[bytes](), 0
        while chunk := await answer.content.readany():
            parts.append(chunk)
            size += len(chunk)
            if size > self._max_answer:
                raise ApiServerUnreachable(
                    f"{self._access.server} answers more than {self._max_answer >> 20} MiB"
                )
        return b"".join(parts)

    async def _chunks(self, answer: aiohttp.ClientResponse, line: _Line) -> AsyncIterator[bytes]:
        try:
            while chunk := await answer.content.readany():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise ApiServerUnreachable(f"the watch broke off: {_said(error)}") from error
        finally:
            if answer.connection is not None and answer.connection.transport is not None:
                answer.connection.transport.abort()  # a TLS close_notify would wait for the server
            answer.close()
            await line.leave()

    async def _joined(self, identity: ApiIdentity) -> _Line:
        proof = (identity.certificate, identity.key.reveal)
        if self._lines and self._lines[-1].proof == proof:
            self._lines[-1].users += 1
            return self._lines[-1]
        older = [line for line in self._lines if not line.session.closed]
        made = _Line(self._open(identity), proof)
        made.users += 1
        self._lines = [*older, made]
        for line in older:
            line.users += 1
            line.retired = True
            await line.leave()  # closes the session if this was its last user
        return made

    def _open(self, identity: ApiIdentity) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=context(self._access, identity) if self._access.server[:5] == "https" else True,
            limit=self._connections,
            keepalive_timeout=KEEP_SECONDS,
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            headers={"user-agent": "moxwell"},
            read_bufsize=CHUNK,
            auto_decompress=True,
            skip_auto_headers=["content-type"],
        )


def context(access: ApiAccess, identity: ApiIdentity) -> ssl.SSLContext:
    """The TLS context of an access."""
    try:
        made = _verifying(access)
        made.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if access.insecure:
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        if identity.certificate:
            _load(made, f"{identity.certificate}\n{identity.key.reveal}")
    except ssl.SSLError as error:
        raise BadClientCertificate(f"a certificate or key for {access.server} is bad") from error
    return made


def _verifying(access: ApiAccess) -> ssl.SSLContext:
    """A context with the CAs of the system only where they are used: loading them is slow."""
    if not access.ca and not access.insecure:
        return ssl.create_default_context()
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if access.ca:
        made.load_verify_locations(cadata=access.ca)
    return made


def _load(made: ssl.SSLContext, pem: str) -> None:
    """OpenSSL reads certificates from files only: use an in-memory file."""
    memory = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(memory, pem.encode())
        made.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)


def _streams(request: Request) -> bool:
    return any(name == "watch" and value in ("true", "1") for name, value in request.query)


def _said(error: BaseException) -> str:
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return "no connection in time"
    text: Any = getattr(error, "strerror", None) or error
    return str(text) or type(error).__name__
