"""The action of the daemon that explains a node of a node pool."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from moxwell.errors import Invalid, Missing
from moxwell.runtime.key import Key
from moxwell.web.dashboard_feed import DashboardFeed
from moxwell.web.http import Action
from moxwell.web.model import NodePoolView, PoolNodeView


def node_explanation(feed: DashboardFeed) -> Action:
    """``cluster`` is NAMESPACE/NAME; ``node`` is the name of a node or of its node claim."""

    async def explain(query: Mapping[str, Any]) -> Any:
        namespace, _, name = str(query.get("cluster", "")).partition("/")
        if not name:
            raise Invalid("the parameter cluster=NAMESPACE/NAME is missing")
        return explained(feed.node_pools(Key(namespace, name)), str(query.get("node", "")))

    return explain


def explained(pools: Iterable[NodePoolView], called: str) -> dict[str, Any]:
    """Why a node exists, when it is removed, and what that would save."""
    known, given = [], tuple(pools)
    if not given:
        raise Missing("the cluster has no node pool, or does not run")
    for pool in given:
        for node in pool.nodes:
            if called in (node.name, node.node):
                return {"sentence": _sentence(pool, node), "details": list(_details(pool, node))}
            known.append(node.node or node.name)
    hint = f"they have {', '.join(sorted(known))}" if known else "they have no nodes"
    raise Missing(f"no node pool of the cluster has a node {called}: {hint}")


def _sentence(pool: NodePoolView, node: PoolNodeView) -> str:
    kind = " ".join(filter(None, (node.capacity, node.type)))
    where = f" on {node.zone}" if node.zone else ""
    made = f"{node.why[0].lower()}{node.why[1:]}" if node.why else "it was made without a request"
    name = node.node or node.name
    return (
        f"{name} is a node of the pool {pool.name}, {kind or 'without a type yet'}{where}: {made}."
    )


def _details(pool: NodePoolView, node: PoolNodeView) -> Iterator[str]:
    if node.state != "ready":
        yield f"state: {node.state}: {node.message}"
    yield f"pods: {node.pods}"
    if node.state == "deleting":
        return
    if node.price is not None:
        yield f"price: {node.price:.4f} per hour"
    yield f"stays: {node.stays or 'nothing was found yet that keeps it or removes it'}"
    yield from (f"removed if: {rule}" for rule in node.goes)
    if pool.proposal and node.stays == "It would be removed":
        yield f"saves: {pool.saves:.4f} per hour ({pool.proposal})"
    else:
        yield "saves: nothing now; no change that is cheaper is known"
