"""
Instance types as NodeOverlays change them for the decisions: prices and extended resources. Pure.

Overlays are taken by weight, the heaviest first; of equal weight the later name first, as in
Karpenter. The first that selects an offering sets its price, and the first that names a resource
sets its capacity. An overlay that selects what another of the same weight has changed is a conflict
and changes nothing at all; one that fails validation is left out.

The caller lists the instance types of each pool once, calls :func:`overlaid`, and uses
:attr:`OverlayResult.instance_types` in place of what the provider listed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from moxwell.api.karpenter.capacity import NodeOverlay
from moxwell.errors import MoxwellError
from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.packing.pod_validation import expression_refusals
from moxwell.scheduling.packing.pods import Labels
from moxwell.scheduling.requirement_sets import RequirementAlgebra, RequirementSet
from moxwell.scheduling.requirements import requirement
from moxwell.scheduling.resource_lists import offered
from moxwell.scheduling.well_known_labels import NODE_POOL, LabelRules, normalized

PRICE_OVERLAY_APPLIED = "karpenter.sh/price-overlay-applied"
CAPACITY_OVERLAY_APPLIED = "karpenter.sh/capacity-overlay-applied"
RUNTIME_VALIDATION = "RuntimeValidation"
CONFLICT = "Conflict"
_CONFLICT_TEXT = "conflict with another overlay"
_OWN_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")


class OverlaidPool(NamedTuple):
    """A node pool: its name, the labels of its template and the types that its provider lists."""

    name: str
    labels: Labels
    instance_types: tuple[InstanceType, ...]


@dataclass(frozen=True, slots=True)
class OverlayRefusal:
    """Why an overlay has no effect: reason and message of ``ValidationSucceeded=False``."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class OverlayResult:
    """
    The instance types of each pool, and the overlays that have no effect, by name.

    ``priced`` and ``enlarged`` are the pairs of pool and instance type whose price or capacity an
    overlay set.
    """

    instance_types: Mapping[str, tuple[InstanceType, ...]]
    refused: Mapping[str, OverlayRefusal]
    priced: frozenset[tuple[str, str]] = frozenset()
    enlarged: frozenset[tuple[str, str]] = frozenset()

    def annotations(self, pool: str, types: Iterable[str]) -> dict[str, str]:
        """The annotations of a new node claim with these instance types as options."""
        pairs = [(pool, name) for name in types]
        found = {}
        if any(p in self.priced for p in pairs):
            found[PRICE_OVERLAY_APPLIED] = "true"
        if any(p in self.enlarged for p in pairs):
            found[CAPACITY_OVERLAY_APPLIED] = "true"
        return found


@dataclass(slots=True)
class _Update:
    """What the overlays so far change of one instance type, and the weight of the last."""

    prices: dict[Labels, tuple[str, int]] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)
    last_weight: int = 0
    last_resources: frozenset[str] = frozenset()


_Selected = list[tuple[_Update, list[Offering]]]


def overlaid(
    pools: Sequence[OverlaidPool], overlays: Iterable[NodeOverlay], rules: LabelRules
) -> OverlayResult:
    """Apply overlays to the instance types of all pools."""
    algebra = RequirementAlgebra(rules.well_known)
    updates = {(p.name, t.name): _Update() for p in pools for t in p.instance_types}
    refused: dict[str, OverlayRefusal] = {}
    for overlay in by_weight(overlays):
        if text := overlay_refusal(overlay, rules):
            refused[overlay.metadata.name] = OverlayRefusal(RUNTIME_VALIDATION, text)
            continue
        selected = _selected(algebra, pools, overlay, updates)
        if any(_conflicts(overlay, update, offerings) for update, offerings in selected):
            refused[overlay.metadata.name] = OverlayRefusal(CONFLICT, _CONFLICT_TEXT)
            continue
        for update, offerings in selected:
            _store(overlay, update, offerings)
    return _result(pools, updates, refused)


def by_weight(overlays: Iterable[NodeOverlay]) -> list[NodeOverlay]:
    """Overlays in the order in which they are applied."""
    by_name = sorted(overlays, key=lambda o: o.metadata.name, reverse=True)
    return sorted(by_name, key=lambda o: -(o.spec.weight or 0))


def overlay_refusal(overlay: NodeOverlay, rules: LabelRules) -> str:
    """Why an overlay is left out; empty if it is valid."""
    return "; ".join((*_requirement_refusals(overlay, rules), *_capacity_refusals(overlay)))


