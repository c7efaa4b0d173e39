"""The MachineHealthCheck controller of Cluster API: deletes unhealthy Machines of MachineSets."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineHealthCheck, MachineHealthCheckStatus
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.machinehealthcheck.plan import (
    HealthCheckMove,
    MachineHealthCheckReason,
    ObservedHealth,
    Remediate,
    describe,
    machine_conditions,
    next_move,
)
from moxwell.embedded.clusterapi.machinehealthcheck.see import HealthObserver
from moxwell.embedded.token_buckets import TokenBuckets
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.runtime.watches import COALESCE_SECONDS, Watch


class MachineHealthCheckController(
    Reconciler[MachineHealthCheck, ObservedHealth, HealthCheckMove, MachineHealthCheckStatus]
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
        self._kube, self._checks, self._buckets = kube, checks, TokenBuckets(clock)
        self._observer = HealthObserver(tenants, clock, machines, self._buckets)
        self.watches: Sequence[Watch] = (
            Watch(
                Machine,
                self._of_machine,
                lambda old, new: _health(old) != _health(new),
                COALESCE_SECONDS,
            ),
        )

    def _of_machine(self, machine: Machine) -> list[Key]:
        return [
            Key(c.namespace, c.name)
            for c in self._checks.list(machine.namespace)
            if c.spec.cluster_name == machine.spec.cluster_name
        ]

    async def see(self, check: MachineHealthCheck, reader: Reader) -> ObservedHealth:
        return await self._observer.observe(check)

    def plan(self, check: MachineHealthCheck, seen: ObservedHealth) -> HealthCheckMove:
        return next_move(check, seen)

    async def act(self, move: HealthCheckMove) -> None:
        if not isinstance(move, Remediate):
            return
        for each in move.remediations:
            if self._buckets.take((move.cluster, each.zone), each.rate):
                self._observer.requested(each.uid, Key(each.delete.namespace, each.delete.name))
                await each.delete.perform(self._kube)

    def describe(
        self, check: MachineHealthCheck, seen: ObservedHealth, move: HealthCheckMove
    ) -> MachineHealthCheckStatus:
        return describe(check, seen)

    def events(
        self, check: MachineHealthCheck, seen: ObservedHealth, move: HealthCheckMove
    ) -> Sequence[Note]:
        chosen = move.remediations if isinstance(move, Remediate) else ()
        reason = MachineHealthCheckReason.UNHEALTHY
        return [Note(reason, f"{each.delete.name} {each.unhealthy}", "Warning") for each in chosen]


def _health(machine: Machine | None) -> object:
    """What a check reads of a Machine; other changes cause no pass."""
    if machine is None:
        return None
    meta, status = machine.metadata, machine.status
    conditions = machine_conditions(machine)
    return machine.deleting, status.node_ref, meta.labels, meta.annotations, conditions
