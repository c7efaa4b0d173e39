"""The MachineSet controller of Cluster API: keeps the number of Machines of one template."""

from collections.abc import Sequence

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineReplicaStatus, MachineSet
from moxwell.api.capi.shared import SET_NAME, ContractRef
from moxwell.embedded.clusterapi.machineset.plan import (
    MachineSetReason,
    MissingPart,
    ObservedMachineSet,
    describe,
    next_move,
)
from moxwell.embedded.clusterapi.references import ReferenceResolver
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note
from moxwell.runtime.watches import COALESCE_SECONDS, Watch
from moxwell.runtime.writes import Create, Writes


def owner_set(machine: Machine) -> list[Key]:
    """The key of the MachineSet that controls a Machine."""
    owner = machine.metadata.controller
    return [Key(machine.namespace, owner.name)] if owner and owner.kind == "MachineSet" else []


class MachineSetController(WritingReconciler[MachineSet, ObservedMachineSet, MachineReplicaStatus]):
    """Reconciles MachineSets; also creates the objects that their Machines reference."""

    kind = MachineSet
    finalizer = "cluster.x-k8s.io/machineset"
    watches: Sequence[Watch] = (Watch(Machine, owner_set, delay=COALESCE_SECONDS),)

    def __init__(self, kube: Kube, resolver: ReferenceResolver) -> None:
        super().__init__(kube)
        self._resolver = resolver

    async def see(self, owner: MachineSet, reader: Reader) -> ObservedMachineSet:
        page = await reader.list(Machine, owner.namespace, labels={SET_NAME: owner.name})
        machines = [m for m in page.items if owner_set(m) == [Key(owner.namespace, owner.name)]]
        active = () if owner.deleting else [m for m in machines if not m.deleting]
        missing = [part for m in active for part in await self._missing(owner, m, reader)]
        return ObservedMachineSet(tuple(machines), tuple(missing))

    async def _missing(
        self, owner: MachineSet, machine: Machine, reader: Reader
    ) -> list[MissingPart]:
        template, spec, missing = owner.spec.template.spec, machine.spec, []
        done = machine.status.initialization  # a part that has done its work is not read again
        pairs: tuple[tuple[ContractRef | None, ContractRef | None, bool | None], ...] = (
            (
                template.bootstrap.config_ref,
                spec.bootstrap.config_ref,
                done.bootstrap_data_secret_created,
            ),
            (
                template.infrastructure_ref,
                spec.infrastructure_ref,
                done.infrastructure_provisioned,
            ),
        )
        for source, ref, finished in pairs:
            if source is None or ref is None or finished:
                continue
            if not await self._resolver.exists(reader, ref, machine.namespace):
                found = await reader.get(
                    self._resolver.resource(source), source.name, machine.namespace
                )
                resource = self._resolver.resource(ref)
                missing.append(MissingPart(machine, ref.name, resource, source, found))
        return missing

    def plan(self, owner: MachineSet, seen: ObservedMachineSet) -> WriteMove:
        return next_move(owner, seen)

    def describe(
        self, owner: MachineSet, seen: ObservedMachineSet, move: WriteMove
    ) -> MachineReplicaStatus:
        return describe(owner, seen.machines)

    def events(
        self, owner: MachineSet, seen: ObservedMachineSet, move: WriteMove
    ) -> Sequence[Note]:
        created = move.writes if isinstance(move, Writes) else ()
        return [
            Note(MachineSetReason.CREATED, f"Created Machine {write.obj.name}")
            for write in created
            if isinstance(write, Create) and isinstance(write.obj, Machine)
        ]
