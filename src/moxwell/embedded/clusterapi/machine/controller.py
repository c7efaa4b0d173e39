"""The loop over Machines."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.capi.core import Cluster, Machine, MachineStatus
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.machine import plan
from moxwell.embedded.clusterapi.machine.see import see
from moxwell.embedded.clusterapi.references import References
from moxwell.embedded.clusterapi.tenant_clients import Tenants
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.errors import Busy, Missing
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch

WAIT_SECONDS = 5.0
LOOK_SECONDS = 20.0  # a settled machine's node is looked at this often


def owner_machine(obj: Any) -> list[Key]:
    """The Machine that owns a provider's object."""
    meta = obj["metadata"] if isinstance(obj, dict) else None
    if meta is None:
        owner = obj.metadata.controller
        named = owner is not None and owner.kind == "Machine"
        return [Key(obj.namespace, owner.name)] if named else []
    owners = meta.get("ownerReferences") or ()
    return [Key(meta["namespace"], o["name"]) for o in owners if o["kind"] == "Machine"]


class Machines:
    """Joins a Machine's parts."""

    kind = Machine
    finalizer = "machine.cluster.x-k8s.io"

    def __init__(
        self, kube: Kube, refs: References, tenants: Tenants, clock: Clock, parts: Sequence[Any]
    ) -> None:
        self._kube, self._refs, self._tenants, self._clock = kube, refs, tenants, clock
        self.watches: Sequence[Watch] = tuple(Watch(part, owner_machine) for part in parts)

    async def reconcile(self, machine: Machine) -> Outcome[MachineStatus]:
        seen = await see(self._kube, self._refs, self._tenants, machine)
        now = self._clock.now()
        move = plan.next_move(machine, seen, now)
        await self._take(machine, move)
        status = plan.describe(machine, seen, move, now)
        settled = isinstance(move, Done)
        return Outcome(status, again=LOOK_SECONDS if settled else WAIT_SECONDS, settled=settled)

    async def _take(self, machine: Machine, move: plan.Move) -> None:
        space = machine.namespace
        match move:
            case plan.Link(changes):
                await self._kube.merge(Machine, machine.name, {"spec": changes}, space)
            case plan.DeleteInfrastructure():
                await self._refs.delete(machine.spec.infrastructure_ref, space)
            case plan.DeleteBootstrap():
                await self._refs.delete(machine.spec.bootstrap.config_ref, space)
            case plan.Greet(node, change):
                await (await self._tenant(machine)).merge(NODES, node, change)
            case plan.DeleteNode(node):
                await (await self._tenant(machine)).delete(NODES, node)
            case plan.Drain(node, pods):
                await self._drain(await self._tenant(machine), node, pods)

    async def _tenant(self, machine: Machine) -> Kube:
        found = await self._tenants.find(Key(machine.namespace, machine.spec.cluster_name))
        if found is None:
            raise Missing(f"there is no kubeconfig of cluster {machine.spec.cluster_name}")
        return found

    async def _drain(self, tenant: Kube, node: str, pods: Sequence[tuple[str, str]]) -> None:
        await tenant.merge(NODES, node, {"spec": {"unschedulable": True}})
        for space, name in pods:
            try:
                await tenant.evict(name, space)
            except (Busy, Missing):
                continue  # a disruption budget holds it, or it has gone


def of_cluster(machines: Any) -> Watch:
    """Wake every Machine of a Cluster that changes; ``machines`` is their cache."""

    def keys(cluster: Cluster) -> list[Key]:
        return [
            Key(m.namespace, m.name)
            for m in machines.list(cluster.namespace)
            if m.spec.cluster_name == cluster.name
        ]

    return Watch(Cluster, keys)
