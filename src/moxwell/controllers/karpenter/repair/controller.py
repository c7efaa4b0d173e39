"""``karpenter.repair``: deletes the node claims of nodes that stay unhealthy."""

from collections.abc import Sequence

from moxwell.api.core.nodes import Node
from moxwell.clock import Clock
from moxwell.controllers.karpenter.claim_metrics import ClaimMetrics
from moxwell.controllers.karpenter.lookup import ClaimLookup
from moxwell.controllers.karpenter.repair.plan import (
    POLICIES,
    ObservedNodeHealth,
    RepairMove,
    RepairNode,
    RepairPolicy,
    RepairReason,
    plan_repair,
)
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.move import Wait
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.scheduling.well_known_labels import NODE_POOL

NAME = "karpenter.repair"


class NodeRepairReconciler(Reconciler[Node, ObservedNodeHealth, RepairMove, None]):
    """One pass per node of a node claim."""

    kind = Node

    def __init__(
        self,
        kube: Kube,
        lookup: ClaimLookup,
        clock: Clock,
        metrics: ClaimMetrics,
        policies: tuple[RepairPolicy, ...] = POLICIES,
    ) -> None:
        self._kube, self._lookup, self._clock = kube, lookup, clock
        self._metrics, self._policies = metrics, policies

    async def see(self, obj: Node, reader: Reader) -> ObservedNodeHealth:
        peers = self._lookup.nodes_in(obj.metadata.labels.get(NODE_POOL, ""))
        return ObservedNodeHealth(self._clock.now(), self._lookup.claim_of(obj), peers)

    def plan(self, obj: Node, seen: ObservedNodeHealth) -> RepairMove:
        return plan_repair(obj, seen, self._policies)

    async def act(self, move: RepairMove) -> None:
        if not isinstance(move, RepairNode):
            return
        await move.writes.perform(self._kube)
        labels, image = move.claim.metadata.labels, move.claim.status.image_id
        self._metrics.claim_disrupted("unhealthy", labels)
        self._metrics.claim_unhealthy(move.condition.type.lower(), labels, image)

    def describe(self, obj: Node, seen: ObservedNodeHealth, move: RepairMove) -> None:
        """The status of a Node is the kubelet's."""

    def events(self, obj: Node, seen: ObservedNodeHealth, move: RepairMove) -> Sequence[Note]:
        if isinstance(move, Wait) and move.reason == RepairReason.NODE_REPAIR_BLOCKED:
            return (Note(move.reason, move.message, "Warning"),)
        if isinstance(move, RepairNode):
            text = f"The condition {move.condition.type} is {move.condition.status}: replacing it"
            return (Note(RepairReason.UNHEALTHY, text, "Warning"),)
        return ()
