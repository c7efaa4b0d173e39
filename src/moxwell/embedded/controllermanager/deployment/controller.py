"""The Deployment controller: keeps the ReplicaSets of a Deployment."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.deployment.plan import describe, next_move
from moxwell.embedded.controllermanager.resources import DEPLOYMENTS, REPLICA_SETS
from moxwell.embedded.controllermanager.workloads import owned_by, owner_key
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.reader import Reader
from moxwell.runtime.watches import Watch

Json = dict[str, Any]
ReplicaSets = tuple[Json, ...]


class DeploymentController(WritingReconciler[Json, ReplicaSets, Json]):
    """Reconciles Deployments; sees their ReplicaSets."""

    kind = DEPLOYMENTS
    watches: Sequence[Watch] = (Watch(REPLICA_SETS, owner_key("Deployment")),)

    async def see(self, deployment: Json, reader: Reader) -> ReplicaSets:
        return await owned_by(deployment, REPLICA_SETS, reader)

    def plan(self, deployment: Json, seen: ReplicaSets) -> WriteMove:
        return next_move(deployment, seen)

    def describe(self, deployment: Json, seen: ReplicaSets, move: WriteMove) -> Json:
        return describe(deployment, seen)
