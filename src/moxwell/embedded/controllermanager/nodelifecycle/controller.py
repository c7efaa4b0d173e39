"""The node lifecycle controller: taints nodes whose kubelet no longer renews its lease."""

from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.nodelifecycle.plan import (
    ObservedNode,
    describe,
    next_move,
)
from moxwell.embedded.controllermanager.resources import LEASES, NODES
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader

Json = dict[str, Any]
LEASE_NAMESPACE = "kube-node-lease"


class NodeLifecycleController(WritingReconciler[Json, ObservedNode, Json]):
    """Reconciles Nodes."""

    kind = NODES

    def __init__(self, kube: Kube, clock: Clock) -> None:
        super().__init__(kube)
        self._clock = clock

    async def see(self, node: Json, reader: Reader) -> ObservedNode:
        lease = await reader.find(LEASES, node["metadata"]["name"], LEASE_NAMESPACE)
        conditions = (node.get("status") or {}).get("conditions") or ()
        return ObservedNode(self._clock.now(), lease, tuple(conditions))

    def plan(self, node: Json, seen: ObservedNode) -> WriteMove:
        return next_move(node, seen)

    def describe(self, node: Json, seen: ObservedNode, move: WriteMove) -> Json | None:
        return describe(node, seen)
