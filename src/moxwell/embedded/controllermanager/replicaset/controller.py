"""The ReplicaSet controller: keeps the number of pods of one template."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.replicaset.plan import describe, next_move
from moxwell.embedded.controllermanager.resources import PODS, REPLICA_SETS
from moxwell.embedded.controllermanager.workloads import owned_by, owner_key
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.reader import Reader
from moxwell.runtime.watches import Watch

Json = dict[str, Any]
Pods = tuple[Json, ...]


class ReplicaSetController(WritingReconciler[Json, Pods, Json]):
    """Reconciles ReplicaSets; sees their pods."""

    kind = REPLICA_SETS
    watches: Sequence[Watch] = (Watch(PODS, owner_key("ReplicaSet")),)

    async def see(self, owner: Json, reader: Reader) -> Pods:
        return await owned_by(owner, PODS, reader)

    def plan(self, owner: Json, seen: Pods) -> WriteMove:
        return next_move(owner, seen)

    def describe(self, owner: Json, seen: Pods, move: WriteMove) -> Json:
        return describe(owner, seen)
