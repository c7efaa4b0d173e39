"""
The nodes of tenants, listed at most every two seconds for each tenant.

All Machines of a cluster look for their nodes at the same time, and check them again and again;
each would list every node or send a request of its own. A list that takes long is used for longer,
so that listing takes at most a twentieth of the time.
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
MOST_SHARE, LONGEST_SECONDS = 0.05, 30.0  # of the time; how long a list is used at most
KEPT_TENANTS = 64  # that were read last


@dataclass(frozen=True, slots=True)
class NodeList:
    """The nodes of one tenant at one moment."""

    at: float
    took: float  # seconds
    by_name: Mapping[str, Json] = field(repr=False)
    by_provider_id: Mapping[str, Json] = field(repr=False)

    def is_fresh(self, now: float, seconds: float) -> bool:
        """Whether it was read in the last seconds, or in those that its own reading asks for."""
        return now - self.at < max(seconds, min(self.took / MOST_SHARE, LONGEST_SECONDS))


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
            began = self._clock.monotonic()
            if known is None or not known.is_fresh(began, age):
                found = (await tenant.list(NODES)).items
                known = _indexed(self._clock.monotonic(), began, found)
                self._lists.pop(key, None)
                self._lists[key] = known
                while len(self._lists) > KEPT_TENANTS:
                    del self._lists[next(iter(self._lists))]
            return known


def _indexed(at: float, began: float, nodes: Sequence[Json]) -> NodeList:
    provided: dict[str, Json] = {}
    for node in nodes:
        if provider_id := node["spec"].get("providerID"):
            provided.setdefault(provider_id, node)
    return NodeList(at, at - began, {n["metadata"]["name"]: n for n in nodes}, provided)
