"""
Lets all simulated guests of a cluster share a few connections to its API server.

A request with a bearer token, or without credentials, goes over connections without a client
certificate. A kubelet's client certificate belongs to a connection; where the lab has a client
certificate of its own for the API server (``proxy``), the requests of all kubelets go over its
connections and impersonate their nodes, so they are authorized as theirs. Elsewhere each kubelet
has connections of its own.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import structlog
from cryptography.x509.oid import NameOID

from moxwell.api.requests import Handler, Request, Response
from moxwell.clock import Clock
from moxwell.errors import Unreachable
from moxwell.kube.client import Kube
from moxwell.kube.credentials import ApiIdentity, StaticCredentials
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.lab.guests.pod_watch import RETRY_SECONDS, PodWatch
from moxwell.pki.certificates import load_certificate
from moxwell.task_group import keep_running

Dial = Callable[[ApiAccess], Handler]
Proxy = Callable[[ApiAccess], ApiIdentity | None]
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
log = structlog.get_logger()
Server = tuple[str, str, bool]  # URL, CA, whether it is not verified


@dataclass(slots=True)
class _Shared:
    """A handler and the number of its users; ``watch`` is the pod watch over it."""

    handler: Handler
    users: int = 0
    watch: PodWatch | None = None
    task: "asyncio.Task[None] | None" = field(default=None)


class SharedConnections:
    """The connections of all guests; they close with their last user."""

    def __init__(self, dial: Dial, clock: Clock, spawn: Spawn, proxy: Proxy | None) -> None:
        """
        ``proxy`` returns the lab's identity at an API server, None if it has none.

        Without ``proxy`` nothing is shared.
        """
        self._dial, self._clock, self._spawn, self._proxy = dial, clock, spawn, proxy
        self._anonymous: dict[Server, _Shared] = {}
        self._proxied: dict[Server, _Shared] = {}

    def dial(self, access: ApiAccess) -> "GuestHandler":
        """A handler for one guest; must be closed."""
        return GuestHandler(self, access)

    def open(self, access: ApiAccess, identity: ApiIdentity) -> "_Route":
        """How the requests of an identity are sent; counts a user."""
        if self._proxy is None:
            return _Route(self._dial(access), {}, None)
        if not identity.certificate:
            plain = replace(access, credentials=StaticCredentials(ApiIdentity()))
            if (shared := self._anonymous.get(_server(access))) is None:
                shared = self._anonymous[_server(access)] = _Shared(self._dial(plain))
            return self._enter(self._anonymous, access, shared, _authorization(identity))
        found = self._open_proxied(access)
        if found is None:
            return _Route(self._dial(access), {}, None)
        return self._enter(self._proxied, access, found, _impersonation(identity.certificate))

    def pods(self, access: ApiAccess) -> PodWatch | None:
        """The shared pod watch of a cluster; None if its kubelets watch on their own."""
        found = self._proxied.get(_server(access))
        if found is None:
            return None
        if found.watch is None:
            found.watch = PodWatch(Kube(found.handler, manager="kubelet"), self._clock)
            found.task = self._spawn(keep_running(found.watch.run, self._watch_failed))
        return found.watch

    async def _watch_failed(self, error: BaseException) -> None:
        """A pod of one cluster that cannot be read does not end the guests of all."""
        log.info("pods are not watched", error=type(error).__name__)
        await self._clock.sleep(RETRY_SECONDS)

    def _open_proxied(self, access: ApiAccess) -> _Shared | None:
        server = _server(access)
        if server not in self._proxied:
            identity = self._proxy(access) if self._proxy else None
            if identity is None:
                return None
            own = replace(access, credentials=StaticCredentials(identity))
            self._proxied[server] = _Shared(self._dial(own))
        return self._proxied[server]

    def _enter(
        self,
        pool: dict[Server, _Shared],
        access: ApiAccess,
        shared: _Shared,
        headers: dict[str, str],
    ) -> "_Route":
        shared.users += 1
        return _Route(shared.handler, headers, partial(self._leave, pool, _server(access)))

    async def _leave(self, pool: dict[Server, _Shared], server: Server) -> None:
        """Close the connections after the last user."""
        shared = pool[server]
        shared.users -= 1
        if shared.users:
            return
        del pool[server]
        if shared.task is not None:
            shared.task.cancel()
        await close(shared.handler)


@dataclass(frozen=True, slots=True)
class _Route:
    """Where the requests of a guest go, with which headers; ``leave`` is None for its own."""

    handler: Handler
    headers: dict[str, str] = field(repr=False)
    leave: Callable[[], Awaitable[None]] | None


class GuestHandler:
    """Sends the requests of one guest."""

    def __init__(self, connections: SharedConnections, access: ApiAccess) -> None:
        self._connections, self._access = connections, access
        self._route: _Route | None = None
        self.answered: bool | None = None  # the last request; None: none was sent

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._access.server

    def __repr__(self) -> str:
        return f"GuestHandler({self._access.server})"

    async def open(self) -> _Route:
        """Choose the connections; idempotent."""
        identity = await self._access.credentials.identity()
        if self._route is None:
            self._route = self._connections.open(self._access, identity)
        return self._route

    async def handle(self, request: Request) -> Response:
        route = await self.open()
        headers = {**request.headers, **route.headers}
        try:
            response = await route.handler.handle(replace(request, headers=headers))
        except Unreachable:
            self.answered = False
            raise
        self.answered = True
        return response

    async def close(self) -> None:
        route, self._route = self._route, None
        if route is None:
            return
        if route.leave is not None:
            await route.leave()
        else:
            await close(route.handler)


async def close(handler: Handler) -> None:
    """Close a handler that has connections."""
    if hasattr(handler, "close"):
        await handler.close()


def _server(access: ApiAccess) -> Server:
    return access.server, access.ca, access.insecure


def _authorization(identity: ApiIdentity) -> dict[str, str]:
    return {"authorization": identity.authorization.reveal} if identity.authorization else {}


def _subject(pem: str) -> tuple[str, tuple[str, ...]]:
    subject = load_certificate(pem.encode()).subject
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(names[0].value), tuple(str(group.value) for group in groups)


def _impersonation(pem: str) -> dict[str, str]:
    name, groups = _subject(pem)
    return {"impersonate-user": name, "impersonate-group": groups[0] if groups else ""}


def reached_servers(handlers: Iterable[GuestHandler]) -> Iterator[tuple[str, int, bool]]:
    """The servers that a guest sent requests to, as its kernel would list them."""
    for handler in handlers:
        url = urlsplit(handler.server)
        if handler.answered is not None and url.hostname and _is_ipv4(url.hostname):
            yield url.hostname, url.port or 443, handler.answered


def _is_ipv4(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 4
    except ValueError:  # a name, or what user data calls an address
        return False
