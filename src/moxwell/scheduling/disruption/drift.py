"""
Drift of ordinary and of static pools, and expiration, as Karpenter decides them. Pure.

A drifted node is replaced by whatever its pods need; one of a static pool by a node of the pool's
template. An expired node is deleted at once, whatever its budgets say.
"""

from collections.abc import Iterable, Mapping

from moxwell.scheduling.disruption.candidates import DisruptionCandidate, by_drift
from moxwell.scheduling.disruption.cluster_state import DisruptionNode, DisruptionSnapshot
from moxwell.scheduling.disruption.commands import DisruptionCommand, StaticReplacement
from moxwell.scheduling.disruption.replacements import ReplacementRules
from moxwell.scheduling.disruption.simulation import DisruptionSimulator


def drift(
    simulator: DisruptionSimulator,
    candidates: Iterable[DisruptionCandidate],
    allowances: Mapping[str, int],
) -> DisruptionCommand | None:
    """Replace the first drifted node whose pods all have a place; empty nodes come first."""
    rules = ReplacementRules(simulator.solver.algebra)
    for each in by_drift(candidates):
        if not allowances.get(each.pool.name):
            continue
        removal = simulator.without((each,), hold=False)
        if removal.unplaced:
            continue
        replacements = tuple(map(rules.from_claim, removal.placement.claims))
        return DisruptionCommand((each,), replacements, removal.placement)
    return None


def static_drift(
    snapshot: DisruptionSnapshot,
    candidates: Iterable[DisruptionCandidate],
    allowances: Mapping[str, int],
) -> tuple[DisruptionCommand, ...]:
    """Replace drifted nodes of static pools, within budgets and the limit on nodes."""
    pools: dict[str, list[DisruptionCandidate]] = {}
    for each in sorted(candidates, key=lambda c: c.name):
        pools.setdefault(each.pool.name, []).append(each)
    return tuple(
        DisruptionCommand((each,), static=StaticReplacement(name))
        for name, members in sorted(pools.items())
        for each in members[: _static_room(snapshot, name, allowances.get(name, 0))]
    )


def _static_room(snapshot: DisruptionSnapshot, pool: str, allowed: int) -> int:
    """How many nodes may be replaced; none while the pool has more nodes than replicas."""
    own = [n for n in snapshot.nodes if n.node.managed and n.node.pool == pool]
    staying = sum(1 for n in own if not n.node.deleting)
    known = snapshot.pools_by_name[pool]
    if staying > (known.replicas or 0):
        return 0
    if known.node_limit is None:
        return allowed
    return max(0, min(allowed, known.node_limit - len(own)))


def expired(nodes: Iterable[DisruptionNode], now: float) -> tuple[DisruptionNode, ...]:
    """The nodes whose ``expireAfter`` has passed."""
    return tuple(
        n
        for n in nodes
        if n.node.managed
        and not n.node.deleting
        and n.expire_after is not None
        and now >= n.created + n.expire_after
    )
