"""
Limits that hold over all claims of a pass: numbers of nodes, and the quota of the tenant. Pure.

Karpenter's solver charges the limits of a pool with resources, but not with nodes of the same pass,
and knows nothing that several pools share.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.state.snapshots import ScaledClusterView
from moxwell.scheduling.packing.cluster import ClusterSnapshot, ProvisioningPool
from moxwell.scheduling.packing.results import PlannedClaim
from moxwell.scheduling.resource_lists import (
    MILLI,
    NODES,
    ResourceList,
    largest,
    less,
    offered,
    resources_text,
    total,
)


@dataclass(frozen=True, slots=True)
class DroppedClaim:
    """A claim that a limit forbids, and which one."""

    claim: PlannedClaim
    why: str


def within_quota(view: ScaledClusterView) -> ScaledClusterView:
    """The view with pools that may not grow by more than the quota leaves."""
    if not view.quota:
        return view
    cluster = view.cluster
    pools = tuple(_limited(p, cluster, view.quota) for p in cluster.pools)
    return replace(view, cluster=replace(cluster, pools=pools))


def _limited(
    pool: ProvisioningPool, cluster: ClusterSnapshot, quota: Mapping[str, int]
) -> ProvisioningPool:
    used = total(n.capacity for n in cluster.nodes if n.pool == pool.name and not n.deleting)
    most = {name: used.get(name, 0) + max(0, left) for name, left in quota.items()}
    limits = {n: min(a, pool.limits.get(n, a)) for n, a in most.items()}
    return replace(pool, limits={**pool.limits, **limits})


def kept_claims(
    claims: Iterable[PlannedClaim], view: ScaledClusterView
) -> tuple[list[PlannedClaim], list[DroppedClaim]]:
    """The claims that keep to all limits, and the others."""
    nodes = {name: nodes_left(p, view) for name, p in view.pools.items()}
    quota = dict(view.quota)
    kept: list[PlannedClaim] = []
    dropped: list[DroppedClaim] = []
    for claim in claims:
        room, charge = nodes.get(claim.pool), charged(claim, quota)
        if room is not None and room <= 0:
            text = f"node pool {claim.pool} has as many nodes as its limits allow"
            dropped.append(DroppedClaim(claim, text))
        elif any(charge[name] > quota[name] for name in charge):
            left = resources_text({n: max(0, quota[n]) for n in charge})
            text = f"the quota of the tenant leaves {left} for machines"
            dropped.append(DroppedClaim(claim, text))
        else:
            kept.append(claim)
            quota = {**quota, **less(quota, charge)}
            nodes[claim.pool] = None if room is None else room - 1
    return kept, dropped


def charged(claim: PlannedClaim, quota: ResourceList) -> dict[str, int]:
    """What a claim may use of the quota: the largest of its options, as Karpenter charges."""
    most = largest(t.capacity for t in claim.instance_types) | {NODES: MILLI}
    return {name: most.get(name, 0) for name in quota}


def nodes_left(pool: NodePool, view: ScaledClusterView) -> int | None:
    """How many nodes a pool may still create; None without a limit."""
    limit = offered(pool.spec.limits).get(NODES)
    if limit is None:
        return None
    name = pool.metadata.name
    return limit // MILLI - sum(n.pool == name and not n.deleting for n in view.cluster.nodes)
