"""NodeOverlays: which offerings they select, weights, conflicts, and the changed prices."""

from typing import Any

import msgspec
import pytest

from moxwell.api.karpenter.capacity import NodeOverlay
from moxwell.scheduling.packing.overlays import (
    CAPACITY_OVERLAY_APPLIED,
    PRICE_OVERLAY_APPLIED,
    OverlaidPool,
    OverlayResult,
    adjusted_price,
    overlaid,
)
from moxwell.scheduling.well_known_labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    ZONE,
    LabelRules,
)
from unit.scheduling.packing_scenes import instance_type

POOLS = (
    OverlaidPool("one", (("team", "a"),), (instance_type(2), instance_type(4))),
    OverlaidPool("two", (), (instance_type(2),)),
)


def overlay(name: str, *requirements: tuple[str, str, list[str]], **spec: Any) -> NodeOverlay:
    wanted = [{"key": k, "operator": o, "values": v} for k, o, v in requirements]
    manifest = {"metadata": {"name": name}, "spec": {"requirements": wanted, **spec}}
    return msgspec.convert(manifest, NodeOverlay)


def prices(result: OverlayResult) -> dict[str, tuple[float, ...]]:
    """The prices in zones a, b, c, by pool and type."""
    return {
        f"{pool}/{t.name}": tuple(round(o.price, 6) for o in t.offerings)
        for pool, types in result.instance_types.items()
        for t in types
    }


def apply(*overlays: NodeOverlay) -> OverlayResult:
    return overlaid(POOLS, overlays, LabelRules())


UNCHANGED = {"one/t2": (0.2, 0.2, 0.2), "one/t4": (0.4, 0.4, 0.4), "two/t2": (0.2, 0.2, 0.2)}


@pytest.mark.parametrize(
    ("change", "price"),
    [
        ("0.5", 0.5),
        ("+0.5", 2.5),
        ("-0.5", 1.5),
        ("-3", 0.0),
        ("+10%", 2.2),
        ("-25%", 1.5),
        ("-100%", 0.0),
    ],
)
def test_a_price_is_replaced_or_adjusted_and_never_negative(change: str, price: float) -> None:
    assert adjusted_price(2.0, change) == pytest.approx(price)


@pytest.mark.parametrize(
    ("requirements", "changed"),
    [
        pytest.param(
            [(ZONE, "In", ["a"])],
            {"one/t2": (9, 0.2, 0.2), "one/t4": (9, 0.4, 0.4), "two/t2": (9, 0.2, 0.2)},
            id="one zone",
        ),
        pytest.param([(NODE_POOL, "In", ["two"])], {"two/t2": (9, 9, 9)}, id="one pool"),
        pytest.param(
            [("team", "In", ["a"])], {"one/t2": (9, 9, 9), "one/t4": (9, 9, 9)}, id="label"
        ),
        pytest.param([("team", "DoesNotExist", [])], {"two/t2": (9, 9, 9)}, id="absent label"),
        pytest.param([("team", "NotIn", ["a"])], {"two/t2": (9, 9, 9)}, id="other label value"),
        pytest.param([("other", "In", ["a"])], {}, id="a label that no pool has"),
        pytest.param([(CAPACITY_TYPE, "In", ["spot"])], {}, id="no such offering"),
        pytest.param(
            [(INSTANCE_TYPE, "In", ["t4"]), (ZONE, "NotIn", ["a"])],
            {"one/t4": (0.4, 9, 9)},
            id="type and zones",
        ),
    ],
)
def test_an_overlay_changes_the_offerings_that_it_selects(
    requirements: list[tuple[str, str, list[str]]], changed: dict[str, tuple[float, ...]]
) -> None:
    assert prices(apply(overlay("x", *requirements, price="9"))) == UNCHANGED | changed


def test_the_heaviest_overlay_sets_the_price_and_lighter_ones_the_rest() -> None:
    found = apply(
        overlay("light", (INSTANCE_TYPE, "In", ["t4"]), price="1"),
        overlay("heavy", (INSTANCE_TYPE, "In", ["t4"]), (ZONE, "In", ["b"]), price="7", weight=10),
    )
    assert prices(found)["one/t4"] == (1, 7, 1)
    assert found.refused == {}


def test_of_equal_weight_the_later_name_wins_and_the_other_has_no_effect_at_all() -> None:
    found = apply(
        overlay("a", (ZONE, "In", ["a", "b"]), price="1"),
        overlay("b", (ZONE, "In", ["b", "c"]), (INSTANCE_TYPE, "In", ["t4"]), price="2"),
    )
    assert prices(found) == UNCHANGED | {"one/t4": (0.4, 2, 2)}
    assert {n: (r.reason, r.message) for n, r in found.refused.items()} == {
        "a": ("Conflict", "conflict with another overlay")
    }


def test_price_and_capacity_of_equal_weight_do_not_conflict() -> None:
    selects = (INSTANCE_TYPE, "In", ["t4"])
    found = apply(
        overlay("a", selects, capacity={"example.com/gpu": 2}),
        overlay("b", selects, capacity={"example.com/nic": "1"}),
        overlay("c", selects, priceAdjustment="+50%"),
    )
    assert found.refused == {}
    larger = found.instance_types["one"][1]
    assert (larger.capacity["example.com/gpu"], larger.capacity["example.com/nic"]) == (2000, 1000)
    assert larger.allocatable["example.com/gpu"] == 2000
    assert prices(found)["one/t4"] == (0.6, 0.6, 0.6)


def test_a_resource_of_a_heavier_overlay_is_kept() -> None:
    selects = (INSTANCE_TYPE, "In", ["t4"])
    found = apply(
        overlay("light", selects, capacity={"example.com/gpu": 1, "example.com/nic": 1}),
        overlay("heavy", selects, capacity={"example.com/gpu": 8}, weight=2),
        overlay("same", selects, capacity={"example.com/gpu": 4}, weight=2),
    )
    capacity = found.instance_types["one"][1].capacity
    assert capacity["example.com/gpu"] == 4000  # "same" is the later name
    assert capacity["example.com/nic"] == 1000
    assert set(found.refused) == {"heavy"}


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (
            overlay("x", ("kubernetes.io/hostname", "In", ["n"]), price="1"),
            "in requirements, restricted",
        ),
        (overlay("x", ("team", "In", []), price="1"), "must have a value defined"),
        (overlay("x", ("team", "NotIn", []), price="1"), "operator NotIn must have a value"),
        (overlay("x", capacity={"cpu": 1}), "invalid capacity: cpu in resource, restricted"),
        (overlay("x", capacity={"example.com/gpu": "many"}), "'many' is not a quantity"),
    ],
)
def test_an_overlay_that_cannot_work_is_left_out(broken: NodeOverlay, text: str) -> None:
    found = apply(broken, overlay("y", (INSTANCE_TYPE, "In", ["t4"]), price="3"))
    assert found.refused["x"].reason == "RuntimeValidation"
    assert text in found.refused["x"].message
    assert prices(found) == UNCHANGED | {"one/t4": (3, 3, 3)}


def test_claims_are_annotated_with_what_was_changed() -> None:
    found = apply(
        overlay("p", (INSTANCE_TYPE, "In", ["t4"]), price="3"),
        overlay("c", (NODE_POOL, "In", ["two"]), capacity={"example.com/gpu": 1}),
    )
    assert found.annotations("one", ["t2", "t4"]) == {PRICE_OVERLAY_APPLIED: "true"}
    assert found.annotations("one", ["t2"]) == {}
    assert found.annotations("two", ["t2"]) == {CAPACITY_OVERLAY_APPLIED: "true"}
