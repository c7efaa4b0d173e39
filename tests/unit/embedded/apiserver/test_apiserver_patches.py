"""Tables of merge, JSON and strategic merge patches."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.embedded.apiserver import jsonpatch, merge_schema, strategic_merge
from moxwell.embedded.apiserver.builtin.model import BuiltinTypeData, definition

DEPLOYMENT = definition("k8s.io/api/apps/v1.Deployment")
TABLES = BuiltinTypeData()
MERGE_SCHEMA = merge_schema.from_schema(TABLES.schemas[DEPLOYMENT], TABLES.schemas)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner),
    max_leaves=8,
)
_objects = st.dictionaries(st.sampled_from("xyz"), _json)


@pytest.mark.parametrize(
    "target, patch, result",
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replaces"),
        pytest.param({"a": "b"}, {"a": None}, {}, id="null removes"),
        pytest.param({"a": ["b"]}, {"a": "c"}, {"a": "c"}, id="another type"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="deep"),
        pytest.param({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}, id="lists are whole"),
        pytest.param({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}, id="nulls in new maps"),
        pytest.param(["a"], ["c"], ["c"], id="not objects at all"),
    ],
)
def test_merge_patch(target: Any, patch: Any, result: Any) -> None:
    assert jsonpatch.apply_merge_patch(target, patch) == result


@settings(deadline=None)
@given(_objects, _objects)
def test_merging_twice_is_merging_once(target: Any, patch: Any) -> None:
    once = jsonpatch.apply_merge_patch(_copy(target), patch)
    assert jsonpatch.apply_merge_patch(_copy(once), patch) == once


def _copy(value: Any) -> Any:
    import copy

    return copy.deepcopy(value)


@pytest.mark.parametrize(
    "document, patch, result",
    [
        pytest.param(
            {"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}, id="add"
        ),
        pytest.param(
            {"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}, id="end"
        ),
        pytest.param(
            {"a": [1]}, [{"op": "add", "path": "/a/0", "value": 2}], {"a": [2, 1]}, id="insert"
        ),
        pytest.param({"a/b": 1}, [{"op": "remove", "path": "/a~1b"}], {}, id="an escaped slash"),
        pytest.param({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}, id="move"),
        pytest.param(
            {"a": [1]},
            [{"op": "copy", "from": "/a", "path": "/b"}],
            {"a": [1], "b": [1]},
            id="copy",
        ),
        pytest.param({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}, id="test"),
    ],
)
def test_json_patch(document: Any, patch: Any, result: Any) -> None:
    assert jsonpatch.apply_json_patch(document, patch) == result


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param([{"op": "remove", "path": "/x"}], id="remove nothing"),
        pytest.param([{"op": "add", "path": "/x/y", "value": 1}], id="add below nothing"),
        pytest.param([{"op": "test", "path": "/a", "value": 2}], id="a test that fails"),
        pytest.param([{"op": "odd", "path": "/a"}], id="an unknown operation"),
        pytest.param([{"op": "add", "path": "/a/7", "value": 1}], id="beyond the end"),
        pytest.param({"op": "add"}, id="not a list"),
    ],
)
def test_json_patch_rejects(patch: Any) -> None:
    with pytest.raises(jsonpatch.PatchFailed):
        jsonpatch.apply_json_patch({"a": [1]}, patch)


def _pods(*containers: Any) -> Any:
    return {"spec": {"template": {"spec": {"containers": list(containers)}}}}


@pytest.mark.parametrize(
    "live, patch, result",
    [
        pytest.param(
            _pods({"name": "a", "image": "1"}, {"name": "b"}),
            _pods({"name": "a", "image": "2"}),
            _pods({"name": "a", "image": "2"}, {"name": "b"}),
            id="a list item by its key",
        ),
        pytest.param(
            _pods({"name": "a"}, {"name": "b"}),
            _pods({"name": "a", "$patch": "delete"}),
            _pods({"name": "b"}),
            id="a deleted item",
        ),
        pytest.param(
            _pods({"name": "a"}),
            {
                "spec": {
                    "template": {"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}
                }
            },
            _pods({"name": "z"}),
            id="a replaced list",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
            {"metadata": {"finalizers": ["b"]}},
            id="deleted from a list of words",
        ),
        pytest.param(
            {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}},
            {"spec": {"strategy": {"type": "Recreate", "$retainKeys": ["type"]}}},
            {"spec": {"strategy": {"type": "Recreate"}}},
            id="only some keys retained",
        ),
        pytest.param(
            _pods({"name": "a"}, {"name": "b"}),
            {
                "spec": {
                    "template": {
                        "spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}
                    }
                }
            },
            _pods({"name": "b"}, {"name": "a"}),
            id="an order",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": "1"}}},
            {"metadata": {"labels": {"$patch": "replace", "b": "2"}}},
            {"metadata": {"labels": {"b": "2"}}},
            id="a replaced map",
        ),
    ],
)
def test_strategic_merge(live: Any, patch: Any, result: Any) -> None:
    assert strategic_merge.merge(live, patch, MERGE_SCHEMA) == result


def test_a_list_item_without_its_key_is_rejected() -> None:
    with pytest.raises(strategic_merge.PatchFailed, match="merge key: name"):
        strategic_merge.merge(_pods({"name": "a"}), _pods({"image": "x"}), MERGE_SCHEMA)
