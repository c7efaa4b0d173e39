"""
The way into a tenant cluster: from its kubeconfig Secret to a client, kept while it is the same.

Cluster API's rule: the Secret is called ``<cluster>-kubeconfig``, its key ``value``. A cluster
whose Secret is not there yet simply has no client.
"""

import base64
from collections.abc import Callable
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.api.requests import Handler
from moxwell.clock import Clock
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.kubeconfig import Access
from moxwell.runtime.key import Key

SECRETS = Resource("", "v1", "secrets", "Secret")
Dial = Callable[[Access], Handler]


class Tenants:
    """Clients of tenant clusters by the key of their Cluster."""

    def __init__(self, kube: Kube, dial: Dial, clock: Clock) -> None:
        self._kube, self._dial, self._clock = kube, dial, clock
        self._clients: dict[Key, tuple[str, Kube, Handler]] = {}

    async def find(self, cluster: Key) -> Kube | None:
        """A client of the tenant, or None where there is no way in yet."""
        secret = await self._kube.find(SECRETS, f"{cluster.name}-kubeconfig", cluster.namespace)
        if secret is None or "value" not in (secret.get("data") or {}):
            await self.forget(cluster)
            return None
        version = str(secret["metadata"]["resourceVersion"])
        known = self._clients.get(cluster)
        if known is None or known[0] != version:
            await self.forget(cluster)
            handler = self._dial(self._access(secret))
            known = self._clients[cluster] = (version, Kube(handler), handler)
        return known[1]

    def _access(self, secret: dict[str, Any]) -> Access:
        text = base64.b64decode(secret["data"]["value"])
        return kubeconfig.parse(text).access(self._clock, {})

    async def forget(self, cluster: Key) -> None:
        """Close what is open to a tenant."""
        known = self._clients.pop(cluster, None)
        close: Any = getattr(known[2], "close", None) if known else None
        if close is not None:
            await close()
