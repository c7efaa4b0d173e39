"""The Machine controller of Cluster API: connects bootstrap data, infrastructure and node."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from moxwell.api.capi.core import Machine, MachineStatus
from moxwell.api.capi.shared import MACHINE_FINALIZER
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.machine.cluster_answers import ClusterAnswers
from moxwell.embedded.clusterapi.machine.describe import describe
from moxwell.embedded.clusterapi.machine.plan import (
    NODE_NAME,
    DeleteNode,
    Drain,
    InitializeNode,
    MachineMove,
    ObservedMachine,
    next_move,
    tenant_key,
)
from moxwell.embedded.clusterapi.machine.see import see_machine
from moxwell.embedded.clusterapi.machine.tenant_nodes import SharedNodeLists
from moxwell.embedded.clusterapi.machines import owner_machine
from moxwell.embedded.clusterapi.references import ReferenceResolver
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.errors import Busy, Missing
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Delete, Writes

PART_DELAY_SECONDS = 0.5  # several changes of a part cause one pass
URGENT_STATUS = ("initialization", "nodeRef", "phase")
TEXT_DELAY_SECONDS = 3.0  # changes that only the conditions of the Machine show


class MachineController(Reconciler[Machine, ObservedMachine, MachineMove, MachineStatus]):
    """Reconciles Machines; ``parts`` are the provider kinds whose changes cause a pass."""

    kind = Machine
    finalizer = MACHINE_FINALIZER

    def __init__(
        self,
        kube: Kube,
        resolver: ReferenceResolver,
        tenants: TenantClients,
        clock: Clock,
        parts: Sequence[Any],
    ) -> None:
        self._kube, self._resolver, self._tenants, self._clock = kube, resolver, tenants, clock
        self._nodes, self._answers = SharedNodeLists(clock), ClusterAnswers(clock)
        self.watches: Sequence[Watch] = tuple(
            watch
            for part in parts
            for watch in (
                Watch(part, owner_machine, is_progress, PART_DELAY_SECONDS),
                Watch(part, owner_machine, is_text, TEXT_DELAY_SECONDS),
            )
        )

    async def see(self, machine: Machine, reader: Reader) -> ObservedMachine:
        now, find = self._clock.now(), self._tenants.find
        seen = await see_machine(machine, reader, self._resolver, find, self._nodes, now)
        cluster, known = tenant_key(machine), NODE_NAME in machine.metadata.annotations
        if seen.tenant_answers:
            self._answers.answered(cluster)
        elif known and not machine.deleting and self._answers.is_awaited(cluster):
            return replace(seen, answer_awaited=True)
        return seen

    def plan(self, machine: Machine, seen: ObservedMachine) -> MachineMove:
        return next_move(machine, seen)

    async def act(self, move: MachineMove) -> Any:
        match move:
            case Writes():
                return await move.perform(self._kube, Machine)
            case InitializeNode(tenant, node, change, record):
                if change:
                    await (await self._tenants.get(tenant)).merge(NODES, node, change)
                return await record.perform(self._kube) if record else None
            case Drain():
                return await self._drain(move)
            case DeleteNode(tenant, node):
                await Delete(NODES, node).perform(await self._tenants.get(tenant))
        return None

    async def _drain(self, move: Drain) -> Any:
        recorded = await move.record.perform(self._kube) if move.record else None
        tenant = await self._tenants.get(move.tenant)
        await tenant.merge(NODES, move.node, {"spec": {"unschedulable": True}})
        for namespace, name in move.pods:
            try:
                await tenant.evict(name, namespace, grace=move.grace)
            except (Busy, Missing):
                continue  # a PodDisruptionBudget blocks it, or the pod is gone
        return recorded

    def describe(
        self, machine: Machine, seen: ObservedMachine, move: MachineMove
    ) -> MachineStatus | None:
        return describe(machine, seen, move)


def may_wait(machine: Machine) -> bool:
    """Whether the status may be written later; while parts are created it changes every moment."""
    return not machine.deleting


def is_progress(old: Any, new: Any) -> bool:
    """Whether a part of a Machine changed in what the next move depends on."""
    return old is None or new is None or _contract(old) != _contract(new)


def is_text(old: Any, new: Any) -> bool:
    """Whether a part changed in what only the conditions of its Machine show."""
    return not is_progress(old, new)


def _contract(part: Any) -> object:
    """The fields of a provider's object that the contract of Cluster API names."""
    meta, spec, status = part.metadata, part.spec, part.status
    return (
        meta.uid,
        meta.labels,
        meta.owner_references,
        meta.finalizers,
        meta.deletion_timestamp,
        getattr(spec, "provider_id", None),
        status.initialization,
        getattr(status, "addresses", ()),
        getattr(status, "failure_domain", ""),
        getattr(status, "data_secret_name", ""),
    )
