"""The CronJob controller: creates Jobs on a schedule."""

from collections.abc import Sequence
from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.cronjob.plan import ObservedCronJob, describe, next_move
from moxwell.embedded.controllermanager.resources import CRON_JOBS, JOBS
from moxwell.embedded.controllermanager.workloads import owned_by, owner_key
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.watches import Watch

Json = dict[str, Any]


class CronJobController(WritingReconciler[Json, ObservedCronJob, Json]):
    """Reconciles CronJobs; sees their Jobs."""

    kind = CRON_JOBS
    watches: Sequence[Watch] = (Watch(JOBS, owner_key("CronJob")),)

    def __init__(self, kube: Kube, clock: Clock) -> None:
        super().__init__(kube)
        self._clock = clock

    async def see(self, owner: Json, reader: Reader) -> ObservedCronJob:
        return ObservedCronJob(await owned_by(owner, JOBS, reader), self._clock.now())

    def plan(self, owner: Json, seen: ObservedCronJob) -> WriteMove:
        return next_move(owner, seen)

    def describe(self, owner: Json, seen: ObservedCronJob, move: WriteMove) -> Json:
        return describe(owner, seen)
