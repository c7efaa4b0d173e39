"""The taint eviction controller: deletes pods that do not tolerate the taints of their node."""

from collections.abc import Collection, Sequence
from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.pods_by_node import pods_on
from moxwell.embedded.controllermanager.resources import NODES, PODS
from moxwell.embedded.controllermanager.tainteviction.plan import (
    ObservedTaints,
    TaintEvictionReason,
    next_move,
    no_execute_taints,
)
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Writes

Json = dict[str, Any]


class TaintTimes:
    """For how long each taint of each node has been observed; in memory, by the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: dict[tuple[str, str], float] = {}

    def seconds(self, node: str, taints: Collection[str]) -> dict[str, float]:
        """The seconds of each present taint; those that are gone are forgotten."""
        for known in [k for k in self._first if k[0] == node and k[1] not in taints]:
            del self._first[known]
        now = self._clock.monotonic()
        return {key: now - self._first.setdefault((node, key), now) for key in taints}


class TaintEvictionController(WritingReconciler[Json, ObservedTaints, Json]):
    """Reconciles pods; reads nodes and pods from their caches."""

    kind = PODS

    def __init__(self, kube: Kube, clock: Clock, nodes: Cache[Any], pods: Cache[Any]) -> None:
        super().__init__(kube)
        self._nodes, self._times = nodes, TaintTimes(clock)
        self.watches: Sequence[Watch] = (
            Watch(
                NODES,
                pods_on(pods),
                lambda old, new: no_execute_taints(old) != no_execute_taints(new),
            ),
        )

    async def see(self, pod: Json, reader: Reader) -> ObservedTaints:
        name = pod["spec"].get("nodeName") or ""
        taints = no_execute_taints(self._nodes.find(Key("", name)) if name else None)
        seconds = self._times.seconds(name, [t["key"] for t in taints])
        return ObservedTaints(tuple(taints), seconds)

    def plan(self, pod: Json, seen: ObservedTaints) -> WriteMove:
        return next_move(pod, seen)

    def describe(self, pod: Json, seen: ObservedTaints, move: WriteMove) -> None:
        return None

    def events(self, pod: Json, seen: ObservedTaints, move: WriteMove) -> Sequence[Note]:
        if not isinstance(move, Writes):
            return ()
        meta = pod["metadata"]
        text = f"Marking for deletion Pod {meta['namespace']}/{meta['name']}"
        return (Note(TaintEvictionReason.EVICTED, text),)
