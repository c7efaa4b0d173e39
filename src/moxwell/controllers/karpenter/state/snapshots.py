"""
Both inputs of the decisions, from the caches of the scaled cluster and the provider's types.

Instance types that the provider cannot list leave their pool out, so that one broken node class
stops only its own pools.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.clock import Clock
from moxwell.controllers.karpenter.batch_limit import BatchLimit, uid_of
from moxwell.controllers.karpenter.buffer_store import BufferStore
from moxwell.controllers.karpenter.provider import InstanceReader
from moxwell.controllers.karpenter.state.intentions import expected_on
from moxwell.controllers.karpenter.state.needs import PodNeeds
from moxwell.controllers.karpenter.state.nodes import (
    JoinedNode,
    cluster_node,
    disruption_node,
    joined_nodes,
)
from moxwell.controllers.karpenter.state.nominations import Nominations
from moxwell.controllers.karpenter.state.objects import (
    ClusterObjects,
    ScaledCluster,
    key_text,
)
from moxwell.controllers.karpenter.state.pods import (
    ParsedPod,
    PodParser,
    daemon_pod,
    disruption_limit,
    is_provisionable,
)
from moxwell.controllers.karpenter.state.pools import (
    disruption_pool,
    is_ready,
    label_rules,
    provisioning_pool,
)
from moxwell.errors import MoxwellError
from moxwell.scheduling.disruption.cluster_state import DisruptionSnapshot
from moxwell.scheduling.packing.cluster import ClusterSnapshot
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.pods import Labels, PodDemand, pairs
from moxwell.scheduling.packing.rescheduling import DisruptionLimit, currently_reschedulable
from moxwell.scheduling.spot_room import SpotGuest

log = structlog.get_logger(__name__)
TypesByPool = Mapping[str, tuple[InstanceType, ...]]
QuotaReader = Callable[["ScaledClusterView"], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class ScaledClusterView:
    """
    A cluster at one moment.

    ``pending`` are the pods to place, those of leaving nodes and virtual ones of buffers included;
    ``expected`` maps the UIDs of pods that wait for a node claim in flight to its name. ``nodes``
    maps the names of the snapshot to what they stand for. ``deferred`` are the keys of pods that a
    later pass decides about. ``quota`` is what the tenant may still use, in thousandths; ``spot``
    are guests that may be deleted to free capacity.
    """

    cluster: ClusterSnapshot
    pending: tuple[PodDemand, ...] = ()
    ignored: tuple[ParsedPod, ...] = ()
    expected: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, JoinedNode] = field(default_factory=dict)
    pools: Mapping[str, NodePool] = field(default_factory=dict)
    limits: tuple[DisruptionLimit, ...] = ()
    types: TypesByPool = field(default_factory=dict)
    now: float = 0.0
    deferred: frozenset[str] = frozenset()
    quota: Mapping[str, int] = field(default_factory=dict)
    spot: tuple[SpotGuest, ...] = ()

    @property
    def size(self) -> int:
        """A measure of how much work a decision is."""
        cluster = self.cluster
        placed = len(cluster.pods) + len(cluster.nodes)
        return len(self.pending) * max(1, len(cluster.pools)) + placed


@dataclass(frozen=True, slots=True)
class DisruptionView:
    """The input of disruption, and the objects that its names stand for."""

    snapshot: DisruptionSnapshot
    nodes: Mapping[str, JoinedNode]
    pools: Mapping[str, NodePool]

    @property
    def size(self) -> int:
        """A measure of how much work a decision is."""
        cluster = self.snapshot.cluster
        return len(cluster.pods) + len(cluster.nodes) + len(self.snapshot.pending)

    def claim(self, name: str) -> NodeClaim | None:
        """The node claim of a node of the snapshot."""
        found = self.nodes.get(name)
        return found.claim if found else None


class ClusterState:
    """Reads the scaled cluster for provisioning and disruption."""

    def __init__(
        self,
        cluster: ScaledCluster,
        provider: InstanceReader,
        clock: Clock,
        nominations: Nominations | None = None,
        *,
        buffers: BufferStore | None = None,
        limit: BatchLimit | None = None,
        quota: QuotaReader | None = None,
    ) -> None:
        self.cluster, self.nominations = cluster, nominations or Nominations(clock)
        self.limit, self.needs = limit or BatchLimit(), PodNeeds(clock)
        self.buffers = buffers  # None: the feature is off
        self._provider, self._clock, self._quota = provider, clock, quota
        self._parser = PodParser(label_rules())
        self._created: dict[str, NodeClaim] = {}  # created here, not yet in the cache

    @property
    def synced(self) -> bool:
        """Whether every cache has been filled."""
        return self.cluster.synced

    def has_work(self) -> bool:
        """Whether a pod without a node waits, or a node leaves."""
        waits = any(map(is_provisionable, self.cluster.pods.list()))
        buffered = self.buffers is not None and len(self.cluster.buffers) > 0
        return waits or buffered or any(j.deleting or j.is_disrupted for j in self._joined())

    @property
    def knows_buffers(self) -> bool:
        """Whether it is known on which nodes capacity is kept free."""
        return self.buffers is None or self.buffers.is_complete(self.cluster.buffers.keys())

    def _joined(self) -> tuple[JoinedNode, ...]:
        return joined_nodes(self.cluster.claims.list(), self.cluster.nodes.list())

    def remember(self, claim: NodeClaim) -> None:
        """Count a node claim that was just created, before the watch delivers it."""
        self._created[claim.metadata.name] = claim

    async def view(self, *, advance: bool = False) -> ScaledClusterView:
        """The cluster now; ``advance`` lets the next pass decide about other pods first."""
        objects = self._objects()
        types = await self._types(objects.pools)
        chosen, deferred = self._chosen(objects, advance)
        parsed = self._parser.parse(chosen.pods, objects.storage)
        now = self._clock.now().timestamp()
        view = build_view(chosen, parsed, types, now, self._virtual(chosen, now))
        quota = self._quota(view) if self._quota is not None else {}
        spot = await self._provider.spot_guests()
        return replace(view, deferred=deferred, quota=quota, spot=spot)

    def _chosen(
        self, objects: ClusterObjects, advance: bool
    ) -> tuple[ClusterObjects, frozenset[str]]:
        """The objects without the pending pods that are too many for a pass, and their keys."""
        expected = expected_on(objects.claims)
        waiting = [p for p in objects.pods if is_provisionable(p) and uid_of(p) not in expected]
        kept = self.limit.choose(waiting, advance=advance)
        later = {uid_of(p): key_text(p) for p in waiting if uid_of(p) not in kept}
        if not later:
            return objects, frozenset()
        pods = tuple(p for p in objects.pods if uid_of(p) not in later)
        return replace(objects, pods=pods), frozenset(later.values())

    def _virtual(self, objects: ClusterObjects, now: float) -> tuple[PodDemand, ...]:
        """The virtual pods of buffers, within what is left of the limit."""
        if self.buffers is None:
            return ()
        self.buffers.keep(self.cluster.buffers.keys())
        most = self.limit.pods
        if not most:
            return self.buffers.pods(now)
        left = most - sum(map(is_provisionable, objects.pods))
        return self.buffers.pods(now, left) if left > 0 else ()

    async def disruption(
        self,
        in_progress: Collection[str] = (),
        *,
        leaving: Collection[str] = (),
        spot_to_spot: bool = False,
    ) -> DisruptionView:
        """
        The input of disruption.

        ``in_progress`` names node claims that are not disrupted now, ``leaving`` those that a
        command disrupts already: their nodes take no pods, and the budgets count them.
        """
        view = with_leaving(await self.view(), leaving)
        held = (self.buffers.nodes if self.buffers is not None else None) or frozenset()
        return disruption_view(
            view, self.nominations.current(), in_progress, spot_to_spot=spot_to_spot, held=held
        )

    def _objects(self) -> ClusterObjects:
        found = self.cluster.objects()
        known = {c.metadata.name for c in found.claims}
        self._created = {n: c for n, c in self._created.items() if n not in known}
        if not self._created:
            return found
        return replace(found, claims=(*found.claims, *self._created.values()))

    async def _types(self, pools: Iterable[NodePool]) -> TypesByPool:
        found: dict[str, tuple[InstanceType, ...]] = {}
        for pool in pools:
            try:
                found[pool.metadata.name] = await self._provider.instance_types(pool)
            except MoxwellError as error:
                log.warning("no instance types", nodepool=pool.metadata.name, error=str(error))
        return found


def build_view(
    objects: ClusterObjects,
    parsed: tuple[ParsedPod, ...],
    types: TypesByPool,
    now: float,
    virtual: tuple[PodDemand, ...] = (),
) -> ScaledClusterView:
    """A cluster from its objects. Pure."""
    joined = joined_nodes(objects.claims, objects.nodes)
    names = {j.node_name: j.name for j in joined if j.node}
    by_name = {t.name: t for each in types.values() for t in each}
    attach = {str(c["metadata"]["name"]): c for c in objects.csi_nodes}
    nodes = tuple(cluster_node(j, by_name, attach, leaving=j.is_disrupted) for j in joined)
    expected = expected_on(objects.claims)
    limits = tuple(map(disruption_limit, objects.budgets))
    bound = _bound(parsed, expected, names)
    leaving = {n.name for n in nodes if n.deleting}
    wanted, ignored = _pending(objects.pods, parsed, expected)
    moving = currently_reschedulable((p for p in bound if p.node_name in leaving), limits, now)
    usable = [p for p in objects.pools if is_ready(p) and p.spec.replicas is None]
    return ScaledClusterView(
        ClusterSnapshot(
            tuple(provisioning_pool(p, types[p.name]) for p in usable if types.get(p.name)),
            nodes,
            bound,
            tuple(map(daemon_pod, objects.daemon_sets)),
            _namespaces(objects.namespaces),
            label_rules(),
        ),
        (*wanted, *(p for p in moving if p.uid not in expected), *virtual),
        ignored,
        expected,
        {j.name: j for j in joined},
        {p.metadata.name: p for p in objects.pools},
        limits,
        types,
        now,
    )


def _bound(
    parsed: Iterable[ParsedPod], expected: Mapping[str, str], names: Mapping[str, str]
) -> tuple[PodDemand, ...]:
    """Bound pods and, on node claims in flight, the pods that wait for them."""
    found = []
    for each in parsed:
        pod = each.pod
        if pod.node_name:
            found.append(replace(pod, node_name=names.get(pod.node_name, pod.node_name)))
        elif pod.uid in expected and not pod.is_terminal and not pod.terminating:
            found.append(replace(pod, node_name=expected[pod.uid]))
    return tuple(found)


def _pending(
    pods: Iterable[Mapping[str, Any]], parsed: Iterable[ParsedPod], expected: Mapping[str, str]
) -> tuple[tuple[PodDemand, ...], tuple[ParsedPod, ...]]:
    wanted, ignored = [], []
    for pod, each in zip(pods, parsed, strict=True):
        if each.pod.uid in expected or not is_provisionable(pod):
            continue
        if each.refusal:
            ignored.append(each)
        else:
            wanted.append(each.pod)
    return tuple(wanted), tuple(ignored)


def _namespaces(namespaces: Iterable[Mapping[str, Any]]) -> dict[str, Labels]:
    return {str(n["metadata"]["name"]): pairs(n["metadata"].get("labels")) for n in namespaces}


def disruption_view(
    view: ScaledClusterView,
    nominated: Collection[str],
    in_progress: Collection[str] = (),
    *,
    spot_to_spot: bool = False,
    held: Collection[str] = (),
) -> DisruptionView:
    """The input of disruption from a view; ``held`` nodes have capacity of buffers. Pure."""
    nodes = tuple(
        disruption_node(
            view.nodes[n.name],
            n,
            nominated=n.name in nominated or n.name in view.expected.values(),
            in_progress=_claim_name(view.nodes[n.name]) in in_progress,
            has_buffer=n.name in held,
        )
        for n in view.cluster.nodes
    )
    pools = tuple(
        disruption_pool(p, view.types.get(name, ())) for name, p in sorted(view.pools.items())
    )
    snapshot = DisruptionSnapshot(
        view.cluster,
        pools,
        nodes,
        tuple(p for p in view.pending if not p.node_name),
        view.limits,
        view.now,
        spot_to_spot,
    )
    return DisruptionView(snapshot, view.nodes, view.pools)


def with_leaving(view: ScaledClusterView, claims: Collection[str]) -> ScaledClusterView:
    """
    The view with the nodes of these node claims as being deleted. Pure.

    Their pods that a replacement was created for count as placed on it, so that pods of further
    nodes do not take its room.
    """
    if not claims:
        return view
    nodes = tuple(
        replace(n, deleting=True) if _claim_name(view.nodes[n.name]) in claims else n
        for n in view.cluster.nodes
    )
    leaving = {n.name for n in nodes if n.deleting}
    pods = tuple(
        replace(p, node_name=view.expected[p.uid])
        if p.node_name in leaving and p.uid in view.expected
        else p
        for p in view.cluster.pods
    )
    return replace(view, cluster=replace(view.cluster, nodes=nodes, pods=pods))


def _claim_name(joined: JoinedNode) -> str:
    return joined.claim.metadata.name if joined.claim else ""
