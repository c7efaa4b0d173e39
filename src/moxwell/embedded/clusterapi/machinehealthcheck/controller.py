"""The loop over MachineHealthChecks."""

from collections.abc import Sequence
from typing import Any

from moxwell.api import selectors
from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineHealthCheck, MachineHealthCheckStatus
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.machinehealthcheck import plan
from moxwell.embedded.clusterapi.tenant_clients import Tenants
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

LOOK_SECONDS = 30.0


class HealthChecks:
    """Gives up machines that are broken for good; their sets make others."""

    kind = MachineHealthCheck
    finalizer = ""

    def __init__(self, kube: Kube, tenants: Tenants, clock: Clock, checks: Any) -> None:
        self._kube, self._tenants, self._clock = kube, tenants, clock
        self._checks = checks  # their cache
        self.watches: Sequence[Watch] = (Watch(Machine, self._of_machine),)

    def _of_machine(self, machine: Machine) -> list[Key]:
        return [
            Key(c.namespace, c.name)
            for c in self._checks.list(machine.namespace)
            if c.spec.cluster_name == machine.spec.cluster_name
        ]

    async def reconcile(self, check: MachineHealthCheck) -> Outcome[MachineHealthCheckStatus]:
        machines = await self._selected(check)
        targets = [await self._judge(check, m) for m in machines]
        broken = [t for t in targets if t.why]
        allowed = plan.is_allowed(check, len(broken), len(targets))
        notes: tuple[Note, ...] = ()
        if allowed:
            notes = await self._give_up(machines, broken)
        again = min((t.again for t in targets if t.again), default=LOOK_SECONDS)
        return Outcome(
            plan.describe(check, targets, allowed), again=min(again, LOOK_SECONDS), notes=notes
        )

    async def _selected(self, check: MachineHealthCheck) -> list[Machine]:
        chosen = selectors.from_object(check.spec.selector)
        page = await self._kube.list(Machine, check.namespace)
        return [
            m
            for m in page.items
            if m.spec.cluster_name == check.spec.cluster_name and chosen.matches(m.metadata.labels)
        ]

    async def _judge(self, check: MachineHealthCheck, machine: Machine) -> plan.Target:
        return plan.judge(check, machine, await self._node(machine), self._clock.now())

    async def _node(self, machine: Machine) -> dict[str, Any] | None:
        """The node, or None where it or its API cannot be asked: silence is not sickness."""
        if machine.status.node_ref is None:
            return None
        try:
            tenant = await self._tenants.find(Key(machine.namespace, machine.spec.cluster_name))
            return await tenant.find(NODES, machine.status.node_ref.name) if tenant else None
        except MoxwellError:
            return None

    async def _give_up(
        self, machines: Sequence[Machine], broken: Sequence[plan.Target]
    ) -> tuple[Note, ...]:
        by_name = {m.name: m for m in machines}
        notes = []
        for target in broken:
            machine = by_name[target.name]
            owner = machine.metadata.controller
            if owner is None or owner.kind != "MachineSet":
                continue  # nobody would make another
            await self._kube.delete(Machine, machine.name, machine.namespace, uid=machine.uid)
            notes.append(Note("MachineMarkedUnhealthy", f"{target.name} {target.why}", "Warning"))
        return tuple(notes)
