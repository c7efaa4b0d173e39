"""
Reads the addresses of a cluster's Nodes, also of those that no ProxmoxMachine made.

A cluster without kubeconfig, or whose API does not answer, has no known Nodes: the first machine of
a control plane must not wait for the API that it will serve.
"""

import asyncio

from moxwell.api.core.nodes import Node
from moxwell.clock import Clock
from moxwell.controllers.infra.address_users import NODE, AddressUser, normalized
from moxwell.errors import MoxwellError
from moxwell.runtime.key import Key
from moxwell.runtime.tenant_clients import TenantClients

KEEP_SECONDS = 30.0
LIST_SECONDS = 5.0  # a cluster that answers later delays its own machines only


class NodeAddressReader:
    """The addresses of the Nodes of all clusters asked for so far."""

    def __init__(self, clients: TenantClients | None, clock: Clock) -> None:
        self._clients, self._clock = clients, clock
        self._known: dict[Key, tuple[float, tuple[AddressUser, ...]]] = {}  # with expiry

    async def read(self, cluster: Key, own: str = "") -> tuple[AddressUser, ...]:
        """The users of addresses, without the Node that is named ``own``."""
        expiry, users = self._known.get(cluster, (0.0, ()))
        if expiry <= self._clock.monotonic():
            users = await self._list(cluster)
            self._known[cluster] = (self._clock.monotonic() + KEEP_SECONDS, users)
        return tuple(user for user in users if user.name != _name(own))

    async def _list(self, cluster: Key) -> tuple[AddressUser, ...]:
        try:
            async with asyncio.timeout(LIST_SECONDS):
                kube = await self._clients.find(cluster) if self._clients else None
                nodes = (await kube.list(Node)).items if kube else ()
        except (MoxwellError, TimeoutError):
            return ()
        return tuple(
            AddressUser(address, _name(node.name))
            for node in nodes
            for found in node.status.addresses
            if (address := normalized(found.address))
        )


def _name(node: str) -> str:
    return f"{NODE}{node}"
