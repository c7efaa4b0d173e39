"""``karpenter.termination``: drains nodes that are being deleted and terminates their machines."""

from collections.abc import Sequence

from moxwell.api.core.nodes import Node
from moxwell.api.core.pods import Pod
from moxwell.api.core.storage import VolumeAttachment
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.claim_metrics import ClaimMetrics
from moxwell.controllers.karpenter.lookup import (
    node_key_of_attachment,
    node_key_of_claim,
    node_key_of_pod,
)
from moxwell.controllers.karpenter.names import FINALIZER
from moxwell.controllers.karpenter.node_termination import NodeTermination, TerminationObserver
from moxwell.controllers.karpenter.provider import InstanceWriter
from moxwell.controllers.karpenter.termination.evictions import PodEvictions
from moxwell.controllers.karpenter.termination.plan import (
    EvictPods,
    ReleaseNode,
    TerminateInstance,
    TerminationMove,
    TerminationReason,
    plan_termination,
)
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime import finalizer
from moxwell.runtime.events import Recorder
from moxwell.runtime.move import Wait
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Writes

NAME = "karpenter.termination"


def is_ending(node: Node) -> bool:
    """Whether the node is being deleted and has the finalizer."""
    return node.metadata.deletion_timestamp is not None and FINALIZER in node.metadata.finalizers


class TerminationReconciler(Reconciler[Node, NodeTermination, TerminationMove, None]):
    """One pass per node that is being deleted."""

    kind = Node
    watches = (
        Watch(Pod, node_key_of_pod, delay=0.5),
        Watch(NodeClaim, node_key_of_claim),
        Watch(VolumeAttachment, node_key_of_attachment),
    )

    def __init__(
        self,
        kube: Kube,
        provider: InstanceWriter,
        observer: TerminationObserver,
        recorder: Recorder,
        metrics: ClaimMetrics,
    ) -> None:
        self._kube, self._provider, self._observer = kube, provider, observer
        self._metrics = metrics
        self._evictions = PodEvictions(kube, recorder, metrics, NAME)

    async def see(self, obj: Node, reader: Reader) -> NodeTermination:
        return await self._observer.observe(obj)

    def plan(self, obj: Node, seen: NodeTermination) -> TerminationMove:
        return plan_termination(obj, seen)

    async def act(self, move: TerminationMove) -> None:
        match move:
            case EvictPods():
                await self._evictions.perform(move)
            case TerminateInstance():
                meta = move.claim.metadata
                await self._provider.terminate(meta.name, meta.uid)
            case ReleaseNode():
                await self._release(move)
            case Writes():
                await move.perform(self._kube)

    async def _release(self, move: ReleaseNode) -> None:
        node, now = move.seen.node, move.seen.now
        meta = node.metadata
        await finalizer.remove(self._kube, Node, node, FINALIZER)
        if move.drained:
            self._metrics.node_drained(meta.labels)
        deleted, created = meta.deletion_timestamp or now, meta.creation_timestamp or now
        seconds = (now - deleted).total_seconds()
        self._metrics.node_terminated(meta.labels, seconds, (now - created).total_seconds())

    def describe(self, obj: Node, seen: NodeTermination, move: TerminationMove) -> None:
        """The status of a Node is the kubelet's; the node claim describes the termination."""

    def events(self, obj: Node, seen: NodeTermination, move: TerminationMove) -> Sequence[Note]:
        notes = []
        if seen.deadline is not None and isinstance(move, Writes):
            text = f"All pods will be deleted by {seen.deadline.isoformat()}"
            reason = TerminationReason.TERMINATION_GRACE_PERIOD_EXPIRING
            notes.append(Note(reason, text, "Warning"))
        if isinstance(move, EvictPods) or (isinstance(move, Wait) and seen.drain.waiting):
            text = f"Failed to drain node, {seen.drain.waiting} pods are waiting to be evicted"
            notes.append(Note(TerminationReason.FAILED_DRAINING, text, "Warning"))
        elif isinstance(move, Wait) and seen.attachments:
            notes.append(Note(move.reason, move.message))
        return notes
