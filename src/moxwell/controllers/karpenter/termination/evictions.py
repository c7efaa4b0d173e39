"""Evicts and deletes the pods of a node."""

from moxwell.api.core.nodes import Node
from moxwell.api.core.pods import Pod
from moxwell.api.kinds import Resource
from moxwell.controllers.karpenter.claim_metrics import ClaimMetrics
from moxwell.controllers.karpenter.drain import ExpiringPod
from moxwell.controllers.karpenter.termination.plan import EvictPods, TerminationReason
from moxwell.kube.client import Kube
from moxwell.kube.errors import (
    ApiServerAnswer,
    EvictionBlocked,
    NotFound,
    TooManyRequests,
    WriteConflict,
)
from moxwell.runtime.events import Recorder
from moxwell.runtime.reconciler import Note
from moxwell.runtime.writes import Delete

PODS = Resource("", "v1", "pods", "Pod")
MANY_BUDGETS = "more than one PodDisruptionBudget"


class PodEvictions:
    """Calls the Eviction API; a refusal becomes an event of the node."""

    def __init__(self, kube: Kube, recorder: Recorder, metrics: ClaimMetrics, name: str) -> None:
        self._kube, self._recorder, self._metrics, self._name = kube, recorder, metrics, name

    async def perform(self, move: EvictPods) -> None:
        """Delete the pods whose time is over and evict the others."""
        for expiring in move.expiring:
            await self._expire(expiring, move.deadline)
        for pod in move.evictable:
            refusal = await self._evict(pod, move.why)
            if refusal:
                text = f"Failed to drain node, {refusal} (Pod={pod.metadata.key})"
                note = Note(TerminationReason.FAILED_DRAINING, text, "Warning")
                self._recorder.note(self._name, Node, move.node, note)

    async def _expire(self, expiring: ExpiringPod, deadline: str) -> None:
        pod, grace = expiring.pod.metadata, expiring.grace_seconds
        write = Delete(Pod, pod.name, pod.namespace, uid=pod.uid, grace_seconds=grace)
        try:
            await write.perform(self._kube)
        except WriteConflict:  # another pod with this name
            return
        text = (
            f"Deleting the pod to accommodate the terminationTime {deadline} of the node. "
            f"The pod was granted {grace} seconds of grace-period. This bypasses the PDB of the "
            "pod and the do-not-disrupt annotation."
        )
        note = Note(TerminationReason.DISRUPTED, text)
        self._recorder.note(self._name, Pod, expiring.pod, note)

    async def _evict(self, pod: Pod, why: str) -> str:
        """Evict a pod; returns why it cannot be evicted now."""
        try:
            await self._kube.create(_eviction(pod), PODS, subresource="eviction")
        except (NotFound, WriteConflict) as error:  # gone, or another pod with this name
            self._metrics.eviction_requested(error.status.code)
            return ""
        except (EvictionBlocked, TooManyRequests) as error:
            self._metrics.eviction_requested(error.status.code)
            return "evicting pod violates a PDB"
        except ApiServerAnswer as error:
            self._metrics.eviction_requested(error.status.code)
            many = MANY_BUDGETS in error.status.message
            return "eviction does not support multiple PDBs" if many else str(error)
        self._metrics.eviction_requested(200)
        self._metrics.pod_evicted(why)
        note = Note(TerminationReason.EVICTED, f"Evicted pod: {why}")
        self._recorder.note(self._name, Pod, pod, note)
        return ""


def _eviction(pod: Pod) -> dict[str, object]:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.metadata.uid}},
    }
