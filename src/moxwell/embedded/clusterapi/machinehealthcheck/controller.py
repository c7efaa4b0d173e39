"""The MachineHealthCheck controller of Cluster API: deletes unhealthy Machines of MachineSets."""

from collections.abc import Sequence
from typing import Any

from moxwell.api import selectors
from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineHealthCheck, MachineHealthCheckStatus
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.machinehealthcheck.plan import (
    MachineHealthCheckReason,
    ObservedHealth,
    describe,
    next_move,
    remediations,
    targets,
)
from moxwell.embedded.clusterapi.machines import cached_machines
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.runtime.watches import Watch


class MachineHealthCheckController(
    WritingReconciler[MachineHealthCheck, ObservedHealth, MachineHealthCheckStatus]
):
    """Reconciles MachineHealthChecks; reads Machines from their cache and nodes live."""

    kind = MachineHealthCheck

    def __init__(
        self,
        kube: Kube,
        tenants: TenantClients,
        clock: Clock,
        checks: Cache[Any],
        machines: Cache[Any],
    ) -> None:
        super().__init__(kube)
        self._tenants, self._clock = tenants, clock
        self._checks, self._machines = checks, machines
        self.watches: Sequence[Watch] = (Watch(Machine, self._of_machine),)

    def _of_machine(self, machine: Machine) -> list[Key]:
        return [
            Key(c.namespace, c.name)
            for c in self._checks.list(machine.namespace)
            if c.spec.cluster_name == machine.spec.cluster_name
        ]

    async def see(self, check: MachineHealthCheck, reader: Reader) -> ObservedHealth:
        selector = selectors.from_object(check.spec.selector)
        found = cached_machines(self._machines, check.spec.cluster_name, check.namespace)
        machines = tuple(m for m in found if selector.matches(m.metadata.labels))
        nodes = {m.name: await self._node(m) for m in machines}
        return ObservedHealth(self._clock.now(), machines, nodes)

    async def _node(self, machine: Machine) -> dict[str, Any] | None:
        if machine.status.node_ref is None:
            return None
        try:
            key = Key(machine.namespace, machine.spec.cluster_name)
            tenant: Reader | None = await self._tenants.find(key)
            return await tenant.find(NODES, machine.status.node_ref.name) if tenant else None
        except MoxwellError:
            return None

    def plan(self, check: MachineHealthCheck, seen: ObservedHealth) -> WriteMove:
        return next_move(check, seen)

    def describe(
        self, check: MachineHealthCheck, seen: ObservedHealth, move: WriteMove
    ) -> MachineHealthCheckStatus:
        return describe(check, targets(check, seen))

    def events(
        self, check: MachineHealthCheck, seen: ObservedHealth, move: WriteMove
    ) -> Sequence[Note]:
        reason = MachineHealthCheckReason.UNHEALTHY
        return [
            Note(reason, f"{target.name} {target.unhealthy}", "Warning")
            for _, target in remediations(check, seen)
        ]
