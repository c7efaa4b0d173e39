"""Quantities, selectors and times: tables of Kubernetes' results, and properties."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.api import quantity, selectors
from moxwell.api.meta import micro_time, parse_time
from moxwell.api.quantity import InvalidQuantity, Quantity
from moxwell.api.selectors import InvalidSelector, LabelSelector, LabelSelectorRequirement

NOW = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
QUICK = settings(max_examples=60, deadline=None)


# What resource.MustParse(text).String() gives in Go.
@pytest.mark.parametrize(
    "text, canonical",
    [
        ("0", "0"),
        ("0Ki", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("-1", "-1"),
        ("100m", "100m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("5.", "5"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("1500k", "1500k"),
        ("1000k", "1M"),
        ("1024", "1024"),
        ("1Ki", "1Ki"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1.1Ki", "1126400m"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("12e6", "12e6"),
        ("1200e4", "12e6"),
        ("10e-1", "1"),
        ("1E", "1E"),
        ("1Ei", "1Ei"),
        ("100n", "100n"),
        ("1u", "1u"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("123456789.123456789123", "123456789123456790n"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775807"),
        ("10Ei", "9223372036854775807"),
    ],
)
def test_a_quantity_is_written_as_kubernetes_writes_it(text: str, canonical: str) -> None:
    assert str(Quantity.parse(text)) == canonical


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1gi", "1K", "1e", "1.2.3", "--1", "1e1Ki", "٣"]
)
def test_an_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(InvalidQuantity, match="write it like"):
        Quantity.parse(text)


@QUICK
@given(st.integers(-(10**15), 10**15), st.sampled_from(["", "m", "k", "Ki", "Mi", "Gi", "n", "e3"]))
def test_a_quantity_round_trips(number: int, suffix: str) -> None:
    one = Quantity.parse(f"{number}{suffix}")
    assert Quantity.parse(str(one)) == one
    assert str(Quantity.parse(str(one))) == str(one)


@QUICK
@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_sums_are_exact_and_ordered(a: int, b: int) -> None:
    one, other = Quantity.parse(f"{a}m"), Quantity.parse(f"{b}m")
    assert (one + other).milli == a + b
    assert (one - other).milli == a - b
    assert (one < other) == (a < b)


def test_a_sum_keeps_the_format_of_its_first_operand() -> None:
    assert str(Quantity.parse("1Gi") + Quantity.parse("1024")) == "1048577Ki"
    assert str(Quantity.parse("0") + Quantity.parse("1Gi")) == "1Gi"


def test_whole_units_round_away_from_zero() -> None:
    assert [Quantity.parse(t).value for t in ("1m", "-1m", "1500m", "2")] == [1, -1, 2, 2]
    assert quantity.cores("1500m") == 1.5
    assert quantity.mebibytes("1.5Gi") == 1536
    assert quantity.mebibytes("1") == 1


LABELS = {"app": "web", "tier": "front", "n": "5", "empty": ""}


@pytest.mark.parametrize(
    "text, matches",
    [
        pytest.param("", True, id="nothing asked"),
        pytest.param("app=web", True, id="equal"),
        pytest.param("app==web,tier=front", True, id="both"),
        pytest.param("app=db", False, id="other value"),
        pytest.param("app!=db", True, id="not equal"),
        pytest.param("absent!=x", True, id="not equal matches the absent"),
        pytest.param("app in (web, db)", True, id="in"),
        pytest.param("app notin (web,db)", False, id="notin"),
        pytest.param("absent notin (x)", True, id="notin matches the absent"),
        pytest.param("app", True, id="exists"),
        pytest.param("absent", False, id="does not exist"),
        pytest.param("!absent", True, id="wanted absent"),
        pytest.param("! app", False, id="wanted absent, but there"),
        pytest.param("n>4,n<6", True, id="between"),
        pytest.param("n>5", False, id="not greater"),
        pytest.param("app>5", False, id="no number"),
        pytest.param("empty=", True, id="equal to nothing"),
        pytest.param("example.com/x in (),app", False, id="in of the empty value"),
    ],
)
def test_label_selectors(text: str, matches: bool) -> None:
    found = selectors.parse_labels(text)
    assert found.matches(LABELS) is matches
    assert selectors.parse_labels(str(found)).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text",
    ["a=b,", ",a", "a=b=c", "a in x", "a in (", "=b", "a b", "a>x", "-a=b", "a=b c", "x/y/z=1"],
)
def test_invalid_label_selectors_are_rejected(text: str) -> None:
    with pytest.raises(InvalidSelector):
        selectors.parse_labels(text)


def test_an_absent_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert not selectors.from_object(None).matches({})
    assert selectors.from_object(LabelSelector()).matches({})


def test_a_selector_object_requires_all_its_parts() -> None:
    expression = LabelSelectorRequirement(key="tier", operator="NotIn", values=("back",))
    both = LabelSelector(match_labels={"app": "web"}, match_expressions=(expression,))
    assert selectors.from_object(both).matches(LABELS)
    assert str(selectors.from_object(both)) == "app=web,tier!=back"


@pytest.mark.parametrize("operator, values", [("In", ()), ("Exists", ("x",))])
def test_a_selector_object_with_invalid_values_is_rejected(
    operator: str, values: tuple[str, ...]
) -> None:
    one = LabelSelectorRequirement(key="a", operator=operator, values=values)  # type: ignore[arg-type]
    with pytest.raises(InvalidSelector):
        selectors.from_object(LabelSelector(match_expressions=(one,)))


KEYS = st.from_regex(r"[a-z]{1,4}", fullmatch=True)


@QUICK
@given(st.dictionaries(KEYS, KEYS, max_size=4))
def test_labels_match_the_selector_made_from_them(labels: dict[str, str]) -> None:
    assert selectors.from_labels(labels).matches(labels)
    assert selectors.parse_labels(str(selectors.from_labels(labels))).matches(labels)


@pytest.mark.parametrize(
    "text, matches",
    [
        pytest.param("metadata.name=x", True, id="equal"),
        pytest.param("metadata.name!=x", False, id="not equal"),
        pytest.param("status.phase=", True, id="absent reads as empty"),
        pytest.param(r"metadata.name==x,odd=a\,b\=c\\", True, id="escapes"),
    ],
)
def test_field_selectors(text: str, matches: bool) -> None:
    fields = {"metadata.name": "x", "odd": "a,b=c\\"}
    found = selectors.parse_fields(text)
    assert found.matches(lambda path: fields.get(path, "")) is matches
    assert selectors.parse_fields(str(found)) == found


@pytest.mark.parametrize("text", ["a", "a=b=c", r"a=\x", "=x"])
def test_invalid_field_selectors_are_rejected(text: str) -> None:
    with pytest.raises(InvalidSelector):
        selectors.parse_fields(text)


def test_micro_times_always_have_six_digits() -> None:
    assert micro_time(NOW.replace(microsecond=0)) == "2026-05-01T12:00:00.000000Z"
    assert parse_time(micro_time(NOW)) == NOW
