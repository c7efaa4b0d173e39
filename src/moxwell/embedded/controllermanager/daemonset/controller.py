"""The DaemonSet controller: one pod on every node."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.daemonset.plan import (
    ObservedDaemonSet,
    describe,
    next_move,
)
from moxwell.embedded.controllermanager.resources import DAEMON_SETS, NODES, PODS
from moxwell.embedded.controllermanager.workloads import owned_by, owner_key
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.watches import Watch

Json = dict[str, Any]


class DaemonSetController(WritingReconciler[Json, ObservedDaemonSet, Json]):
    """Reconciles DaemonSets; reads nodes from their cache."""

    kind = DAEMON_SETS

    def __init__(self, kube: Kube, daemon_sets: Cache[Any], nodes: Cache[Any]) -> None:
        super().__init__(kube)
        self._nodes = nodes
        self.watches: Sequence[Watch] = (
            Watch(PODS, owner_key("DaemonSet")),
            Watch(NODES, lambda _: daemon_sets.keys(), lambda old, new: not (old and new)),
        )

    async def see(self, owner: Json, reader: Reader) -> ObservedDaemonSet:
        nodes = frozenset(n["metadata"]["name"] for n in self._nodes.list())
        return ObservedDaemonSet(nodes, await owned_by(owner, PODS, reader))

    def plan(self, owner: Json, seen: ObservedDaemonSet) -> WriteMove:
        return next_move(owner, seen)

    def describe(self, owner: Json, seen: ObservedDaemonSet, move: WriteMove) -> Json:
        return describe(owner, seen)
