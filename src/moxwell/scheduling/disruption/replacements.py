"""Which instance types may replace nodes: only those that are certain to be cheaper. Pure."""

from collections.abc import Iterable
from math import inf

from moxwell.scheduling.disruption.candidates import DisruptionBlocked, DisruptionCandidate
from moxwell.scheduling.disruption.commands import NodeReplacement
from moxwell.scheduling.packing.go_sort import sort_slice
from moxwell.scheduling.packing.results import PlannedClaim
from moxwell.scheduling.packing.type_table import bits
from moxwell.scheduling.requirement_sets import RequirementAlgebra, RequirementSet
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.well_known_labels import CAPACITY_TYPE, SPOT

LEAST_SPOT_OPTIONS = 15
_ONLY_SPOT = LabelRequirement(CAPACITY_TYPE, False, frozenset({SPOT}))


class ReplacementRules:
    """Narrows the instance types of a planned claim."""

    def __init__(self, algebra: RequirementAlgebra) -> None:
        self._algebra = algebra

    def from_claim(self, claim: PlannedClaim) -> NodeReplacement:
        """A claim with all its options, in the order of Karpenter's sort by price."""
        numbers = list(bits(claim.types))
        prices = [claim.table.price(i, claim.requirements) for i in numbers]
        ranks = {price: rank for rank, price in enumerate(sorted(set(prices)))}
        sort_slice([ranks[p] for p in prices], numbers)
        return NodeReplacement(claim, claim.requirements, tuple(numbers[: claim.most]))

    def only_spot(self, given: NodeReplacement) -> NodeReplacement:
        """The replacement launched as spot capacity only."""
        only = self._algebra.of((_ONLY_SPOT,))
        wanted = self._algebra.intersection(given.requirements, only)
        return NodeReplacement(given.claim, wanted, given.options)

    def launchable(self, given: NodeReplacement) -> NodeReplacement:
        """The replacement without types that have no available offering for it."""
        offered = given.claim.table.offered(given.requirements)
        kept = tuple(i for i in given.options if offered >> i & 1)
        return NodeReplacement(given.claim, given.requirements, kept)

    def cheaper(self, given: NodeReplacement, price: float) -> NodeReplacement | DisruptionBlocked:
        """The replacement with the types that cost less than ``price`` at worst."""
        table = given.claim.table
        kept = tuple(i for i in given.options if table.worst_price(i, given.requirements) < price)
        missing = table.missing_values(sum(1 << i for i in kept), given.requirements)
        if missing:
            labels = " ".join(sorted(missing))
            return DisruptionBlocked(
                "Filtering by price: minValues requirement is not met for label(s) "
                f"(label(s)=[{labels}])"
            )
        if not kept:
            return DisruptionBlocked("Can't replace with a cheaper node")
        return NodeReplacement(given.claim, given.requirements, kept)

    def flexible_spot(self, given: NodeReplacement) -> NodeReplacement | DisruptionBlocked:
        """
        A spot replacement with its 15 cheapest types, or as many as ``minValues`` need.

        With fewer a node would be replaced again and again by the next cheaper type.
        """
        if len(given.options) < LEAST_SPOT_OPTIONS:
            return DisruptionBlocked(
                f"SpotToSpotConsolidation requires {LEAST_SPOT_OPTIONS} cheaper instance type "
                f"options than the current candidate to consolidate, got {len(given.options)}"
            )
        most = max(LEAST_SPOT_OPTIONS, self._needed(given))
        return NodeReplacement(given.claim, given.requirements, given.options[:most])

    def _needed(self, given: NodeReplacement) -> int:
        """How many of the first options cover ``minValues``."""
        if not given.requirements.min_values:
            return 0
        mask = 0
        for count, number in enumerate(given.options, 1):
            mask |= 1 << number
            if not given.claim.table.missing_values(mask, given.requirements):
                return count
        return len(given.options)

    def unlike(
        self, given: NodeReplacement, gone: Iterable[DisruptionCandidate]
    ) -> NodeReplacement | DisruptionBlocked:
        """
        The replacement without types that make it pointless.

        If a type of a removed node is among the options, keeping that node would do: options must
        cost less than the cheapest such node.
        """
        names = {t.name for t in given.instance_types}
        prices = (self._price(c) for c in gone if c.instance_type and c.instance_type.name in names)
        return self.cheaper(given, min(prices, default=inf))

    def _price(self, candidate: DisruptionCandidate) -> float:
        """The cheapest offering that a node may have been launched with; 0 if there is none."""
        assert candidate.instance_type is not None
        labels = self._algebra.of_labels(candidate.state.node.labels)
        return min(
            (
                o.price
                for o in candidate.instance_type.offerings
                if not self._algebra.mismatches(
                    labels, self._algebra.of_labels(o.labels), lenient=True
                )
            ),
            default=0.0,
        )


def may_be(requirements: RequirementSet, capacity_type: str) -> bool:
    """Whether a claim may be launched with a capacity type."""
    known = requirements.get(CAPACITY_TYPE)
    return known is None or known.has(capacity_type)
