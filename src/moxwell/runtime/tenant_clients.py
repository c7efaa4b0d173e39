"""
Clients of tenant clusters, from the kubeconfig Secrets of Cluster API.

The Secret is named ``<cluster>-kubeconfig`` and has the key ``value``. A client is kept while the
Secret does not change. A cluster without the Secret has no client.
"""

import base64
from collections.abc import Callable
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.api.requests import Handler
from moxwell.clock import Clock
from moxwell.errors import Missing
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.runtime.key import Key

Connect = Callable[[ApiAccess], Handler]
SECRETS = Resource("", "v1", "secrets", "Secret")


class TenantClients:
    """One client per tenant cluster, by the key of its Cluster object."""

    def __init__(self, kube: Kube, connect: Connect, clock: Clock) -> None:
        self._kube, self._connect, self._clock = kube, connect, clock
        self._clients: dict[Key, tuple[str, Kube, Handler]] = {}

    async def find(self, cluster: Key) -> Kube | None:
        """The client of a cluster, or None if it has no kubeconfig yet."""
        secret = await self._kube.find(SECRETS, f"{cluster.name}-kubeconfig", cluster.namespace)
        if secret is None or "value" not in (secret.get("data") or {}):
            await self.forget(cluster)
            return None
        version = str(secret["metadata"]["resourceVersion"])
        known = self._clients.get(cluster)
        if known is None or known[0] != version:
            await self.forget(cluster)
            handler = self._connect(self._access(secret))
            known = self._clients[cluster] = (version, Kube(handler), handler)
        return known[1]

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
        close: Any = getattr(known[2], "close", None) if known else None
        if close is not None:
            await close()
