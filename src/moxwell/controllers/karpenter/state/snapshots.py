"""
Both inputs of the decisions, from the caches of the scaled cluster and the provider's types.

Instance types that the provider cannot list leave their pool out, so that one broken node class
stops only its own pools.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.clock import Clock
from moxwell.controllers.karpenter.provider import InstanceReader
from moxwell.controllers.karpenter.state.intentions import expected_on
from moxwell.controllers.karpenter.state.nodes import (
    JoinedNode,
    cluster_node,
    disruption_node,
    joined_nodes,
)
from moxwell.controllers.karpenter.state.nominations import Nominations
from moxwell.controllers.karpenter.state.objects import ClusterObjects, ScaledCluster
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

log = structlog.get_logger(__name__)
TypesByPool = Mapping[str, tuple[InstanceType, ...]]


@dataclass(frozen=True, slots=True)
class ScaledClusterView:
    """
    A cluster at one moment.

    ``pending`` are the pods to place, those of leaving nodes included; ``expected`` maps the UIDs
    of pods that wait for a node claim in flight to its name. ``nodes`` maps the names of the
    snapshot to what they stand for.
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


@dataclass(frozen=True, slots=True)
class DisruptionView:
    """The input of disruption, and the objects that its names stand for."""

    snapshot: DisruptionSnapshot
    nodes: Mapping[str, JoinedNode]
    pools: Mapping[str, NodePool]

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
    ) -> None:
        self.cluster, self.nominations = cluster, nominations or Nominations(clock)
        self._provider, self._clock = provider, clock
        self._parser = PodParser(label_rules())
        self._created: dict[str, NodeClaim] = {}  # created here, not yet in the cache

    @property
    def synced(self) -> bool:
        """Whether every cache has been filled."""
        return self.cluster.synced

    def has_work(self) -> bool:
        """Whether a pod without a node waits, or a node leaves."""
        waits = any(map(is_provisionable, self.cluster.pods.list()))
        return waits or any(j.deleting or j.is_disrupted for j in self._joined())

    def _joined(self) -> tuple[JoinedNode, ...]:
        return joined_nodes(self.cluster.claims.list(), self.cluster.nodes.list())

    def remember(self, claim: NodeClaim) -> None:
        """Count a node claim that was just created, before the watch delivers it."""
        self._created[claim.metadata.name] = claim

    async def view(self) -> ScaledClusterView:
        """The cluster now."""
        objects = self._objects()
        types = await self._types(objects.pools)
        parsed = self._parser.parse(objects.pods, objects.storage)
        return build_view(objects, parsed, types, self._clock.now().timestamp())

    async def disruption(
        self, in_progress: Collection[str] = (), *, spot_to_spot: bool = False
    ) -> DisruptionView:
        """The input of disruption; ``in_progress`` names node claims that a command disrupts."""
        view = await self.view()
        return disruption_view(
            view, self.nominations.current(), in_progress, spot_to_spot=spot_to_spot
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
    objects: ClusterObjects, parsed: tuple[ParsedPod, ...], types: TypesByPool, now: float
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
        (*wanted, *(p for p in moving if p.uid not in expected)),
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
) -> DisruptionView:
    """The input of disruption from a view. Pure."""
    nodes = tuple(
        disruption_node(
            view.nodes[n.name],
            n,
            nominated=n.name in nominated or n.name in view.expected.values(),
            in_progress=_claim_name(view.nodes[n.name]) in in_progress,
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


def _claim_name(joined: JoinedNode) -> str:
    return joined.claim.metadata.name if joined.claim else ""
