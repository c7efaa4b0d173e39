"""The Job controller: runs pods until enough of them have succeeded."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.job.plan import describe, next_move
from moxwell.embedded.controllermanager.resources import JOBS, PODS
from moxwell.embedded.controllermanager.workloads import owned_by, owner_key
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.reader import Reader
from moxwell.runtime.watches import Watch

Json = dict[str, Any]
Pods = tuple[Json, ...]


class JobController(WritingReconciler[Json, Pods, Json]):
    """Reconciles Jobs; sees their pods."""

    kind = JOBS
    watches: Sequence[Watch] = (Watch(PODS, owner_key("Job")),)

    async def see(self, owner: Json, reader: Reader) -> Pods:
        return await owned_by(owner, PODS, reader)

    def plan(self, owner: Json, seen: Pods) -> WriteMove:
        return next_move(owner, seen)

    def describe(self, owner: Json, seen: Pods, move: WriteMove) -> Json:
        return describe(owner, seen)
