"""
The nodes of tenants, listed at most every two seconds for each tenant.

All Machines of a cluster look for their nodes at the same time, and check them again and again;
each would list every node or send a request of its own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key

Json = dict[str, Any]
FRESH_SECONDS = 2.0
CHECK_SECONDS = 5.0  # for the repeated check of a node that is known
KEPT_TENANTS = 64  # that were read last


@dataclass(frozen=True, slots=True)
class NodeList:
    """The nodes of one tenant at one moment."""

    at: float
    by_name: Mapping[str, Json] = field(repr=False)
    by_provider_id: Mapping[str, Json] = field(repr=False)


class SharedNodeLists:
    """Remembers the last list of each tenant."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lists: dict[Key, NodeList] = {}
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def find(self, key: Key, tenant: Reader, provider_id: str) -> Json | None:
        """The node with a provider ID; one that appeared in the last seconds may be missing."""
        return (await self._list(key, tenant, FRESH_SECONDS)).by_provider_id.get(provider_id)

    async def named(self, key: Key, tenant: Reader, name: str) -> Json | None:
        """A node as it was in the last seconds."""
        return (await self._list(key, tenant, CHECK_SECONDS)).by_name.get(name)

    async def _list(self, key: Key, tenant: Reader, age: float) -> NodeList:
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            known = self._lists.get(key)
            if known is None or self._clock.monotonic() - known.at >= age:
                known = _indexed(self._clock.monotonic(), (await tenant.list(NODES)).items)
                self._lists.pop(key, None)
                self._lists[key] = known
                while len(self._lists) > KEPT_TENANTS:
                    del self._lists[next(iter(self._lists))]
            return known


def _indexed(at: float, nodes: Sequence[Json]) -> NodeList:
    provided: dict[str, Json] = {}
    for node in nodes:
        if provider_id := node["spec"].get("providerID"):
            provided.setdefault(provider_id, node)
    return NodeList(at, {n["metadata"]["name"]: n for n in nodes}, provided)
