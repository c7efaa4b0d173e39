"""What a server-side apply would change, predicted from managed fields."""

from typing import Any

import pytest

from moxwell.controllers.tenancy.apply_prediction import (
    is_owner,
    owns_field,
    predict_apply,
)

Json = dict[str, Any]
ME, OTHER = "me", "other"
KEY = 'k:{"name":"a"}'


def found(spec: Json, *managers: tuple[str, Json]) -> Json:
    entries = [
        {"manager": who, "operation": "Apply", "fieldsV1": {"f:spec": fields}}
        for who, fields in managers
    ]
    return {"metadata": {"name": "x", "managedFields": entries}, "spec": spec}


TABLE: dict[str, tuple[Json, Json, Json]] = {
    "a value is set": (found({"a": 1}), {"a": 2}, {"a": 2}),
    "a field of nobody stays": (found({"a": 1, "b": 1}), {"a": 1}, {"a": 1, "b": 1}),
    "a field of mine is removed": (
        found({"a": 1, "b": 1}, (ME, {"f:a": {}, "f:b": {}})),
        {"a": 1},
        {"a": 1},
    ),
    "unless another owns it too": (
        found({"a": 1, "b": 1}, (ME, {"f:a": {}, "f:b": {}}), (OTHER, {"f:b": {}})),
        {"a": 1},
        {"a": 1, "b": 1},
    ),
    "a map of mine is removed with its fields": (
        found({"a": 1, "m": {"x": 1}}, (ME, {"f:a": {}, "f:m": {"f:x": {}}})),
        {"a": 1},
        {"a": 1},
    ),
    "but not the fields of others in it": (
        found({"m": {"x": 1, "y": 1}}, (ME, {"f:m": {"f:x": {}}}), (OTHER, {"f:m": {"f:y": {}}})),
        {},
        {"m": {"y": 1}},
    ),
    "an atomic list is replaced": (
        found({"l": [1, 2]}, (ME, {"f:l": {}})),
        {"l": [2]},
        {"l": [2]},
    ),
    "a list by key is merged": (
        found(
            {"l": [{"name": "a", "v": 1}, {"name": "b"}]},
            (ME, {"f:l": {KEY: {".": {}, "f:name": {}}}}),
        ),
        {"l": [{"name": "a"}, {"name": "c"}]},
        {"l": [{"name": "a", "v": 1}, {"name": "b"}, {"name": "c"}]},
    ),
    "an item of mine is removed": (
        found({"l": [{"name": "a"}, {"name": "b"}]}, (ME, {"f:l": {KEY: {".": {}}}})),
        {"l": []},
        {"l": [{"name": "b"}]},
    ),
    "a set keeps the values of others": (
        found({"l": ["a", "b"]}, (ME, {"f:l": {'v:"a"': {}}}), (OTHER, {"f:l": {'v:"b"': {}}})),
        {"l": ["c"]},
        {"l": ["b", "c"]},
    ),
}


@pytest.mark.parametrize(("before", "applied", "after"), TABLE.values(), ids=TABLE)
def test_predicted_spec(before: Json, applied: Json, after: Json) -> None:
    config = {"metadata": {"name": "x"}, "spec": applied}
    assert predict_apply(before, config, ME)["spec"] == after


def test_who_owns_what() -> None:
    before = found({"a": 1, "m": {"x": 1}}, (ME, {"f:a": {}, "f:m": {"f:x": {}}}))
    config = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "spec": {"a": 1}}
    before["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"] = {}
    assert is_owner(before, config, ME)
    assert not is_owner(before, config, OTHER)
    assert not is_owner(before, {**config, "spec": {"b": 1}}, ME)
    assert owns_field(before, ME, "spec", "m", "x")
    assert not owns_field(before, ME, "spec", "m", "y")
