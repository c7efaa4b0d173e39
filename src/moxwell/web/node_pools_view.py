"""Records of node pools and their nodes. Pure."""

from collections.abc import Iterable
from typing import Any

from moxwell.web.model import InfrastructureOverview, NodePoolView, PoolNodeView

Record = dict[str, Any]


def node_pool_records(overview: InfrastructureOverview) -> Iterable[tuple[str, Record]]:
    """A record for each node pool and one for each of its nodes."""
    machines = {(f"{m.namespace}/{m.cluster}", m.node): m for m in overview.machines if m.node}
    for pool in overview.node_pools:
        yield f"pool/{pool.cluster}/{pool.name}", _pool(pool)
        for node in pool.nodes:
            machine = machines.get((pool.cluster, node.node))
            href = f"/machine/{machine.namespace}/{machine.name}" if machine else None
            yield f"poolnode/{pool.cluster}/{node.name}", _node(pool, node, href)


def _pool(pool: NodePoolView) -> Record:
    return {
        "name": pool.name,
        "cluster": pool.cluster,
        "state": "ready" if pool.ready else "trouble",
        "sentence": pool.message,
        "weight": pool.weight,
        "limits": pool.limits,
        "used": pool.used,
        "nodes": len(pool.nodes),
        "proposal": pool.proposal,
        "saves": pool.saves,
    }


def _node(pool: NodePoolView, node: PoolNodeView, href: str | None) -> Record:
    return {
        "name": node.node or node.name,
        "pool": pool.name,
        "cluster": pool.cluster,
        "type": node.type,
        "capacity": node.capacity,
        "zone": node.zone,
        "pods": node.pods,
        "why": node.why,
        "stays": node.stays,
        "goes": list(node.goes),
        "sentence": node.message,
        "state": node.state,
        "since": node.created,
        "href": href,
    }
