"""
Clients of tenant clusters, from the kubeconfig Secrets of Cluster API.

The Secret is named ``<cluster>-kubeconfig`` and has the key ``value``. A client is kept while the
Secret does not change, which is checked at most once a second. A cluster without the Secret has no
client.

Whoever may write the Secret chooses the URL, and reads the errors of a client in conditions. So of
an error response only a Status is kept: a page of another server would show what only we can reach.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from moxwell.api.kinds import Resource
from moxwell.api.requests import Handler, Request, Response
from moxwell.clock import Clock
from moxwell.errors import Missing
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.runtime.key import Key

Connect = Callable[[ApiAccess], Handler]
SECRETS = Resource("", "v1", "secrets", "Secret")
FRESH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _TenantClient:
    version: str  # of the Secret
    checked: float
    kube: Kube
    handler: Handler


class _ErrorBody(msgspec.Struct, frozen=True):
    kind: str = ""


@dataclass(frozen=True, slots=True)
class _StatusErrors:
    """A handler whose error responses have a Status as body, or none."""

    handler: Handler

    async def handle(self, request: Request) -> Response:
        response = await self.handler.handle(request)
        if response.status < 400 or _is_status(response.body):
            return response
        return replace(response, body=b"")


def _is_status(body: bytes) -> bool:
    try:
        return msgspec.json.decode(body, type=_ErrorBody).kind == "Status"
    except msgspec.MsgspecError:
        return False


class TenantClients:
    """One client per tenant cluster, by the key of its Cluster object."""

    def __init__(self, kube: Kube, connect: Connect, clock: Clock) -> None:
        self._kube, self._connect, self._clock = kube, connect, clock
        self._clients: dict[Key, _TenantClient] = {}

    async def find(self, cluster: Key) -> Kube | None:
        """The client of a cluster, or None if it has no kubeconfig yet."""
        known, now = self._clients.get(cluster), self._clock.monotonic()
        if known is not None and now - known.checked < FRESH_SECONDS:
            return known.kube
        secret = await self._kube.find(SECRETS, f"{cluster.name}-kubeconfig", cluster.namespace)
        if secret is None or "value" not in (secret.get("data") or {}):
            await self.forget(cluster)
            return None
        version, known = str(secret["metadata"]["resourceVersion"]), self._clients.get(cluster)
        if known is None or known.version != version:
            await self.forget(cluster)
            handler = self._connect(self._access(secret))
            known = _TenantClient(version, now, Kube(_StatusErrors(handler)), handler)
        self._clients[cluster] = known = replace(known, checked=now)
        return known.kube

    async def get(self, cluster: Key) -> Kube:
        """The client of a cluster; Missing if it has no kubeconfig."""
        found = await self.find(cluster)
        if found is None:
            raise Missing(f"cluster {cluster.name} has no kubeconfig Secret")
        return found

    def _access(self, secret: dict[str, Any]) -> ApiAccess:
        text = base64.b64decode(secret["data"]["value"])
        return kubeconfig.parse(text).access(self._clock, {})

    async def forget(self, cluster: Key) -> None:
        """Close the client of a cluster."""
        known = self._clients.pop(cluster, None)
        close: Any = getattr(known.handler, "close", None) if known else None
        if close is not None:
            await close()
