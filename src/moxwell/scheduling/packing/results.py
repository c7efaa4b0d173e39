"""The answer of the solver: new node claims, pods on existing nodes, and pods without a node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from moxwell.scheduling.packing.failures import PlacementFailure, PodFailure
from moxwell.scheduling.packing.host_ledger import ClaimDemand, HostSlot, planned_slots
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.type_table import TypeTable
from moxwell.scheduling.requirement_sets import RequirementSet
from moxwell.scheduling.resource_lists import total


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    """
    A node claim to create.

    ``types`` is the bit set of possible instance types in ``table``, of which the ``most`` cheapest
    are options. ``daemons`` is what daemon pods request at least. ``passed_over`` says why pools
    that come earlier were not used for the first pod. Where the hosts are visible, ``slot`` is the
    type and host that the claim would get, and ``other_hosts`` says why not another host.
    """

    pool: str
    pods: tuple[PodDemand, ...]
    requirements: RequirementSet
    types: int
    table: TypeTable
    most: int
    daemons: Mapping[str, int]
    min_values_relaxed: bool = False
    passed_over: tuple[tuple[str, PlacementFailure], ...] = ()
    slot: HostSlot | None = None
    other_hosts: tuple[tuple[str, str], ...] = ()

    @property
    def options(self) -> tuple[int, ...]:
        """The instance types as numbers of ``table``, cheapest first."""
        return self.table.cheapest_first(self.types, self.requirements)[: self.most]

    @property
    def requests(self) -> dict[str, int]:
        """What pods and daemon pods request, in thousandths."""
        return total((*(dict(p.shape.requests) for p in self.pods), self.daemons))

    @property
    def instance_types(self) -> tuple[InstanceType, ...]:
        return tuple(self.table.types[i] for i in self.options)

    @property
    def price(self) -> float:
        """The price of its slot, or of the cheapest launchable offering of any option."""
        if self.slot is not None:
            return self.slot.price
        return self.table.cheapest_price(self.types, self.requirements)

    @property
    def capacity_types(self) -> tuple[str, ...]:
        """The capacity types of the launchable offerings."""
        found = {
            o.capacity_type
            for i in self.options
            for o in self.table.launchable(i, self.requirements)
        }
        return tuple(sorted(found))


def with_slots(claims: Iterable[PlannedClaim]) -> tuple[PlannedClaim, ...]:
    """Claims that were packed without a look at the hosts, each with a slot if one has room."""
    given = tuple(claims)
    if any(c.slot is not None for c in given):
        return given
    slots = planned_slots(
        ClaimDemand(n, c.pool, c.table, sum(1 << i for i in c.options), c.requirements)
        for n, c in enumerate(given)
    )
    return tuple(replace(c, slot=slot) for c, slot in zip(given, slots, strict=True))


@dataclass(frozen=True, slots=True)
class SchedulingResult:
    """Where each pod goes; ``existing`` maps node names to the pods added to them."""

    claims: tuple[PlannedClaim, ...] = ()
    existing: Mapping[str, tuple[PodDemand, ...]] = field(default_factory=dict)
    failures: Mapping[str, PodFailure] = field(default_factory=dict)

    @property
    def price(self) -> float:
        """The price of all new nodes per hour."""
        return sum(c.price for c in self.claims)
