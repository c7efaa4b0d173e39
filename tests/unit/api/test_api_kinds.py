"""All registered kinds: encoding, decoding and schema agree."""

from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moxwell.api import json_merge, kinds, registry, schema
from moxwell.api.core import resources
from moxwell.api.kinds import Object, Resource, owner_reference
from moxwell.api.meta import ObjectMeta
from support.objects import objects

KINDS = [k for k in registry.KINDS if not k.resource.group.startswith("infrastructure")]
QUICK = settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def named(kind: type[Object]) -> str:
    return f"{kind.resource.kind} {kind.resource.version}"


@pytest.mark.parametrize("kind", KINDS, ids=named)
@QUICK
@given(data=st.data())
def test_an_object_round_trips(kind: type[Object], data: st.DataObject) -> None:
    tree = data.draw(objects(kind))
    read = msgspec.convert(tree, kind)
    again = msgspec.json.decode(kinds.encode(read), type=kind)
    assert again == read
    assert kinds.as_dict(again)["kind"] == kind.resource.kind


@pytest.mark.parametrize("kind", [k for k in KINDS if not k.declared.builtin], ids=named)
@QUICK
@given(data=st.data())
def test_encoded_objects_match_the_crd_schema(kind: type[Object], data: st.DataObject) -> None:
    written = kinds.as_dict(msgspec.convert(data.draw(objects(kind)), kind))
    jsonschema_rs.validate(_plain(schema.of_kind(kind)), written)


def _plain(node: Any) -> Any:
    """Remove the Kubernetes extensions from a schema."""
    if isinstance(node, dict):
        known = {k: v for k, v in node.items() if not k.startswith("x-") and k != "format"}
        return {k: _plain(v) for k, v in known.items()}
    return [_plain(item) for item in node] if isinstance(node, list) else node


def test_kind_and_version_are_encoded_first_and_are_no_fields() -> None:
    raw = kinds.encode(registry.BUILTIN[0](metadata=ObjectMeta(name="x")))
    assert (
        raw
        == b'{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"},"spec":{},"status":{}}'
    )


def test_no_kind_is_declared_twice() -> None:
    places = [(k.resource.group_resource, k.resource.version) for k in registry.KINDS]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    "resource, args, path",
    [
        pytest.param(
            Resource("", "v1", "pods", "Pod"), (), "/api/v1/pods", id="all of a core kind"
        ),
        pytest.param(
            Resource("apps", "v1", "deployments", "Deployment"),
            ("n", "x", "scale"),
            "/apis/apps/v1/namespaces/n/deployments/x/scale",
            id="a subresource",
        ),
        pytest.param(
            Resource("", "v1", "nodes", "Node", False),
            ("ignored", "x"),
            "/api/v1/nodes/x",
            id="what lives in no namespace",
        ),
    ],
)
def test_paths(resource: Resource, args: tuple[str, ...], path: str) -> None:
    assert resource.path(*args) == path


def test_an_owner_reference_blocks_and_controls() -> None:
    owner = registry.BUILTIN[0](metadata=ObjectMeta(name="x", uid="u"))
    reference = owner_reference(owner)
    meta = ObjectMeta(owner_references=(owner_reference(owner, controller=False), reference))
    assert meta.controller == reference
    assert (reference.api_version, reference.group, reference.uid) == ("v1", "", "u")


def test_a_secret_does_not_show_its_data() -> None:
    secret = msgspec.convert(
        {"metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="}}, resources.Secret
    )
    assert secret.read("password") == "hunter2"
    assert secret.read("absent") is None
    assert "aHVudGVyMg" not in repr(secret) + str(secret) + str(secret.__rich_repr__())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner),
    max_leaves=8,
)
TREES = st.dictionaries(st.sampled_from("abcd"), JSON).map(json_merge.without_nulls)


@settings(max_examples=40, deadline=None)
@given(TREES, TREES)
def test_a_merge_diff_turns_old_into_new(old: json_merge.Tree, new: json_merge.Tree) -> None:
    assert json_merge.json_equal(
        json_merge.apply_merge_patch(old, json_merge.merge_diff(old, new)), new
    )


@settings(max_examples=40, deadline=None)
@given(TREES)
def test_no_difference_is_an_empty_patch(tree: json_merge.Tree) -> None:
    assert json_merge.merge_diff(tree, tree) == {}


@settings(max_examples=40, deadline=None)
@given(TREES, TREES)
def test_three_way_merge_without_a_change_keeps_ours(
    ours: json_merge.Tree, base: json_merge.Tree
) -> None:
    assert json_merge.three_way_merge(base, ours, base) == ours


@settings(max_examples=40, deadline=None)
@given(TREES, TREES)
def test_three_way_merge_of_equal_base_and_ours_gives_theirs(
    old: json_merge.Tree, new: json_merge.Tree
) -> None:
    assert json_merge.json_equal(json_merge.three_way_merge(old, old, new), new)


def test_true_is_not_one() -> None:
    assert json_merge.merge_diff({"a": 1}, {"a": True}) == {"a": True}


def test_three_way_merge_matches_list_elements_by_name() -> None:
    ours = {"nics": [{"name": "b", "hidden": 1}, {"name": "a", "hidden": 2}]}
    base = {"nics": [{"name": "b"}, {"name": "a"}]}
    theirs = {"nics": [{"name": "a", "mtu": 9}, {"name": "c"}]}
    assert json_merge.three_way_merge(base, ours, theirs) == {
        "nics": [{"name": "a", "hidden": 2, "mtu": 9}, {"name": "c"}]
    }
