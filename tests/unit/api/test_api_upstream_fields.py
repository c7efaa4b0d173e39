"""The schemas of upstream's kinds: upstream's fields, our types where both have a field."""

from collections.abc import Iterator
from typing import Any

import pytest

from moxwell.api import registry, upstream_fields
from moxwell.api.capi.core import Cluster
from moxwell.api.kinds import Object
from moxwell.api.schema import PRESERVE
from moxwell.api.upstream_fields import completed

STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("declared", "fields", "whole"),
    [
        pytest.param({PRESERVE: True}, "any", {PRESERVE: True}, id="free"),
        pytest.param(STRING | {"minLength": 1}, "string", STRING | {"minLength": 1}, id="ours"),
        pytest.param(
            {"type": "object", PRESERVE: True},
            {"a": "string", "b": ["integer"]},
            {
                "type": "object",
                "properties": {"a": STRING, "b": {"type": "array", "items": {"type": "integer"}}},
            },
            id="plain JSON of ours",
        ),
        pytest.param(
            {"type": "object", "required": ["a"], "properties": {"a": STRING}},
            {"b": {"*": "string"}},
            {
                "type": "object",
                "required": ["a"],
                "properties": {
                    "a": STRING,
                    "b": {"type": "object", "additionalProperties": STRING},
                },
            },
            id="fields of both",
        ),
        pytest.param(
            {"type": "object", PRESERVE: True},
            {"*": {"a": "string"}},
            {
                "type": "object",
                "additionalProperties": {"type": "object", "properties": {"a": STRING}},
            },
            id="map",
        ),
        pytest.param({PRESERVE: True}, ["string"], {"type": "array", "items": STRING}, id="list"),
        pytest.param(
            {"type": "array", "items": {"type": "object", "properties": {"a": STRING}}},
            [{"a": "string", "b": "string"}],
            {
                "type": "array",
                "items": {"type": "object", "properties": {"a": STRING, "b": STRING}},
            },
            id="list of ours",
        ),
    ],
)
def test_completed(declared: dict[str, Any], fields: Any, whole: dict[str, Any]) -> None:
    assert completed(declared, fields) == whole


def preserved(schema: Any, fields: Any, path: str) -> Iterator[str]:
    """The paths that accept unknown fields although upstream lists the fields there."""
    if not isinstance(fields, dict | list):
        return
    if schema.get(PRESERVE):
        yield path
    if isinstance(fields, list):
        yield from preserved(schema["items"], fields[0], f"{path}[]")
    elif upstream_fields.ITEMS not in fields:
        for name, of in fields.items():
            yield from preserved(schema["properties"][name], of, f"{path}.{name}")


@pytest.mark.parametrize(
    "kind",
    [k for k in registry.UPSTREAM if upstream_fields.find_fields(k) is not None],
    ids=upstream_fields.name_of,
)
def test_a_spec_accepts_only_fields_of_upstream(kind: type[Object]) -> None:
    fields = upstream_fields.find_fields(kind)
    assert fields is not None
    assert list(preserved(upstream_fields.schema_of(kind), fields, "")) == []


def test_the_kinds_without_a_table_are_known() -> None:
    """ReferenceGrant declares all its fields; of Talos's providers there is no Go module."""
    every = [k for k in registry.UPSTREAM if upstream_fields.find_fields(k) is None]
    assert {k.resource.kind for k in every} == {
        "ReferenceGrant",
        "TalosConfig",
        "TalosConfigTemplate",
        "TalosControlPlane",
    }


def test_a_status_keeps_the_fields_of_other_controllers() -> None:
    assert upstream_fields.schema_of(Cluster)["properties"]["status"][PRESERVE] is True
