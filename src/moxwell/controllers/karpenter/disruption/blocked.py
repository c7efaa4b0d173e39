"""Why nodes and pools are not disrupted, as events. Pure."""

from collections.abc import Iterable

from moxwell.scheduling.disruption.budgets import DisruptionReason, disruption_allowances
from moxwell.scheduling.disruption.candidates import DisruptionBlocked, candidate_of
from moxwell.scheduling.disruption.cluster_state import DisruptionNode, DisruptionSnapshot


def blocked_nodes(snapshot: DisruptionSnapshot) -> dict[str, str]:
    """From the names of nodes to what keeps them from being disrupted."""
    found = {}
    for node in filter(_is_of_interest, snapshot.nodes):
        result = candidate_of(snapshot, node)
        if isinstance(result, DisruptionBlocked):
            found[node.name] = result.message
    return found


def _is_of_interest(node: DisruptionNode) -> bool:
    return node.node.managed and node.node.initialized and not node.node.deleting


def blocked_pools(snapshot: DisruptionSnapshot) -> dict[str, str]:
    """From the names of pools with nodes to the reasons for which no disruption is allowed."""
    pools = {n.node.pool for n in snapshot.nodes if n.node.managed}
    found: dict[str, str] = {}
    for name in sorted(pools):
        reasons = [r for r in DisruptionReason if disruption_allowances(snapshot, r).get(name) == 0]
        if reasons:
            found[name] = _text(reasons)
    return found


def _text(reasons: Iterable[DisruptionReason]) -> str:
    given = tuple(reasons)
    if len(given) == len(DisruptionReason):
        return "No allowed disruptions due to blocking budget"
    names = ", ".join(given)
    return f"No allowed disruptions for disruption reason {names} due to blocking budget"
