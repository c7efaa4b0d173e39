"""
The scheduler: binds pods to nodes, one at a time (``per_shard=1``).

Nodes and pods come from caches. A pod that was bound but is not yet shown so by the cache is
assumed to be on its node, so that the next pod sees the resources it takes.
"""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.resources import (
    CSI_STORAGE_CAPACITIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
)
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.scheduler.plan import (
    BindPod,
    ObservedScheduling,
    SchedulerMove,
    SchedulerReason,
    describe,
    is_unbound,
    next_move,
)
from moxwell.embedded.scheduler.volumes import see_volumes
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.runtime.move import Wait
from moxwell.runtime.objects import key_of
from moxwell.runtime.reconciler import Controller, Note, Reconciler
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Writes

Json = dict[str, Any]


class BoundPods:
    """The pods on nodes: those of the cache, and those that were bound a moment ago."""

    def __init__(self, pods: Cache[Any]) -> None:
        self._pods = pods
        self._assumed: dict[Key, str] = {}

    def assume(self, pod: Key, node: str) -> None:
        """Count a pod as bound until the cache shows it."""
        self._assumed[pod] = node

    def list(self) -> list[Json]:
        """Every bound pod that is not finished."""
        bound, assumed = [], {}
        for pod in self._pods.list():
            key = key_of(pod)
            if not pod["spec"].get("nodeName") and key in self._assumed:
                assumed[key] = self._assumed[key]
                pod = {**pod, "spec": {**pod["spec"], "nodeName": assumed[key]}}
            if pod["spec"].get("nodeName") and not labels.is_finished(pod):
                bound.append(pod)
        self._assumed = assumed
        return bound


class Scheduler(Reconciler[Json, ObservedScheduling, SchedulerMove, Json]):
    """Reconciles unbound pods."""

    kind = PODS

    def __init__(self, kube: Kube, caches: Caches) -> None:
        self._kube, self._pods, self._nodes = kube, caches.of(PODS), caches.of(NODES)
        self._bound = BoundPods(self._pods)
        self.watches: Sequence[Watch] = (
            Watch(NODES, lambda _: [key_of(p) for p in self._unbound()]),
            Watch(PERSISTENT_VOLUME_CLAIMS, self._using_claim),
            Watch(CSI_STORAGE_CAPACITIES, self._with_claims),
        )

    def _using_claim(self, claim: Json) -> list[Key]:
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        pods = [p for p in self._unbound() if p["metadata"]["namespace"] == namespace]
        return [key_of(p) for p in pods if name in labels.claims_of(p)]

    def _with_claims(self, _: Json) -> list[Key]:
        return [key_of(p) for p in self._unbound() if labels.claims_of(p)]

    def _unbound(self) -> list[Json]:
        return [p for p in self._pods.list() if is_unbound(p)]

    async def see(self, pod: Json, reader: Reader) -> ObservedScheduling:
        if not is_unbound(pod):
            return ObservedScheduling()
        bound = self._bound.list()
        volumes = await see_volumes(reader, pod, bound)
        return ObservedScheduling(tuple(self._nodes.list()), tuple(bound), volumes)

    def plan(self, pod: Json, seen: ObservedScheduling) -> SchedulerMove:
        return next_move(pod, seen)

    async def act(self, move: SchedulerMove) -> Any:
        if isinstance(move, Writes):
            await move.perform(self._kube)
        elif isinstance(move, BindPod):
            await self._kube.bind(move.name, move.namespace, move.node)
            self._bound.assume(Key(move.namespace, move.name), move.node)

    def describe(self, pod: Json, seen: ObservedScheduling, move: SchedulerMove) -> Json | None:
        return describe(move)

    def events(self, pod: Json, seen: ObservedScheduling, move: SchedulerMove) -> Sequence[Note]:
        if isinstance(move, BindPod):
            text = f"Successfully assigned {move.namespace}/{move.name} to {move.node}"
            return (Note(SchedulerReason.SCHEDULED, text),)
        if isinstance(move, Wait) and move.reason == SchedulerReason.UNSCHEDULABLE:
            return (Note(SchedulerReason.FAILED, move.message, "Warning"),)
        return ()


def scheduler(kube: Kube, caches: Caches) -> Controller:
    """The controller to add to a manager."""
    return Controller(name="embedded.scheduler", reconciler=Scheduler(kube, caches), per_shard=1)