def _requirement_refusals(overlay: NodeOverlay, rules: LabelRules) -> Iterator[str]:
    for each in overlay.spec.requirements:
        expression = {"key": each.key, "operator": each.operator, "values": each.values}
        if text := "; ".join(expression_refusals(expression, rules)):
            yield f"invalid value: {text} in requirements, restricted"
        if each.operator == "NotIn" and not each.values:
            yield f"key {each.key} with operator NotIn must have a value defined"


def _capacity_refusals(overlay: NodeOverlay) -> Iterator[str]:
    for name, amount in sorted(overlay.spec.capacity.items()):
        if name in _OWN_RESOURCES:
            yield f"invalid capacity: {name} in resource, restricted"
        try:
            offered({name: amount})
        except MoxwellError as error:
            yield f"invalid capacity: {name}: {error}"


def _selected(
    algebra: RequirementAlgebra,
    pools: Sequence[OverlaidPool],
    overlay: NodeOverlay,
    updates: Mapping[tuple[str, str], _Update],
) -> _Selected:
    """The instance types of which the overlay selects at least one offering."""
    wanted = algebra.of(
        requirement(normalized(r.key), r.operator, r.values) for r in overlay.spec.requirements
    )
    found: _Selected = []
    for pool in pools:
        labels = algebra.of_labels({**dict(pool.labels), NODE_POOL: pool.name}.items())
        for each in pool.instance_types:
            own = algebra.intersection(labels, algebra.of(each.requirements))
            if algebra.mismatches(own, wanted, lenient=False):
                continue
            if offerings := [o for o in each.offerings if _is_selected(algebra, wanted, o)]:
                found.append((updates[pool.name, each.name], offerings))
    return found


def _is_selected(algebra: RequirementAlgebra, wanted: RequirementSet, offering: Offering) -> bool:
    return not algebra.mismatches(wanted, algebra.of_labels(offering.labels), lenient=True)


def _change(overlay: NodeOverlay) -> str | None:
    spec = overlay.spec
    return spec.price_adjustment if spec.price is None else spec.price


def _conflicts(overlay: NodeOverlay, update: _Update, offerings: Iterable[Offering]) -> bool:
    weight = overlay.spec.weight or 0
    if _change(overlay) is not None and any(
        update.prices.get(o.labels, ("", None))[1] == weight for o in offerings
    ):
        return True
    same = update.last_weight == weight
    return same and not update.last_resources.isdisjoint(overlay.spec.capacity)


def _store(overlay: NodeOverlay, update: _Update, offerings: Iterable[Offering]) -> None:
    change, weight = _change(overlay), overlay.spec.weight or 0
    if change is not None:
        for each in offerings:
            first = update.prices.get(each.labels, (change, weight))[0]
            update.prices[each.labels] = (first, weight)
    if overlay.spec.capacity:
        update.capacity = offered(overlay.spec.capacity) | update.capacity
        update.last_weight, update.last_resources = weight, frozenset(overlay.spec.capacity)


def _result(
    pools: Sequence[OverlaidPool],
    updates: Mapping[tuple[str, str], _Update],
    refused: Mapping[str, OverlayRefusal],
) -> OverlayResult:
    return OverlayResult(
        {
            p.name: tuple(_applied(t, updates[p.name, t.name]) for t in p.instance_types)
            for p in pools
        },
        refused,
        frozenset(key for key, update in updates.items() if update.prices),
        frozenset(key for key, update in updates.items() if update.capacity),
    )


def _applied(each: InstanceType, update: _Update) -> InstanceType:
    if not update.prices and not update.capacity:
        return each
    offerings = tuple(
        replace(o, price=adjusted_price(o.price, update.prices[o.labels][0]))
        if o.labels in update.prices
        else o
        for o in each.offerings
    )
    return replace(each, offerings=offerings, capacity={**each.capacity, **update.capacity})


def adjusted_price(price: float, change: str) -> float:
    """A price changed by ``+0.5``, ``-0.5``, ``+10%`` or ``-10%``, or the price that is given."""
    if not change.startswith(("+", "-")):
        return float(change)
    if change.endswith("%"):
        return max(0.0, price * (1 + float(change.removesuffix("%")) / 100))
    return max(0.0, price + float(change))
