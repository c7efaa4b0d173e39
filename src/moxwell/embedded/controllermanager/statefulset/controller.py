"""The StatefulSet controller: numbered pods with claims of their own, created in order."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.resources import PODS, STATEFUL_SETS
from moxwell.embedded.controllermanager.statefulset.plan import describe, next_move
from moxwell.embedded.controllermanager.workloads import owned_by, owner_key
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.reader import Reader
from moxwell.runtime.watches import Watch

Json = dict[str, Any]
Pods = tuple[Json, ...]


class StatefulSetController(WritingReconciler[Json, Pods, Json]):
    """Reconciles StatefulSets; sees their pods."""

    kind = STATEFUL_SETS
    watches: Sequence[Watch] = (Watch(PODS, owner_key("StatefulSet")),)

    async def see(self, owner: Json, reader: Reader) -> Pods:
        return await owned_by(owner, PODS, reader)

    def plan(self, owner: Json, seen: Pods) -> WriteMove:
        return next_move(owner, seen)

    def describe(self, owner: Json, seen: Pods, move: WriteMove) -> Json:
        return describe(owner, seen)
