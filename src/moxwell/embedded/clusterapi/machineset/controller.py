"""The loop over MachineSets."""

from collections.abc import Sequence
from contextlib import suppress

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import FleetStatus, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME, SET_NAME, ContractRef
from moxwell.api.kinds import own
from moxwell.embedded.clusterapi.machineset import plan
from moxwell.embedded.clusterapi.references import References
from moxwell.errors import Conflict
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

BATCH = 16
POLL_SECONDS = 5.0


def set_key(machine: Machine) -> list[Key]:
    """The set a Machine belongs to."""
    owner = machine.metadata.controller
    return [Key(machine.namespace, owner.name)] if owner and owner.kind == "MachineSet" else []


class MachineSets:
    """Keeps the number of Machines, and their parts."""

    kind = MachineSet
    finalizer = "cluster.x-k8s.io/machineset"
    watches: Sequence[Watch] = (Watch(Machine, set_key),)

    def __init__(self, kube: Kube, refs: References) -> None:
        self._kube, self._refs = kube, refs

    async def reconcile(self, fleet: MachineSet) -> Outcome[FleetStatus]:
        page = await self._kube.list(Machine, fleet.namespace, labels={SET_NAME: fleet.name})
        machines = [m for m in page.items if set_key(m) == [Key(fleet.namespace, fleet.name)]]
        status = plan.describe(fleet, machines)
        if fleet.deleting:
            await self._let_go(machines, [m.name for m in machines])
            return Outcome(status, again=POLL_SECONDS, settled=not machines)
        await self._let_go(machines, plan.leaving(fleet, machines))
        for machine in machines:
            await self._complete(fleet, machine)
        made = await self._make(fleet, machines)
        notes = tuple(Note("SuccessfulCreate", f"Created Machine {name}") for name in made)
        return Outcome(status, notes=notes)

    async def _let_go(self, machines: Sequence[Machine], names: Sequence[str]) -> None:
        for machine in machines:
            if machine.name in names and not machine.deleting:
                await self._kube.delete(Machine, machine.name, machine.namespace, uid=machine.uid)

    async def _make(self, fleet: MachineSet, machines: Sequence[Machine]) -> list[str]:
        staying = [m for m in machines if not m.deleting]
        names = [m.name for m in machines]
        made: list[str] = []
        if not plan.may_make(fleet):
            return made
        for _ in range(min(BATCH, plan.wanted(fleet) - len(staying))):
            name = plan.new_name(fleet, names)
            names.append(name)
            with suppress(Conflict):
                await self._kube.create(plan.new_machine(fleet, name))
                made.append(name)
        return made

    async def _complete(self, fleet: MachineSet, machine: Machine) -> None:
        """Make the objects a Machine names, from the templates of its set."""
        if machine.deleting:
            return
        template, spec = fleet.spec.template.spec, machine.spec
        await self._part(template.bootstrap.config_ref, spec.bootstrap.config_ref, machine)
        await self._part(template.infrastructure_ref, spec.infrastructure_ref, machine)

    async def _part(
        self, template: ContractRef | None, ref: ContractRef | None, machine: Machine
    ) -> None:
        if template is None or ref is None:
            return
        if await self._refs.find(ref, machine.namespace) is not None:
            return
        meta = {
            "name": ref.name,
            "namespace": machine.namespace,
            "labels": {**machine.metadata.labels, CLUSTER_NAME: machine.spec.cluster_name},
            "ownerReferences": [own(machine)],
        }
        with suppress(Conflict):
            await self._refs.instantiate(template, machine.namespace, meta)
