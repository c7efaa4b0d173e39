"""The requirements algebra: laws over random requirements, and a table of Karpenter's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.scheduling.requirement_sets import RequirementAlgebra
from moxwell.scheduling.requirements import (
    InvalidRequirement,
    LabelRequirement,
    RequirementOperator,
    requirement,
)

VALUES = ["a", "b", "c", "1", "2", "3", "7", "-4", "2.5", ""]
WELL_KNOWN = frozenset({"zone"})


@st.composite
def requirements(draw: st.DrawFn, key: str = "k") -> LabelRequirement:
    operator = draw(st.sampled_from(list(RequirementOperator)))
    least = draw(st.none() | st.integers(1, 5))
    if operator in ("Gt", "Lt", "Gte", "Lte"):
        return requirement(key, operator, [str(draw(st.integers(0, 8)))], least)
    if operator in ("In", "NotIn"):
        return requirement(
            key, operator, draw(st.lists(st.sampled_from(VALUES), min_size=1)), least
        )
    return requirement(key, operator, (), least)


@given(requirements(), requirements(), st.sampled_from(VALUES))
def test_an_intersection_allows_what_both_allow(
    a: LabelRequirement, b: LabelRequirement, value: str
) -> None:
    assert a.intersection(b).has(value) == (a.has(value) and b.has(value))


@given(requirements(), requirements())
def test_intersection_commutes_and_is_idempotent(a: LabelRequirement, b: LabelRequirement) -> None:
    both = a.intersection(b)
    assert both == b.intersection(a)
    assert both.intersection(a) == both.intersection(b) == both


@given(requirements(), requirements(), requirements(), st.sampled_from(VALUES))
def test_intersection_is_associative_in_what_it_allows(
    a: LabelRequirement, b: LabelRequirement, c: LabelRequirement, value: str
) -> None:
    left, right = a.intersection(b).intersection(c), a.intersection(b.intersection(c))
    assert left.has(value) == right.has(value)
    assert left.min_values == right.min_values


@given(requirements(), requirements())
def test_requirements_intersect_if_any_value_is_left(
    a: LabelRequirement, b: LabelRequirement
) -> None:
    both = a.intersection(b)
    assert a.intersects(b) == b.intersects(a)
    assert a.intersects(b) == (both.complement or bool(both.values))
    assert a.conflicts(b) == b.conflicts(a)


@given(requirements(), requirements())
def test_interned_sets_meet_as_their_requirements_do(
    a: LabelRequirement, b: LabelRequirement
) -> None:
    algebra = RequirementAlgebra(WELL_KNOWN)
    one, two = algebra.of([a]), algebra.of([b])
    met = algebra.intersection(one, two)
    assert met.get("k") == b.intersection(a)
    assert met is algebra.of([a, b])
    assert bool(algebra.mismatches(one, two, lenient=False)) == a.conflicts(b)


@pytest.mark.parametrize(
    "operator, values, text",
    [
        ("In", ["b", "a"], "k In [a b]"),
        ("NotIn", ["a"], "k NotIn [a]"),
        ("NotIn", [], "k Exists"),
        ("Exists", [], "k Exists"),
        ("DoesNotExist", [], "k DoesNotExist"),
        ("Gt", ["3"], "k Exists >=4"),
        ("Lt", ["3"], "k Exists <=2"),
        ("Gte", ["3"], "k Exists >=3"),
        ("Lte", ["3"], "k Exists <=3"),
        ("Gt", [str(2**63 - 1)], "k DoesNotExist"),
        ("In", list("abcdefg"), "k In [a b c d e and 2 others]"),
    ],
)
def test_requirements_read_as_karpenters(operator: str, values: list[str], text: str) -> None:
    assert str(requirement("k", operator, values)) == text


@pytest.mark.parametrize(
    "a, b, left",
    [
        (("Gt", ["5"]), ("Lt", ["4"]), "k DoesNotExist"),
        (("Gt", ["5"]), ("Lt", ["9"]), "k Exists >=6 <=8"),
        (("Gt", ["5"]), ("In", ["4", "6", "x"]), "k In [6]"),
        (("NotIn", ["3", "7"]), ("Gte", ["5"]), "k NotIn [7] >=5"),
        (("In", ["a"]), ("In", ["b"]), "k DoesNotExist"),
        (("NotIn", ["a"]), ("NotIn", ["b"]), "k NotIn [a b]"),
    ],
)
def test_intersections_read_as_karpenters(
    a: tuple[str, list[str]], b: tuple[str, list[str]], left: str
) -> None:
    assert str(requirement("k", *a).intersection(requirement("k", *b))) == left


@pytest.mark.parametrize(
    "operator, values", [("Near", ["a"]), ("Gt", []), ("Gt", ["x"]), ("Lt", ["1", "2"])]
)
def test_a_malformed_requirement_is_refused(operator: str, values: list[str]) -> None:
    with pytest.raises(InvalidRequirement):
        requirement("k", operator, values)


@pytest.mark.parametrize(
    "existing, incoming, strict, lenient",
    [
        (None, ("zone", "In"), 'label "zone" does not have known values', ""),
        (None, ("zonal", "In"), 'label "zonal" does not have known values', None),
        (None, ("zone", "NotIn"), "", ""),
        (("zone", "NotIn"), ("zone", "DoesNotExist"), "", ""),
        (("zone", "In"), ("zone", "DoesNotExist"),
         "key zone, zone DoesNotExist not in zone In [a]", None),
    ],
)  # fmt: skip
def test_a_node_serves_a_pod_if_its_labels_are_known(
    existing: tuple[str, str] | None, incoming: tuple[str, str], strict: str, lenient: str | None
) -> None:
    def of(pair: tuple[str, str]) -> LabelRequirement:
        return requirement(*pair, ["a"] if pair[1].endswith("In") else [])

    algebra = RequirementAlgebra(WELL_KNOWN)
    node = algebra.of([of(existing)] if existing else [])
    pod = algebra.of([of(incoming)])
    assert "; ".join(map(str, algebra.mismatches(node, pod, lenient=False))) == strict
    expected = strict if lenient is None else lenient
    assert "; ".join(map(str, algebra.mismatches(node, pod, lenient=True))) == expected
