"""
Topology groups: how many pods a selector finds in each domain, and which domains are allowed.

A group stands for one spread constraint, affinity or anti-affinity term and is shared by all pods
that have it. Where Karpenter draws a domain at random among equals, the first by name is taken, and
the next one (``turn``) if the pod fits nowhere with it; ``tied`` is the number of equals.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from moxwell.scheduling.packing.node_filter import NodeFilter
from moxwell.scheduling.packing.pods import PodSelector, PodShape
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.well_known_labels import HOSTNAME

UNLIMITED = 2**31 - 1


class TopologyType(StrEnum):
    """What a topology group enforces; the values are Karpenter's words in messages."""

    SPREAD = "topology spread"
    AFFINITY = "pod affinity"
    ANTI_AFFINITY = "pod anti-affinity"


@dataclass(frozen=True, slots=True)
class TopologyRule:
    """The constant part of a topology group."""

    type: TopologyType
    key: str
    namespaces: frozenset[str]
    selector: PodSelector | None
    max_skew: int = UNLIMITED
    min_domains: int | None = None
    node_filter: NodeFilter | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """Terms with the same identity share a group; ``min_domains`` is not part of it."""
        own = self.node_filter.identity if self.node_filter else None
        return (self.type, self.key, self.namespaces, self.selector, self.max_skew, own)

    def selects(self, shape: PodShape) -> bool:
        """Whether a pod counts; without a selector none does."""
        if self.selector is None or shape.namespace not in self.namespaces:
            return False
        return self.selector.matches(dict(shape.labels))


class TopologyGroup:
    """The number of selected pods per domain."""

    __slots__ = (
        "counts", "empty", "is_host", "key", "node_filter", "occupied", "rule", "tied", "turn",
    )  # fmt: skip

    def __init__(self, rule: TopologyRule, domains: Iterable[str], turn: int = 0) -> None:
        self.rule = rule
        self.key = rule.key
        own = rule.node_filter
        self.node_filter = None if own is None or own.admits_all else own
        self.is_host = rule.key == HOSTNAME
        self.counts = dict.fromkeys(sorted(domains), 0)
        self.empty = set(self.counts)
        self.occupied = 0
        self.turn = turn
        self.tied = 1

    def register(self, domain: str) -> None:
        """Make a domain known."""
        if domain not in self.counts:
            self.counts[domain] = 0
            self.empty.add(domain)
            if not self.is_host:
                self.counts = dict(sorted(self.counts.items()))

    def record(self, domain: str) -> None:
        """Count one more pod."""
        count = self.counts.get(domain)
        if count is None:
            self.register(domain)
            count = 0
        if not count:
            self.occupied += 1
            self.empty.discard(domain)
        self.counts[domain] = count + 1

    def allows_host(self, host: str, selects: bool, pod: LabelRequirement | None) -> bool:
        """
        Whether a pod may be on a node of this host name; for groups of host names only.

        A node can always be added, so the smallest number of pods per host name is 0.
        """
        count = self.counts.get(host, 0)
        match self.rule.type:
            case TopologyType.SPREAD:
                return count + selects <= self.rule.max_skew
            case TopologyType.ANTI_AFFINITY:
                return count == 0
        if pod is not None and not pod.has(host):
            return False
        return count > 0 or (selects and self._is_first(pod))

    def domains(
        self, selects: bool, pod: LabelRequirement | None, node: LabelRequirement | None
    ) -> frozenset[str]:
        """The domains that the next pod may take: one for spread, all allowed ones else."""
        match self.rule.type:
            case TopologyType.SPREAD:
                return self._spread_domain(selects, pod, node)
            case TopologyType.AFFINITY:
                return self._affinity_domains(selects, pod, node)
        return frozenset(d for d in self.empty if _allowed(d, pod) and _allowed(d, node))

    def _spread_domain(
        self, selects: bool, pod: LabelRequirement | None, node: LabelRequirement | None
    ) -> frozenset[str]:
        """The emptiest domain of the node within the skew of the pod's domains."""
        limit = self._smallest(pod) + self.rule.max_skew - selects
        found: list[str] = []
        fewest = UNLIMITED
        for domain, count in self.counts.items():
            if count <= fewest and count <= limit and _allowed(domain, node):
                if count < fewest:
                    found, fewest = [], count
                found.append(domain)
        return frozenset(self._drawn(found))

    def _smallest(self, pod: LabelRequirement | None) -> int:
        counts = [c for d, c in self.counts.items() if _allowed(d, pod)]
        least = self.rule.min_domains
        if least is not None and len(counts) < least:
            return 0
        return min(counts, default=UNLIMITED)

    def _affinity_domains(
        self, selects: bool, pod: LabelRequirement | None, node: LabelRequirement | None
    ) -> frozenset[str]:
        found = frozenset(
            d for d, c in self.counts.items() if c and _allowed(d, pod) and _allowed(d, node)
        )
        if found or not selects or not self._is_first(pod):
            return found
        own = [d for d in self.counts if _allowed(d, pod)]
        common = [d for d in own if _allowed(d, node)]
        return frozenset((*self._drawn(common), *self._drawn(own)))

    def _drawn(self, equals: list[str]) -> list[str]:
        """The domain of this turn among equal ones, if there is any."""
        if len(equals) < 2:
            return equals
        self.tied = max(self.tied, len(equals))
        return [equals[self.turn % len(equals)]]

    def _is_first(self, pod: LabelRequirement | None) -> bool:
        """Whether no selected pod is in a domain that the pod could take."""
        if not self.occupied:
            return True
        return not any(c and _allowed(d, pod) for d, c in self.counts.items())


def _allowed(domain: str, wanted: LabelRequirement | None) -> bool:
    return wanted is None or wanted.has(domain)
