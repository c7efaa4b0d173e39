"""
``karpenter.warmpool``: keeps stopped guests of node classes that ask for them.

It writes ProxmoxMachines in the management cluster; ``infra.machine`` makes their guests. It has no
finalizer of its own: ``karpenter.nodeclass`` keeps a class until its warm guests are deleted.
"""

from collections.abc import Callable, Iterable
from typing import Any

from moxwell.api.capi.core import Cluster
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.warm_guests import WARM_GUEST_OF, count_in
from moxwell.api.karpenter.annotations import MOST_PER_HOST, WARM_POOL
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.kinds import owner_reference
from moxwell.controllers.karpenter.proxmox.class_reader import ReadNodeClass
from moxwell.controllers.karpenter.proxmox.provider import ProviderParts
from moxwell.controllers.karpenter.proxmox.warm_guests import references, warm_spec
from moxwell.controllers.karpenter.proxmox.warm_pool.plan import (
    CONDITION,
    ObservedWarmPool,
    describe,
    next_move,
)
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.writes import Writes

NAME = "karpenter.warmpool"
__all__ = ["CONDITION", "NAME", "WarmPoolController"]


class WarmPoolController(
    Reconciler[ProxmoxNodeClass, ObservedWarmPool, Writes | Done, dict[str, Any]]
):
    """Creates and deletes the warm guests of one cluster's node classes."""

    kind = ProxmoxNodeClass

    def __init__(
        self, cluster: Key, parts: ProviderParts, claims: Cache[NodeClaim], *, trusted: bool
    ) -> None:
        self._cluster, self._parts, self._claims = cluster, parts, claims
        self._trusted = trusted

    async def see(self, obj: ProxmoxNodeClass, reader: Reader) -> ObservedWarmPool:
        management, asked = self._parts.sources.management, WARM_POOL in obj.metadata.annotations
        read = await self._parts.reader.read(obj) if asked and not obj.deleting else None
        cluster = management.clusters.find(self._cluster)
        machines = management.machines.list(self._cluster.namespace)
        every = management.proxmox_machines.list(self._cluster.namespace)
        taken = references(machines)
        return ObservedWarmPool(
            self._cluster,
            owner_reference(cluster) if cluster and not cluster.deleting else None,
            self._specs(obj, read),
            self._parts.warm.of(obj.name),
            {m.name for m in every} | set(taken),
            {c.uid for c in self._claims.list()},
            taken,
            self._most(cluster),
            _problem(read, unreadable=bool(management.proxmox_machines.unreadable)),
        )

    def _specs(
        self, obj: ProxmoxNodeClass, read: ReadNodeClass | None
    ) -> dict[Any, dict[str, Any]]:
        defaults = self._parts.sources.defaults()
        zones = read.checked.zones if read else ()
        return {zone.key: warm_spec(obj, zone, defaults) for zone in zones}

    def _most(self, cluster: Cluster | None) -> int:
        """The guests per host that the operator allows: all of its own clusters, else its say."""
        if self._trusted:
            return MOST_PER_HOST
        ref = cluster.spec.infrastructure_ref if cluster else None
        key = Key(self._cluster.namespace, ref.name) if ref else self._cluster
        found: ProxmoxCluster | None = self._parts.sources.management.proxmox_clusters.find(key)
        return (count_in(found.metadata.annotations) if found else None) or 0

    def plan(self, obj: ProxmoxNodeClass, seen: ObservedWarmPool) -> Writes | Done:
        return next_move(obj, seen)

    async def act(self, move: Writes | Done) -> Any:
        if isinstance(move, Writes):
            await move.perform(self._parts.management)
        return None

    def describe(
        self, obj: ProxmoxNodeClass, seen: ObservedWarmPool, move: Writes | Done
    ) -> dict[str, Any]:
        return describe(obj, seen)

    def listen(self, wake: Callable[[Key], None]) -> None:
        """Enqueue the node class of a warm guest that is created, ready, taken or deleted."""

        def on_change(old: Any, new: Any, listed: bool) -> None:
            for key in {*_class_keys(old), *_class_keys(new)}:
                wake(key)

        self._parts.sources.management.proxmox_machines.subscribe(on_change)


def _class_keys(machine: ProxmoxMachine | None) -> Iterable[Key]:
    name = machine.metadata.annotations.get(WARM_GUEST_OF) if machine else None
    return [Key("", name)] if name else []


def _problem(read: ReadNodeClass | None, *, unreadable: bool) -> str:
    if unreadable:
        return "a ProxmoxMachine in the management cluster cannot be read; correct or delete it"
    problems = read.checked.problems if read else ()
    return "; ".join(p.message for p in problems)
