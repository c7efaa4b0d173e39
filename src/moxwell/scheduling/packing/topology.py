"""
The topology groups of one run of the solver.

Pods that already run are counted once per rule; a run starts from these counts without the pods
that it schedules itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from moxwell.api.core.nodes import Taint
from moxwell.scheduling.packing.cluster import ClusterSnapshot, ProvisioningPool
from moxwell.scheduling.packing.node_filter import node_filter
from moxwell.scheduling.packing.nodes import ClusterNode
from moxwell.scheduling.packing.pods import PodAffinityRule, PodDemand, PodShape, SpreadConstraint
from moxwell.scheduling.packing.topology_groups import TopologyGroup, TopologyRule, TopologyType
from moxwell.scheduling.requirement_sets import RequirementAlgebra
from moxwell.scheduling.requirements import RequirementOperator
from moxwell.scheduling.taints import untolerated
from moxwell.scheduling.well_known_labels import HOSTNAME

TaintSets = tuple[tuple[Taint, ...], ...]


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """Bound pods that a rule counts: domain by pod UID, their number per domain."""

    by_uid: Mapping[str, str]
    per_domain: Mapping[str, int]

    def without(self, uids: Iterable[str]) -> Iterator[tuple[str, int]]:
        """The number per domain without some pods; domains without pods are left out."""
        gone = Counter(self.by_uid[u] for u in uids if u in self.by_uid)
        for domain, count in self.per_domain.items():
            if count > gone[domain]:
                yield domain, count - gone[domain]


class TopologyIndex:
    """What is constant over runs on one snapshot: domains of pools, counts of bound pods."""

    def __init__(self, snapshot: ClusterSnapshot, algebra: RequirementAlgebra) -> None:
        self.algebra = algebra
        self._snapshot = snapshot
        self._nodes = {n.name: n for n in snapshot.nodes if n.has_node}
        self._node_sets = {n.name: algebra.of_labels(n.node_labels) for n in self._nodes.values()}
        self.domains = _pool_domains(snapshot.pools)
        self._counts: dict[tuple[object, ...], RuleCounts] = {}
        self._registered: dict[tuple[object, ...], dict[str, frozenset[str]]] = {}
        self.bound_inverse = tuple(self._bound_inverse())

    def _bound_inverse(self) -> Iterator[tuple[PodDemand, TopologyRule, str | None]]:
        """Bound pods with required anti-affinity: rule and domain of each term."""
        for pod in self._snapshot.pods:
            node = self._nodes.get(pod.node_name)
            if node is None or not pod.shape.anti_affinity or pod.is_terminal:
                continue
            labels = dict(node.node_labels)
            for term in pod.shape.anti_affinity:
                rule = self.affinity_rule(TopologyType.ANTI_AFFINITY, pod.shape, term)
                yield pod, rule, labels.get(rule.key)

    def spread_rule(self, shape: PodShape, constraint: SpreadConstraint) -> TopologyRule:
        selector = constraint.selector
        labels = dict(shape.labels)
        for key in constraint.match_label_keys:
            if selector is not None and key in labels:
                selector = selector.narrowed(key, labels[key])
        return TopologyRule(
            TopologyType.SPREAD,
            constraint.topology_key,
            frozenset({shape.namespace}),
            selector,
            constraint.max_skew,
            constraint.min_domains,
            node_filter(self.algebra, shape, constraint),
        )

    def affinity_rule(
        self, type: TopologyType, shape: PodShape, term: PodAffinityRule
    ) -> TopologyRule:
        return TopologyRule(type, term.topology_key, self._namespaces(shape, term), term.selector)

    def _namespaces(self, shape: PodShape, term: PodAffinityRule) -> frozenset[str]:
        if term.namespace_selector is None:
            return term.namespaces or frozenset({shape.namespace})
        selected = (
            name
            for name, labels in self._snapshot.namespaces.items()
            if term.namespace_selector.matches(dict(labels))
        )
        return term.namespaces | frozenset(selected)

    def known_domains(self, rule: TopologyRule, shape: PodShape) -> list[str]:
        """
        The domains that pools offer to a pod.

        Spread constraints ignore taints unless their policy honors them; affinity always honors
        them.
        """
        offered = self.domains.get(rule.key, {})
        if rule.node_filter is not None and rule.node_filter.taints_policy == "Ignore":
            return list(offered)
        return [
            domain
            for domain, taint_sets in offered.items()
            if any(not untolerated(taints, shape.tolerations) for taints in taint_sets)
        ]

    def node_domains(self, rule: TopologyRule) -> dict[str, frozenset[str]]:
        """The domains of the nodes that stay and count for a rule, and the names of these nodes."""
        found = self._registered.get(rule.identity)
        if found is None:
            names: dict[str, set[str]] = {}
            for node in self._nodes.values():
                domain = None if node.deleting else dict(node.labels).get(rule.key)
                if domain is not None and self._counts_node(rule, node):
                    names.setdefault(domain, set()).add(node.name)
            found = {d: frozenset(n) for d, n in names.items()}
            self._registered[rule.identity] = found
        return found

    def counts(self, rule: TopologyRule) -> RuleCounts:
        """The bound pods that a rule counts; a rule without a selector counts all of them."""
        found = self._counts.get(rule.identity)
        if found is None:
            by_uid = dict(self._counted(rule))
            found = RuleCounts(by_uid, Counter(by_uid.values()))
            self._counts[rule.identity] = found
        return found

    def _counted(self, rule: TopologyRule) -> Iterator[tuple[str, str]]:
        for pod in self._snapshot.pods:
            if pod.is_terminal or pod.terminating or pod.namespace not in rule.namespaces:
                continue
            if rule.selector is not None and not rule.selector.matches(dict(pod.shape.labels)):
                continue
            node = self._nodes.get(pod.node_name)
            if node is None or not self._counts_node(rule, node):
                continue
            fallback = node.name if rule.key == HOSTNAME else None
            domain = dict(node.node_labels).get(rule.key, fallback)
            if domain is not None:
                yield pod.uid, domain

    def _counts_node(self, rule: TopologyRule, node: ClusterNode) -> bool:
        if rule.node_filter is None:
            return True
        own = self._node_sets[node.name]
        hostname = dict(node.node_labels).get(HOSTNAME, "")
        return rule.node_filter.matches(self.algebra, node.node_taints, own, hostname)


def _pool_domains(pools: Iterable[ProvisioningPool]) -> dict[str, dict[str, TaintSets]]:
    """For each label the values that pools can give it, with the taints that come with them."""
    result: dict[str, dict[str, set[tuple[Taint, ...]]]] = {}
    for pool in pools:
        for key, value in set(_pool_values(pool)):
            result.setdefault(key, {}).setdefault(value, set()).add(pool.taints)
    return {
        key: {value: tuple(taints) for value, taints in sorted(values.items())}
        for key, values in result.items()
    }


def _pool_values(pool: ProvisioningPool) -> Iterator[tuple[str, str]]:
    if not pool.instance_types:
        return
    algebra = RequirementAlgebra(frozenset())
    own = algebra.intersection(algebra.of(pool.requirements), algebra.of_labels(pool.labels))
    distinct = {algebra.of(t.requirements).number: t.requirements for t in pool.instance_types}
    for requirements in distinct.values():
        for each in algebra.intersection(own, algebra.of(requirements)).entries.values():
            yield from ((each.key, value) for value in each.values)
    for each in own.entries.values():
        if each.operator is RequirementOperator.IN:
            yield from ((each.key, value) for value in each.values)


class Topology:
    """The topology groups of one run."""

    def __init__(
        self,
        index: TopologyIndex,
        scheduled: frozenset[str],
        removed_nodes: frozenset[str],
        ignore_preferences: bool,
        turn: int = 0,
    ) -> None:
        self._index = index
        self._turn = turn
        self._scheduled = scheduled
        self._removed = removed_nodes
        self._ignore_preferences = ignore_preferences
        self.groups: list[TopologyGroup] = []
        self._by_identity: dict[tuple[object, ...], TopologyGroup] = {}
        self._inverse: dict[tuple[object, ...], TopologyGroup] = {}
        for pod, rule, domain in index.bound_inverse:
            if pod.uid not in scheduled:
                group = self._inverse_group(rule, pod.shape)
                if domain is not None:
                    group.record(domain)

    @property
    def inverse(self) -> Iterable[TopologyGroup]:
        """Groups of required anti-affinity, seen from the pods that they keep away."""
        return self._inverse.values()

    def owned(self, shape: PodShape) -> tuple[TopologyGroup, ...]:
        """The groups of a pod's own constraints, created if they are new."""
        rules = [*self._spread_rules(shape), *self._affinity_rules(shape)]
        return tuple(dict.fromkeys(self._group(rule, shape) for rule in rules))

    def inverse_owned(self, shape: PodShape) -> tuple[TopologyGroup, ...]:
        """The groups of a pod's required anti-affinity, created if they are new."""
        kind = TopologyType.ANTI_AFFINITY
        rules = (self._index.affinity_rule(kind, shape, t) for t in shape.anti_affinity)
        return tuple(dict.fromkeys(self._inverse_group(rule, shape) for rule in rules))

    def _spread_rules(self, shape: PodShape) -> Iterator[TopologyRule]:
        for constraint in shape.spread:
            if not (self._ignore_preferences and constraint.when_unsatisfiable != "DoNotSchedule"):
                yield self._index.spread_rule(shape, constraint)

    def _affinity_rules(self, shape: PodShape) -> Iterator[TopologyRule]:
        soft = not self._ignore_preferences
        near = shape.affinity + (shape.preferred_affinity if soft else ())
        apart = shape.anti_affinity + (shape.preferred_anti_affinity if soft else ())
        for term in near:
            yield self._index.affinity_rule(TopologyType.AFFINITY, shape, term)
        for term in apart:
            yield self._index.affinity_rule(TopologyType.ANTI_AFFINITY, shape, term)

    def _group(self, rule: TopologyRule, shape: PodShape) -> TopologyGroup:
        found = self._by_identity.get(rule.identity)
        if found is None:
            found = TopologyGroup(rule, self._index.known_domains(rule, shape), self._turn)
            if not found.is_host:
                for domain, nodes in self._index.node_domains(rule).items():
                    if nodes - self._removed:
                        found.register(domain)
            for domain, count in self._index.counts(rule).without(self._scheduled):
                for _ in range(count):
                    found.record(domain)
            self._by_identity[rule.identity] = found
            self.groups.append(found)
        return found

    def _inverse_group(self, rule: TopologyRule, shape: PodShape) -> TopologyGroup:
        found = self._inverse.get(rule.identity)
        if found is None:
            found = TopologyGroup(rule, self._index.known_domains(rule, shape))
            self._inverse[rule.identity] = found
        return found
