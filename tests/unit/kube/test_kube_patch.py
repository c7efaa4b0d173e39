"""Patches: the difference of two typed objects never touches what the type does not know."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import field

from moxwell.api import json_merge, kinds
from moxwell.api.kinds import Object, kind
from moxwell.api.meta import ObjectMeta, Value
from moxwell.kube import patch


class Spec(Value, frozen=True, kw_only=True):
    size: int = 1
    color: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


@kind(group="toys.example", version="v1", plural="toys")
class Toy(Object, frozen=True, kw_only=True):
    spec: Spec = field(default_factory=Spec)


WORDS = st.text("abc", min_size=1, max_size=2)
SPECS = st.builds(
    Spec,
    size=st.integers(0, 2000),
    color=st.none() | WORDS,
    labels=st.dictionaries(WORDS, WORDS, max_size=3),
)
TOYS = st.builds(
    Toy,
    metadata=st.builds(
        ObjectMeta, labels=st.dictionaries(WORDS, WORDS), finalizers=st.lists(WORDS).map(tuple)
    ),
    spec=SPECS,
)
UNKNOWN = st.dictionaries(st.sampled_from(["x1", "x2"]), st.integers() | st.lists(st.booleans()))


@settings(max_examples=60, deadline=None)
@given(TOYS, TOYS, UNKNOWN)
def test_a_patch_makes_the_new_and_keeps_the_unknown(
    old: Toy, new: Toy, unknown: dict[str, object]
) -> None:
    stored = kinds.as_dict(old)
    stored["spec"] |= unknown
    stored["metadata"] |= {"managedFields": [{}]}
    after = json_merge.apply_merge_patch(stored, patch.changes(old, new))
    assert msgspec.convert(after, Toy) == new
    assert {k: after["spec"][k] for k in unknown} == unknown
    assert after["metadata"]["managedFields"] == [{}]


@settings(max_examples=30, deadline=None)
@given(TOYS)
def test_an_unchanged_object_needs_no_patch(toy: Toy) -> None:
    again = msgspec.json.decode(kinds.encode(toy), type=Toy)
    assert patch.changes(toy, toy) == {}
    assert (
        msgspec.convert(
            json_merge.apply_merge_patch(kinds.as_dict(toy), patch.changes(toy, again)), Toy
        )
        == toy
    )


@pytest.mark.parametrize(
    "parts, text",
    [
        pytest.param(("metadata", "labels", "a/b"), "/metadata/labels/a~1b", id="a slash"),
        pytest.param(("x~y", 0), "/x~0y/0", id="a tilde and a number"),
        pytest.param((), "", id="the whole"),
    ],
)
def test_pointers_escape(parts: tuple[str | int, ...], text: str) -> None:
    assert patch.pointer(*parts) == text


def test_operations_are_what_the_rfc_says() -> None:
    ops = [patch.expect("/a", 1), patch.put("/a", 2), patch.add("/b/-", 3), patch.remove("/c")]
    assert patch.encode(ops) == (
        b'[{"op":"test","path":"/a","value":1},{"op":"replace","path":"/a","value":2},'
        b'{"op":"add","path":"/b/-","value":3},{"op":"remove","path":"/c"}]'
    )
