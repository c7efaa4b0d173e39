"""The loop over MachineDeployments."""

from collections.abc import Sequence
from contextlib import suppress

from moxwell.api.capi.machinesets import FleetStatus, MachineDeployment, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME, DEPLOYMENT_NAME, NO_NEW_MACHINES
from moxwell.embedded.clusterapi.machinedeployment import plan
from moxwell.errors import Conflict
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch
from moxwell.scheduling import rollout

POLL_SECONDS = 5.0


def group_key(fleet: MachineSet) -> list[Key]:
    """The deployment a set belongs to."""
    owner = fleet.metadata.controller
    mine = owner is not None and owner.kind == "MachineDeployment"
    return [Key(fleet.namespace, owner.name)] if owner and mine else []


class MachineDeployments:
    """Rolls from set to set."""

    kind = MachineDeployment
    finalizer = "cluster.x-k8s.io/machinedeployment"
    watches: Sequence[Watch] = (Watch(MachineSet, group_key),)

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def reconcile(self, group: MachineDeployment) -> Outcome[FleetStatus]:
        sets = await self._sets(group)
        if group.deleting:
            return await self._unmake(group, sets)
        await self._label(group)
        known = plan.parts(group, sets)
        notes: tuple[Note, ...] = ()
        if not group.spec.paused:
            await self._rein(group, sets)
            notes = await self._roll(group, known)
        return Outcome(plan.describe(group, known), notes=notes)

    async def _sets(self, group: MachineDeployment) -> list[MachineSet]:
        labels = {DEPLOYMENT_NAME: group.name}
        page = await self._kube.list(MachineSet, group.namespace, labels=labels)
        return [s for s in page.items if group_key(s) == [Key(group.namespace, group.name)]]

    async def _label(self, group: MachineDeployment) -> None:
        if group.metadata.labels.get(CLUSTER_NAME) != group.spec.cluster_name:
            change = {"metadata": {"labels": {CLUSTER_NAME: group.spec.cluster_name}}}
            await self._kube.merge(MachineDeployment, group.name, change, group.namespace)

    async def _rein(self, group: MachineDeployment, sets: list[MachineSet]) -> None:
        for name, note in plan.reins(group, sets).items():
            change = {"metadata": {"annotations": {NO_NEW_MACHINES: note}}}
            await self._kube.merge(MachineSet, name, change, group.namespace)

    async def _roll(self, group: MachineDeployment, known: list[rollout.Part]) -> tuple[Note, ...]:
        """One kind of write a pass: a new set, or new sizes, or old sets away."""
        if not any(p.current for p in known):
            fresh = plan.new_set(group, len(known) + 1)
            with suppress(Conflict):
                await self._kube.create(fresh)
            return (Note("SuccessfulCreate", f"Created MachineSet {fresh.name}"),)
        sizes = rollout.resize(plan.policy(group), known)
        for size in sizes:
            change = {"spec": {"replicas": size.replicas}}
            await self._kube.merge(MachineSet, size.name, change, group.namespace)
        if not sizes:
            for name in rollout.surplus(known, plan.HISTORY):
                await self._kube.delete(MachineSet, name, group.namespace)
        return tuple(Note("SuccessfulScale", f"{s.name} to {s.replicas}") for s in sizes)

    async def _unmake(
        self, group: MachineDeployment, sets: list[MachineSet]
    ) -> Outcome[FleetStatus]:
        for fleet in sets:
            if not fleet.deleting:
                await self._kube.delete(MachineSet, fleet.name, fleet.namespace, uid=fleet.uid)
        status = plan.describe(group, plan.parts(group, sets))
        return Outcome(status, again=POLL_SECONDS, settled=not sets)
