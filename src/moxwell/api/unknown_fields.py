"""
Finds the fields of an object that its kind does not have, at any depth. Pure.

Of our kinds it reads the types, not the CRD, so it also finds what a CRD with preserved unknown
fields accepts. What a kind declares as ``Any`` is free, unless the field names the type of its
items (``items_of``). Of upstream's kinds, whose fields our types have in part, it reads the schema.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import Meta, inspect

from moxwell.api.field_errors import FieldError, hint
from moxwell.api.kinds import Object
from moxwell.api.meta import ObjectMeta
from moxwell.api.schema import PRESERVE

ITEMS = "items"
_SEQUENCES = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)
_HEAD = frozenset({"apiVersion", "kind", "metadata", "status"})  # a user's status is ignored
_SERVER_METADATA = frozenset({"managedFields", "selfLink", "clusterName"})


def items_of(struct: type) -> Meta:
    """Mark a field of type ``Any`` as a list, or a map by name, of a Struct."""
    return Meta(extra={ITEMS: struct})


def unknown_fields(kind: type[Object], tree: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """An error for each unknown field, with the field that was probably meant."""
    known = {name: of for name, of in _fields(kind).items() if name != "metadata"}
    found = list(_of_struct(known, {k: v for k, v in tree.items() if k not in _HEAD}, ""))
    meta = tree.get("metadata")
    if isinstance(meta, Mapping):
        found += _of_metadata(meta)
    return tuple(found)


def new_unknown_fields(
    kind: type[Object], tree: Mapping[str, Any], old: Mapping[str, Any] | None
) -> tuple[FieldError, ...]:
    """Those that the previous state does not have: an object that was stored can be changed."""
    found = unknown_fields(kind, tree)
    before = set(unknown_fields(kind, old)) if found and old is not None else set()
    return tuple(error for error in found if error not in before)


def unknown_in_schema(schema: Mapping[str, Any], tree: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """The same for an object of a kind with a structural schema."""
    known = {k: of for k, of in schema["properties"].items() if k not in _HEAD}
    root = {k: v for k, v in tree.items() if k not in _HEAD}
    meta = tree.get("metadata")
    found = _of_schema({"properties": known}, root, "")
    return (*found, *(_of_metadata(meta) if isinstance(meta, Mapping) else ()))


def _of_schema(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[FieldError]:
    known, items = schema.get("properties"), schema.get("additionalProperties")
    if isinstance(value, Mapping) and known is not None and not schema.get(PRESERVE):
        for key, item in value.items():
            at = f"{path}.{key}" if path else str(key)
            if key in known:
                yield from _of_schema(known[key], item, at)
            else:
                yield FieldError(at, f"unknown field{hint(str(key), known)}")
    elif isinstance(value, Mapping) and isinstance(items, Mapping):
        for key, item in value.items():
            yield from _of_schema(items, item, f"{path}[{key}]")
    elif isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from _of_schema(schema["items"], item, f"{path}[{number}]")


@cache  # of a fixed set of kinds; translating a type takes milliseconds
def _type_info(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def _fields(kind: type) -> dict[str, inspect.Type]:
    info = _type_info(kind)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field.type for field in info.fields}


def _of_metadata(meta: Mapping[str, Any]) -> Iterator[FieldError]:
    yield from _of_struct(
        _fields(ObjectMeta),
        {k: v for k, v in meta.items() if k not in _SERVER_METADATA},
        "metadata",
    )


def _of_struct(
    known: Mapping[str, inspect.Type], tree: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    for key, value in tree.items():
        at = f"{path}.{key}" if path else str(key)
        if key in known:
            yield from _of_type(known[key], value, at)
        else:
            yield FieldError(at, f"unknown field{hint(str(key), known)}")


def _of_type(info: inspect.Type, value: Any, path: str) -> Iterator[FieldError]:
    if isinstance(info, inspect.Metadata):
        struct = (info.extra or {}).get(ITEMS)
        if struct is not None:
            yield from _of_items(_type_info(struct), value, path)
        else:
            yield from _of_type(info.type, value, path)
    elif isinstance(info, inspect.UnionType):
        structs = [part for part in info.types if isinstance(part, inspect.StructType)]
        for part in structs if structs and isinstance(value, Mapping) else info.types:
            yield from _of_type(part, value, path)
    elif isinstance(info, inspect.StructType):
        if isinstance(value, Mapping):
            known = {field.encode_name: field.type for field in info.fields}
            yield from _of_struct(known, value, path)
    elif isinstance(info, inspect.DictType):
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from _of_type(info.value_type, item, f"{path}[{key}]")
    elif isinstance(info, _SEQUENCES) and isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _of_type(info.item_type, item, f"{path}[{number}]")


def _of_items(info: inspect.Type, value: Any, path: str) -> Iterator[FieldError]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _of_type(info, item, f"{path}[{key}]")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _of_type(info, item, f"{path}[{number}]")
