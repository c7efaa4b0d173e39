"""
The Balanced policy: a command must save a share of the pool's price that is at least half the share
of the pool's pods that it disrupts. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from moxwell.scheduling.disruption.candidates import DisruptionCandidate, node_price
from moxwell.scheduling.disruption.cluster_state import (
    BALANCED,
    DisruptionNode,
    DisruptionSnapshot,
)
from moxwell.scheduling.disruption.commands import DisruptionCommand
from moxwell.scheduling.disruption.costs import disruption_cost
from moxwell.scheduling.well_known_labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE

BALANCED_K = 2
_PRICED = (INSTANCE_TYPE, CAPACITY_TYPE, ZONE, NODE_POOL)


@dataclass(frozen=True, slots=True)
class PoolTotals:
    """The price of all nodes of a pool, and the cost of disrupting all of them."""

    price: float
    cost: float


@dataclass(frozen=True, slots=True)
class MoveScore:
    """A command in numbers: the shares of its pool that it saves and disrupts."""

    savings: float = 0.0
    disruption: float = 0.0

    @property
    def score(self) -> float:
        if self.savings <= 0:
            return 0.0
        return inf if self.disruption == 0 else self.savings / self.disruption

    @property
    def is_approved(self) -> bool:
        return self.score >= 1 / BALANCED_K


def pool_totals(
    snapshot: DisruptionSnapshot, candidates: Sequence[DisruptionCandidate]
) -> dict[str, PoolTotals]:
    """The totals of each pool that has a candidate, before a method rules any out."""
    known = {c.name: c for c in candidates}
    costs: dict[str, float] = {}
    prices: dict[str, float] = {}
    for node in snapshot.nodes:
        labels = dict(node.node.labels)
        if NODE_POOL not in labels:
            continue
        pool = labels[NODE_POOL]
        candidate = known.get(node.name)
        cost = _cost(snapshot, node) if candidate is None else candidate.cost
        costs[pool] = costs.get(pool, 0.0) + cost
        if node.node.managed:
            prices[pool] = prices.get(pool, 0.0) + _price(snapshot, node, labels)
    totals = {}
    for name in {c.pool.name for c in candidates}:
        own = sum(c.price for c in candidates if c.pool.name == name)
        priced = prices.get(name, 0.0)
        totals[name] = PoolTotals(priced if priced > 0 else own, costs.get(name, 0.0))
    return totals


def _price(snapshot: DisruptionSnapshot, node: DisruptionNode, labels: Mapping[str, str]) -> float:
    pool = snapshot.pools_by_name.get(labels[NODE_POOL])
    if pool is None or any(key not in labels for key in _PRICED):
        return 0.0
    return node_price(node, pool.instance_type(labels[INSTANCE_TYPE]))


def _cost(snapshot: DisruptionSnapshot, node: DisruptionNode) -> float:
    pods = snapshot.pods_on(node.name)
    return disruption_cost(p for p in pods if not p.is_terminal and not p.is_daemon)


def move_score(savings: float, cost: float, totals: PoolTotals) -> MoveScore:
    """What a command saves and disrupts, as shares of a pool."""
    if totals.price <= 0 or totals.cost <= 0:
        return MoveScore()
    return MoveScore(savings / totals.price, cost / totals.cost)


def command_scores(
    command: DisruptionCommand, totals: Mapping[str, PoolTotals]
) -> dict[str, MoveScore]:
    """The score in each Balanced pool; savings are divided by the price of the pools' nodes."""
    pools: dict[str, list[DisruptionCandidate]] = {}
    for each in command.candidates:
        pools.setdefault(each.pool.name, []).append(each)
    scores = {}
    for name, members in pools.items():
        if members[0].pool.policy != BALANCED:
            continue
        savings = command.savings
        if len(pools) > 1 and command.source_price > 0:
            savings *= sum(c.price for c in members) / command.source_price
        scores[name] = move_score(savings, sum(c.cost for c in members), totals[name])
    return scores


def approves(command: DisruptionCommand, totals: Mapping[str, PoolTotals]) -> bool:
    """Whether every Balanced pool approves of a command."""
    return all(s.is_approved for s in command_scores(command, totals).values())


def can_be_approved(candidate: DisruptionCandidate, totals: Mapping[str, PoolTotals]) -> bool:
    """Whether deleting the node without replacement would be approved; nothing saves more."""
    known = totals.get(candidate.pool.name)
    if candidate.pool.policy != BALANCED or known is None or known.price <= 0:
        return True
    return move_score(candidate.price, candidate.cost, known).is_approved
