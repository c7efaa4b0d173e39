"""
A lower bound of the price of new nodes for some pods, and the types that reach it, by HiGHS (the
extra ``solver``). Pure.

Pods of one shape are counted, not placed one by one: a column is a number of nodes of one type of
one pool with one offering, and how many pods of each shape they hold in total. Left out are spread,
affinity, limits, ``minValues``, the capacity of reservations, host ports and volumes; of
anti-affinity only that between pods of one shape on one host is kept. Leaving out constraints makes
the bound lower, never wrong. The search is bounded by a number of branches, so that the same input
gives the same bound.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from moxwell.errors import Invalid
from moxwell.scheduling.packing.pods import PodDemand, PodShape
from moxwell.scheduling.packing.resource_axis import Vector, fits, minus
from moxwell.scheduling.packing.shape_traits import ShapeTraits
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.packing.templates import ClaimTemplate
from moxwell.scheduling.packing.type_table import bits
from moxwell.scheduling.requirement_sets import RequirementSet
from moxwell.scheduling.taints import untolerated
from moxwell.scheduling.well_known_labels import HOSTNAME

if TYPE_CHECKING:
    import highspy

MOST_BRANCHES = 200
_HALF = 0.5  # of a node: HiGHS returns whole numbers with an error
_FEASIBLE = 2  # HiGHS: the search found a solution
Kind = tuple[int, int]  # number of the claim template, number of the type in its table


class LowerBoundUnavailable(Invalid):
    """The extra ``solver`` is not installed."""

    reason = "NotInstalled"


@dataclass(frozen=True, slots=True)
class RelaxedPacking:
    """
    A packing that leaves out constraints: the least price, and the types of its new nodes.

    ``wanted`` maps claim templates, by number, to bit sets of types; it is empty if the search
    ended without a packing.
    """

    bound: float
    wanted: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Column:
    """Nodes of one kind: what one costs and holds, and the shapes that may be on it."""

    price: float
    room: Vector
    shapes: frozenset[int]
    most: int | None = None  # existing nodes are there once
    kinds: frozenset[Kind] = frozenset()


@dataclass
class _Model:
    """Rows and columns as HiGHS takes them."""

    highs: "highspy.Highs"
    infinity: float
    demand: dict[int, list[int]] = field(default_factory=dict)

    def variable(self, price: float, upper: float) -> int:
        number = int(self.highs.getNumCol())
        self.highs.addCol(price, 0.0, upper, 0, np.array([], np.int32), np.array([]))
        return number

    def row(self, lower: float, upper: float, terms: Sequence[tuple[int, float]]) -> None:
        columns = np.array([c for c, _ in terms], np.int32)
        values = np.array([v for _, v in terms], np.float64)
        self.highs.addRow(lower, upper, len(terms), columns, values)


def lower_bound(solver: Solver, pods: Sequence[PodDemand]) -> float:
    """The least that new nodes for these pods can cost; existing nodes cost nothing."""
    found = relaxed_packing(solver, pods)
    assert found is not None
    return found.bound


def relaxed_packing(
    solver: Solver, pods: Sequence[PodDemand], most_variables: float = inf
) -> RelaxedPacking | None:
    """The packing of the relaxed problem; None if it has more variables than are allowed."""
    counts = Counter(solver.shapes.of(p.shape).number for p in pods)
    shapes = {t.number: t for p in pods if (t := solver.shapes.of(p.shape))}
    columns = _merged(_columns(solver, shapes), most_variables)
    return None if columns is None else _solved(_empty_model(), columns, shapes, counts)


def _variants(solver: Solver, traits: ShapeTraits) -> Iterator[ShapeTraits]:
    """A shape, and the shapes that follow when soft constraints are dropped."""
    found: PodShape | None = traits.shape
    while found is not None:
        each = solver.shapes.of(found)
        yield each
        found = solver.shapes.relaxed(each)


def _columns(solver: Solver, shapes: dict[int, ShapeTraits]) -> Iterator[_Column]:
    for base in solver.nodes.bases:
        allowed = frozenset(
            number
            for number, traits in shapes.items()
            if any(
                not untolerated(base.taints, v.shape.tolerations)
                and not solver.algebra.mismatches(base.requirements, v.all[0], lenient=False)
                for v in _variants(solver, traits)
            )
        )
        yield _Column(0.0, base.remaining, allowed, most=1)
    for template in solver.templates:
        yield from _new_nodes(solver, template, shapes)


def _new_nodes(
    solver: Solver, template: ClaimTemplate, shapes: dict[int, ShapeTraits]
) -> Iterator[_Column]:
    daemons = {i: g.overhead for g in template.daemons for i in bits(g.types)}
    groups = _groups(solver, template, shapes)
    for index in bits(template.options):
        own = template.table.types[index]
        room = solver.axis.vector(own.allocatable)
        if (overhead := daemons.get(index)) is not None:
            room = minus(room, overhead)
        of_type = solver.algebra.of(own.requirements)
        for offering, labels in template.table.offerings[index]:
            if offering.available and template.table.allows(template.requirements, labels):
                found = frozenset(
                    number
                    for wanted, numbers in groups.items()
                    if _serves(solver, of_type, labels, wanted)
                    for number in numbers
                )
                kind = (template.number, index)
                yield _Column(offering.price, room, found, kinds=frozenset({kind}))


def _groups(
    solver: Solver, template: ClaimTemplate, shapes: dict[int, ShapeTraits]
) -> dict[tuple[RequirementSet, ...], list[int]]:
    """
    Shapes that the template serves, by what they want of a node.

    A shape may want one of several things: preferences are dropped if need be.
    """
    found: dict[tuple[RequirementSet, ...], list[int]] = {}
    for number, traits in shapes.items():
        wanted = tuple(
            each.all[0]
            for each in _variants(solver, traits)
            if not untolerated(template.pool.taints, each.shape.tolerations)
            and not solver.algebra.mismatches(template.requirements, each.all[0], lenient=True)
        )
        if wanted:
            found.setdefault(wanted, []).append(number)
    return found


def _serves(
    solver: Solver,
    of_type: RequirementSet,
    labels: RequirementSet,
    wanted: tuple[RequirementSet, ...],
) -> bool:
    """Whether a node of the type with the labels of an offering is one of those wanted."""
    conflicts = solver.algebra.conflicts
    return any(not conflicts(of_type, each) and not conflicts(labels, each) for each in wanted)


def _merged(columns: Iterator[_Column], most_variables: float) -> tuple[_Column, ...] | None:
    """
    Columns without those that another one replaces at no higher price.

    None as soon as the model has more variables than are allowed.
    """
    existing: list[_Column] = []
    cheapest: dict[tuple[Vector, frozenset[int]], _Column] = {}
    variables = 0
    for each in columns:
        key = (each.room, each.shapes)
        known = None if each.most is not None else cheapest.get(key)
        if known is None:
            variables += 1 + len(each.shapes)
            if variables > most_variables:
                return None
        if each.most is not None:
            existing.append(each)
        elif known is None or each.price < known.price:
            cheapest[key] = each
        elif each.price == known.price:
            cheapest[key] = replace(known, kinds=known.kinds | each.kinds)
    return (*existing, *cheapest.values())


def _solved(
    model: _Model,
    columns: Sequence[_Column],
    shapes: dict[int, ShapeTraits],
    counts: Counter[int],
) -> RelaxedPacking:
    nodes = [_add(model, each, shapes, counts) for each in columns]
    for number, count in counts.items():
        terms = [(c, 1.0) for c in model.demand.get(number, ())]
        model.row(float(count), float(count), terms)
    model.highs.run()
    info = model.highs.getInfo()
    if str(model.highs.getModelStatus()).endswith("kInfeasible"):
        return RelaxedPacking(inf)
    bound = max(0.0, float(info.mip_dual_bound))
    if info.primal_solution_status != _FEASIBLE:
        return RelaxedPacking(bound)
    values = model.highs.getSolution().col_value
    used = (each for each, node in zip(columns, nodes, strict=True) if values[node] > _HALF)
    return RelaxedPacking(bound, _wanted(k for each in used for k in each.kinds))


def _wanted(kinds: Iterable[Kind]) -> dict[int, int]:
    found: dict[int, int] = {}
    for template, index in kinds:
        found[template] = found.get(template, 0) | 1 << index
    return found


def _add(
    model: _Model, column: _Column, shapes: dict[int, ShapeTraits], counts: Counter[int]
) -> int:
    """
    One kind of nodes: the number of nodes, and how many pods of each shape they hold.

    Returns the variable that is the number of nodes.
    """
    upper = model.infinity if column.most is None else float(column.most)
    nodes = model.variable(column.price, upper)
    model.highs.changeColIntegrality(nodes, _integer())
    held: list[tuple[int, Vector]] = []
    for number in sorted(column.shapes):
        if not fits(shapes[number].requests, column.room):
            continue
        pods = model.variable(0.0, float(counts[number]))
        model.highs.changeColIntegrality(pods, _integer())
        model.demand.setdefault(number, []).append(pods)
        held.append((pods, shapes[number].requests))
        if _keeps_apart(shapes[number].shape):
            model.row(-model.infinity, 0.0, [(pods, 1.0), (nodes, -1.0)])
    for place, room in enumerate(column.room):
        terms = [(pods, float(request[place])) for pods, request in held if request[place]]
        if terms:
            model.row(-model.infinity, 0.0, [*terms, (nodes, -float(max(0, room)))])
    return nodes


def _keeps_apart(shape: PodShape) -> bool:
    """Whether two pods of the shape cannot be on one node."""
    return any(
        term.topology_key == HOSTNAME
        and term.selector is not None
        and term.namespace_selector is None
        and shape.namespace in (term.namespaces or {shape.namespace})
        and term.selector.matches(dict(shape.labels))
        for term in shape.anti_affinity
    )


def _empty_model() -> _Model:
    try:
        import highspy
    except ImportError as error:
        raise LowerBoundUnavailable(
            "the lower bound needs HiGHS: install the extra with pip install 'moxwell[solver]'"
        ) from error
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in _settings().items():
        highs.setOptionValue(name, value)
    return _Model(highs, float(highspy.kHighsInf))


def _settings() -> dict[str, Any]:
    return {"output_flag": False, "threads": 1, "random_seed": 0, "mip_max_nodes": MOST_BRANCHES}


def _integer() -> Any:
    import highspy

    return highspy.HighsVarType.kInteger
