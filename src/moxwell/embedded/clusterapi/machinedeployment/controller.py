"""The MachineDeployment controller of Cluster API: rolls from one MachineSet to the next."""

from collections.abc import Sequence

from moxwell.api.capi.machinesets import MachineDeployment, MachineReplicaStatus, MachineSet
from moxwell.api.capi.shared import DEPLOYMENT_NAME
from moxwell.embedded.clusterapi.machinedeployment.plan import (
    MachineDeploymentReason,
    ObservedMachineDeployment,
    describe,
    next_move,
)
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Create, Merge, Writes


def owner_deployment(machine_set: MachineSet) -> list[Key]:
    """The key of the MachineDeployment that controls a MachineSet."""
    owner = machine_set.metadata.controller
    owned = owner is not None and owner.kind == "MachineDeployment"
    return [Key(machine_set.namespace, owner.name)] if owner and owned else []


class MachineDeploymentController(
    WritingReconciler[MachineDeployment, ObservedMachineDeployment, MachineReplicaStatus]
):
    """Reconciles MachineDeployments."""

    kind = MachineDeployment
    finalizer = "cluster.x-k8s.io/machinedeployment"
    watches: Sequence[Watch] = (Watch(MachineSet, owner_deployment),)

    async def see(self, deployment: MachineDeployment, reader: Reader) -> ObservedMachineDeployment:
        labels, key = {DEPLOYMENT_NAME: deployment.name}, Key(deployment.namespace, deployment.name)
        page = await reader.list(MachineSet, deployment.namespace, labels=labels)
        sets = tuple(s for s in page.items if owner_deployment(s) == [key])
        return ObservedMachineDeployment(sets)

    def plan(self, deployment: MachineDeployment, seen: ObservedMachineDeployment) -> WriteMove:
        return next_move(deployment, seen)

    def describe(
        self, deployment: MachineDeployment, seen: ObservedMachineDeployment, move: WriteMove
    ) -> MachineReplicaStatus:
        return describe(deployment, seen.sets)

    def events(
        self, deployment: MachineDeployment, seen: ObservedMachineDeployment, move: WriteMove
    ) -> Sequence[Note]:
        return [n for w in (move.writes if isinstance(move, Writes) else ()) for n in _notes(w)]


def _notes(write: object) -> list[Note]:
    if isinstance(write, Create):
        return [Note(MachineDeploymentReason.CREATED, f"Created MachineSet {write.obj.name}")]
    if isinstance(write, Merge) and "replicas" in (write.change.get("spec") or {}):
        text = f"Scaled {write.name} to {write.change['spec']['replicas']}"
        return [Note(MachineDeploymentReason.SCALED, text)]
    return []
