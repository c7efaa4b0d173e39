"""The node lifecycle controller: taints nodes whose kubelet no longer renews its lease."""

from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.nodelifecycle.plan import (
    EvictNode,
    NodeMove,
    ObservedNode,
    describe,
    next_move,
)
from moxwell.embedded.controllermanager.nodelifecycle.see import NodeObserver
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.embedded.token_buckets import TokenBuckets
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.writes import Writes

Json = dict[str, Any]


class NodeLifecycleController(Reconciler[Json, ObservedNode, NodeMove, Json]):
    """Reconciles Nodes; reads the other nodes of their zones from the cache."""

    kind = NODES

    def __init__(self, kube: Kube, clock: Clock, nodes: Cache[Any]) -> None:
        self._kube = kube
        self._buckets = TokenBuckets(clock)
        self._observer = NodeObserver(clock, nodes, self._buckets)

    async def see(self, node: Json, reader: Reader) -> ObservedNode:
        return await self._observer.observe(node, reader)

    def plan(self, node: Json, seen: ObservedNode) -> NodeMove:
        return next_move(node, seen)

    async def act(self, move: NodeMove) -> Any:
        if isinstance(move, EvictNode):
            if not self._buckets.take(move.zone, move.rate):
                return None
            return await move.writes.perform(self._kube, NODES)
        return await move.perform(self._kube, NODES) if isinstance(move, Writes) else None

    def describe(self, node: Json, seen: ObservedNode, move: NodeMove) -> Json | None:
        return describe(node, seen)
