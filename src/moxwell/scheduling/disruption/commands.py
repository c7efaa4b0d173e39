"""Decisions of disruption: deleted nodes, their replacements, and what that saves. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from moxwell.scheduling.disruption.candidates import DisruptionCandidate
from moxwell.scheduling.packing.host_ledger import ClaimDemand
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.results import PlannedClaim, SchedulingResult
from moxwell.scheduling.requirement_sets import RequirementSet


class DisruptionDecision(StrEnum):
    DELETE = "delete"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class NodeReplacement:
    """
    A node claim that is created before the disrupted nodes are deleted.

    ``options`` are numbers of the claim's instance types, cheapest first; ``requirements`` may be
    narrower than the claim's.
    """

    claim: PlannedClaim
    requirements: RequirementSet
    options: tuple[int, ...]

    @property
    def instance_types(self) -> tuple[InstanceType, ...]:
        return tuple(self.claim.table.types[i] for i in self.options)

    def demand(self, number: int) -> ClaimDemand:
        """What the claim may become; ``number`` tells it from others."""
        types = sum(1 << i for i in self.options)
        return ClaimDemand(number, self.claim.pool, self.claim.table, types, self.requirements)

    @property
    def price(self) -> float:
        """The estimated price: of the first option; 0 if that has no offering left."""
        if not self.options:
            return 0.0
        price = self.claim.table.price(self.options[0], self.requirements)
        return 0.0 if price == inf else price


@dataclass(frozen=True, slots=True)
class StaticReplacement:
    """A node claim made from the template of a static pool."""

    pool: str


@dataclass(frozen=True, slots=True)
class DisruptionCommand:
    """Nodes to delete once their replacements are initialized; ``placement`` says where pods go."""

    candidates: tuple[DisruptionCandidate, ...]
    replacements: tuple[NodeReplacement, ...] = ()
    placement: SchedulingResult = field(default_factory=SchedulingResult)
    static: StaticReplacement | None = None

    @property
    def decision(self) -> DisruptionDecision:
        replaced = self.replacements or self.static is not None
        return DisruptionDecision.REPLACE if replaced else DisruptionDecision.DELETE

    @property
    def source_price(self) -> float:
        """The price of the nodes that go."""
        return sum(c.price for c in self.candidates)

    @property
    def savings(self) -> float:
        """What the command is estimated to save per hour."""
        return self.source_price - sum(r.price for r in self.replacements)

    @property
    def cost(self) -> float:
        """The cost of disrupting the nodes."""
        return sum(c.cost for c in self.candidates)
