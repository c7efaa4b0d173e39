"""``karpenter.nodepool``: readiness, validation, hash, counters and replicas of node pools."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.controllers.karpenter.nodepool.health import RegistrationHealth
from moxwell.controllers.karpenter.nodepool.plan import (
    NodePoolCounters,
    NodePoolMove,
    NodePoolReason,
    ObservedPool,
    describe_pool,
    is_usable,
    plan_pool,
)
from moxwell.controllers.karpenter.provider import InstanceReader
from moxwell.controllers.karpenter.provisioning_metrics import ProvisioningMetrics
from moxwell.controllers.karpenter.state.nodes import JoinedNode, cluster_node, joined_nodes
from moxwell.controllers.karpenter.state.objects import ScaledCluster
from moxwell.controllers.karpenter.state.pods import owner_of
from moxwell.controllers.karpenter.state.pools import label_rules, provisioning_pool
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.watches import COALESCE_SECONDS, Watch
from moxwell.runtime.writes import Writes
from moxwell.scheduling.packing.cluster import ClusterSnapshot
from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.resource_lists import MILLI, offered, total
from moxwell.scheduling.well_known_labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    REGION,
    ZONE,
)

NAME = "karpenter.nodepool"


class NodePoolReconciler(Reconciler[NodePool, ObservedPool, NodePoolMove, NodePoolCounters]):
    """One pass per node pool."""

    kind = NodePool

    def __init__(
        self,
        kube: Kube,
        cluster: ScaledCluster,
        provider: InstanceReader,
        metrics: ProvisioningMetrics,
        classes: Cache[ProxmoxNodeClass] | None = None,
        *,
        static: bool = True,
    ) -> None:
        """``static``: pools with ``replicas`` are scaled."""
        self._kube, self._cluster, self._provider = kube, cluster, provider
        self._classes, self._static = classes, static
        self._metrics, self._health = metrics, RegistrationHealth()
        cluster.claims.subscribe(self._health.claim_changed)
        cluster.pools.subscribe(self._pool_changed)
        self.watches = (
            Watch(NodeClaim, _pool_of_claim, delay=COALESCE_SECONDS),
            Watch(ProxmoxNodeClass, self._pools_of_class),
        )

    def _pool_changed(self, before: NodePool | None, after: NodePool | None, listed: bool) -> None:
        if after is None and before is not None:
            self._metrics.pool_gone(before.metadata.name)

    def _pools_of_class(self, node_class: ProxmoxNodeClass) -> Iterable[Key]:
        name = node_class.metadata.name
        pools = self._cluster.pools.list()
        return [
            Key("", p.metadata.name)
            for p in pools
            if p.spec.template.spec.node_class_ref.name == name
        ]

    async def see(self, obj: NodePool, reader: Reader) -> ObservedPool:
        name = obj.metadata.name
        objects = self._cluster.objects()
        claims = tuple(c for c in objects.claims if c.metadata.labels.get(NODE_POOL) == name)
        joined = [j for j in joined_nodes(claims, objects.nodes) if j.claim is not None]
        types = await self._types(obj)
        used = _capacity(joined, types)
        self._count(obj, used)
        self._metrics.pool_priced(name, pool_price(claims, types))
        return ObservedPool(
            await self._provider.node_class(obj),
            types,
            claims,
            used,
            _moving_pods(joined, objects.pods),
            self._health.observe(name, (obj.metadata.generation, self._class_generation(obj))),
            self._class_generation(obj),
            self._static,
        )

    def _class_generation(self, pool: NodePool) -> int:
        """The generation of the node class; 0 if it is not known."""
        name = pool.spec.template.spec.node_class_ref.name
        found = self._classes.find(Key("", name)) if self._classes is not None else None
        return found.metadata.generation if found is not None else 0

    async def _types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        try:
            return await self._provider.instance_types(pool)
        except MoxwellError:  # the state of the node class says why
            return ()

    def _count(self, pool: NodePool, used: Mapping[str, int]) -> None:
        limits = offered(pool.spec.limits)
        for name, amount in used.items():
            limit = limits.get(name)
            share = None if limit is None else limit / MILLI
            self._metrics.pool_counted(pool.metadata.name, name, amount / MILLI, share)

    def plan(self, obj: NodePool, seen: ObservedPool) -> NodePoolMove:
        return plan_pool(obj, seen)

    async def act(self, move: NodePoolMove) -> Any:
        return await move.perform(self._kube, NodePool) if isinstance(move, Writes) else None

    def describe(self, obj: NodePool, seen: ObservedPool, move: NodePoolMove) -> NodePoolCounters:
        return describe_pool(obj, seen)

    def events(self, obj: NodePool, seen: ObservedPool, move: NodePoolMove) -> Sequence[Note]:
        if not is_usable(obj, seen) or not seen.types or has_usable_type(obj, seen.types):
            return ()
        text = "NodePool requirements filtered out all compatible available instance types"
        return (Note(NodePoolReason.NO_COMPATIBLE_INSTANCE_TYPES, text, "Warning"),)


def has_usable_type(pool: NodePool, types: tuple[InstanceType, ...]) -> bool:
    """Whether the requirements of a pool leave an instance type with an available offering."""
    snapshot = ClusterSnapshot((provisioning_pool(pool, types),), rules=label_rules())
    return bool(Solver(snapshot).templates)


def pool_price(claims: Iterable[NodeClaim], types: Iterable[InstanceType]) -> float:
    """What the launched claims of a pool cost per hour; those of types that are gone are free."""
    offerings = {t.name: t.offerings for t in types}
    return sum(
        min((o.price for o in offerings.get(labels[INSTANCE_TYPE], ()) if _is_of(o, labels)),
            default=0.0)
        for labels in (c.metadata.labels for c in claims)
        if INSTANCE_TYPE in labels
    )  # fmt: skip


def _is_of(offering: Offering, labels: Mapping[str, str]) -> bool:
    keys = (ZONE, REGION, CAPACITY_TYPE)
    return all(v == labels.get(k, v) for k, v in offering.labels if k in keys)


def _pool_of_claim(claim: NodeClaim) -> Iterable[Key]:
    name = claim.metadata.labels.get(NODE_POOL)
    return [Key("", name)] if name else []


def _capacity(joined: Iterable[JoinedNode], types: tuple[InstanceType, ...]) -> dict[str, int]:
    """The capacity of the nodes of a pool that are not deleted."""
    by_name = {t.name: t for t in types}
    active = (j for j in joined if not j.deleting)
    return total(cluster_node(j, by_name, {}, leaving=False).capacity for j in active)


def _moving_pods(joined: Iterable[JoinedNode], pods: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The number of pods on the node of each claim that would move elsewhere."""
    counts = Counter(
        str((p.get("spec") or {}).get("nodeName"))
        for p in pods
        if owner_of(p["metadata"]) not in ("DaemonSet", "Node")
    )
    return {j.claim.metadata.name: counts[j.node_name] for j in joined if j.claim and j.node}
