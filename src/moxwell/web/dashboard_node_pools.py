"""
Node pools of tenants for the dashboard, joined from caches and what the autoscaler found. Pure.

A tenant that does not run, or has no autoscaler, shows no node pools.
"""

from collections.abc import Mapping

from moxwell.api import quantity
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.disruption.controller import DisruptionInsight
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.scheduling.well_known_labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    ZONE,
)
from moxwell.web import model
from moxwell.web.node_departures import leaving_rules

STEPS = {  # conditions of a NodeClaim that is not Initialized yet, and what it waits for
    "Launched": "The machine is being created",
    "Registered": "The guest boots and joins",
    "Initialized": "Waiting for the node to be ready",
}


def node_pools_of(
    key: Key, caches: Caches | None, insight: DisruptionInsight, pods: Mapping[str, int]
) -> tuple[model.NodePoolView, ...]:
    """Every node pool of a tenant with its nodes."""
    if caches is None:
        return ()
    claims = caches.of(NodeClaim, optional=True).list()
    return tuple(
        _pool(key, pool, [c for c in claims if _label(c, NODE_POOL) == pool.name], insight, pods)
        for pool in caches.of(NodePool, optional=True).list()
    )


def _pool(
    key: Key,
    pool: NodePool,
    claims: list[NodeClaim],
    insight: DisruptionInsight,
    pods: Mapping[str, int],
) -> model.NodePoolView:
    ready = next((c for c in pool.status.conditions if c.type == "Ready"), None)
    about = any(_is_disrupted(claim, insight) for claim in claims)
    return model.NodePoolView(
        cluster=f"{key.namespace}/{key.name}",
        name=pool.name,
        ready=ready is not None and ready.status == "True",
        message=(ready.message or ready.reason) if ready and ready.status != "True" else "",
        weight=pool.spec.weight or 1,
        limits=_amounts(pool.spec.limits),
        used=_amounts(pool.status.resources) if claims else "",
        nodes=tuple(_node(claim, pool, insight, pods) for claim in claims),
        proposal=insight.proposal if about else "",
        saves=insight.saves if about else 0.0,
    )


def _is_disrupted(claim: NodeClaim, insight: DisruptionInsight) -> bool:
    return not insight.disrupted.isdisjoint((claim.name, claim.status.node_name))


def _node(
    claim: NodeClaim, pool: NodePool, insight: DisruptionInsight, pods: Mapping[str, int]
) -> model.PoolNodeView:
    state, message = _state(claim)
    stays = insight.kept.get(claim.name, "")
    return model.PoolNodeView(
        name=claim.name,
        node=claim.status.node_name,
        type=_label(claim, INSTANCE_TYPE),
        capacity=_label(claim, CAPACITY_TYPE),
        zone=_label(claim, ZONE),
        pods=pods.get(claim.status.node_name, 0),
        why=_why(claim, pool),
        stays="It would be removed" if _is_disrupted(claim, insight) else stays,
        goes=tuple(leaving_rules(claim, pool)),
        price=insight.prices.get(claim.name),
        message=message,
        state=state,
        created=claim.metadata.creation_timestamp,
    )


def _why(claim: NodeClaim, pool: NodePool) -> str:
    """What the node was made for: the requests of its NodeClaim never change."""
    if pool.spec.replicas is not None:
        return f"One of {pool.spec.replicas} replicas of its pool"
    requests = claim.spec.resources.requests if claim.spec.resources else {}
    return f"Made for pods that requested {_amounts(requests)}" if requests else ""


def _state(claim: NodeClaim) -> tuple[model.State, str]:
    if claim.deleting:
        return "deleting", "It is drained and deleted"
    conditions = {c.type: c for c in claim.status.conditions}
    for step, text in STEPS.items():
        found = conditions.get(step)
        if found is None or found.status != "True":
            return "creating", (found.message if found and found.message else text)
    drifted = conditions.get("Drifted")
    if drifted is not None and drifted.status == "True":
        return "waiting", f"It will be replaced: {drifted.reason or 'it drifted'}"
    return "ready", ""


def _label(claim: NodeClaim, name: str) -> str:
    return str((claim.metadata.labels or {}).get(name, ""))


def _amounts(found: Mapping[str, object]) -> str:
    """CPU, memory and number of nodes in words."""
    words = []
    if "cpu" in found:
        words.append(f"{quantity.cores(str(found['cpu'])):g} vCPU")
    if "memory" in found:
        words.append(f"{quantity.mebibytes(str(found['memory'])) / 1024:.3g} GiB")
    if "nodes" in found:
        nodes = quantity.cores(str(found["nodes"]))
        words.append(f"{nodes:g} node{'' if nodes == 1 else 's'}")
    return ", ".join(words)
