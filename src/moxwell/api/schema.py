"""
Builds the structural OpenAPI schema of a CRD from a Struct.

Covers types, enums, bounds, defaults, list maps and sets, int-or-string, preserved unknown fields
and the CEL of ``rules``. Only defaults other than the empty value are written, so that defaulting
does not fill objects with zeros.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Meta, inspect

from moxwell.api.conditions import Condition, LegacyCondition
from moxwell.api.kinds import Object, ValidationRule
from moxwell.api.meta import ObjectMeta
from moxwell.errors import Bug

Schema = dict[str, Any]
PRESERVE = "x-kubernetes-preserve-unknown-fields"
_SCALARS: dict[type[inspect.Type], Schema] = {
    inspect.BoolType: {"type": "boolean"},
    inspect.FloatType: {"type": "number"},
    inspect.DateTimeType: {"type": "string", "format": "date-time"},
}
_JSON_TYPES: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def keyed(*keys: str, **more: Any) -> Meta:
    """Mark a list as a map with these keys."""
    extra = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return Meta(extra_json_schema=extra, **more)


def unique(**more: Any) -> Meta:
    """Mark a list as a set."""
    return Meta(extra_json_schema={"x-kubernetes-list-type": "set"}, **more)


def atomic(**more: Any) -> Meta:
    """Mark a list or map as atomic: it has one field manager and is replaced as a whole."""
    return Meta(extra_json_schema={"x-kubernetes-list-type": "atomic"}, **more)


def described_as(description: str, **more: Any) -> Meta:
    """Add a description (``kubectl explain``) and bounds to a field."""
    return Meta(description=description, **more)


def of_kind(kind: type[Object], *, preserve: bool = True) -> Schema:
    """Build the schema of a kind; without ``preserve`` an open kind has no unknown fields."""
    root = _Writer(kind.declared.open and preserve).struct(inspect.type_info(kind), top=True)
    head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    root["properties"] = head | root["properties"]
    return root


class _Writer:
    """Builds schemas from type information; ``open`` preserves unknown fields of every object."""

    def __init__(self, open_: bool) -> None:
        self._open = open_

    def of(self, info: inspect.Type) -> Schema:
        """Build the schema of a type."""
        if isinstance(info, inspect.Metadata):
            return self.of(info.type) | (info.extra_json_schema or {})
        if isinstance(info, inspect.StructType):
            return self.struct(info)
        if isinstance(info, inspect.UnionType):
            return self._union(info)
        if isinstance(info, inspect.DictType):
            return self._map(info)
        if isinstance(info, inspect.LiteralType):
            return _enum(list(info.values))
        if isinstance(info, inspect.EnumType):
            return _enum([member.value for member in info.cls])
        return self._list(info) or _scalar(info)

    def struct(self, info: inspect.Type, *, top: bool = False) -> Schema:
        """Build the schema of a Struct."""
        if not isinstance(info, inspect.StructType):
            raise Bug(f"{info} is not a Struct")
        if info.cls is ObjectMeta:
            return {"type": "object"}
        out: Schema = {"type": "object"}
        if text := _description(info.cls):
            out["description"] = text
        out["properties"] = {field.encode_name: self._field(field) for field in info.fields}
        if required := [
            field.encode_name for field in info.fields if _is_required(info.cls, field)
        ]:
            out["required"] = required
        if self._open and not top:
            out[PRESERVE] = True
        if rules := getattr(info.cls, "rules", ()):
            out["x-kubernetes-validations"] = [_rule(rule) for rule in rules]
        return out

    def _field(self, field: inspect.Field) -> Schema:
        out = self.of(field.type)
        default = field.default
        if isinstance(default, bool | int | float | str) and default:
            out = {**out, "default": default}
        return out

    def _union(self, info: inspect.UnionType) -> Schema:
        rest = [part for part in info.types if not isinstance(part, inspect.NoneType)]
        if len(rest) == 1:
            return self.of(rest[0])
        if {type(_without_metadata(part)) for part in rest} == {inspect.StrType, inspect.IntType}:
            choice = [{"type": "integer"}, {"type": "string"}]
            return {"anyOf": choice, "x-kubernetes-int-or-string": True}
        raise Bug(f"a structural schema has no union like {rest}")

    def _map(self, info: inspect.DictType) -> Schema:
        bounds = {"minProperties": info.min_length, "maxProperties": info.max_length}
        out = {"type": "object"} | _set_bounds(bounds)
        if isinstance(info.value_type, inspect.AnyType):
            return out | {PRESERVE: True}
        return out | {"additionalProperties": self.of(info.value_type)}

    def _list(self, info: inspect.Type) -> Schema | None:
        list_types = (
            inspect.ListType | inspect.VarTupleType | inspect.SetType | inspect.FrozenSetType
        )
        if not isinstance(info, list_types):
            return None
        bounds = _set_bounds({"minItems": info.min_length, "maxItems": info.max_length})
        out = {"type": "array", "items": self.of(info.item_type)} | bounds
        item = info.item_type
        if isinstance(info, inspect.SetType | inspect.FrozenSetType):
            out |= keyed_extra("set")
        elif isinstance(item, inspect.StructType) and item.cls in (Condition, LegacyCondition):
            out |= keyed_extra("map", "type")
        return out


def keyed_extra(kind: str, *keys: str) -> Schema:
    """Build the list type extensions of a schema."""
    named = {"x-kubernetes-list-map-keys": list(keys)} if keys else {}
    return {"x-kubernetes-list-type": kind} | named


def _scalar(info: inspect.Type) -> Schema:
    if isinstance(info, inspect.StrType):
        bounds = {"minLength": info.min_length, "maxLength": info.max_length}
        return {"type": "string"} | _set_bounds({**bounds, "pattern": info.pattern})
    if isinstance(info, inspect.IntType | inspect.FloatType):
        kind = "integer" if isinstance(info, inspect.IntType) else "number"
        return {"type": kind} | _range(info)
    if isinstance(info, inspect.AnyType | inspect.RawType):
        return {PRESERVE: True}
    if type(info) in _SCALARS:
        return dict(_SCALARS[type(info)])
    raise Bug(f"a structural schema has no {type(info).__name__}")


def _range(info: inspect.IntType | inspect.FloatType) -> Schema:
    out = _set_bounds({"minimum": info.ge, "maximum": info.le, "multipleOf": info.multiple_of})
    if info.gt is not None:
        out |= {"minimum": info.gt, "exclusiveMinimum": True}
    if info.lt is not None:
        out |= {"maximum": info.lt, "exclusiveMaximum": True}
    return out


def _enum(values: list[Any]) -> Schema:
    types = {type(value) for value in values}
    if len(types) != 1:
        raise Bug(f"an enum has one type, not {types}")
    return {"type": _JSON_TYPES[types.pop()], "enum": sorted(values)}


def _rule(rule: ValidationRule) -> Schema:
    named = {"fieldPath": rule.field_path, "reason": rule.reason}
    return {"rule": rule.cel, "message": rule.message} | {k: v for k, v in named.items() if v}


def _is_required(cls: type, field: inspect.Field) -> bool:
    """
    Report whether the field is required.

    A condition requires all fields except the observed generation, although its Struct has
    defaults.
    """
    if cls is Condition:
        return field.name != "observed_generation"
    return field.required


def _description(cls: type) -> str:
    text = (cls.__doc__ or "").strip()
    return " ".join(text.split()) if text and not text.startswith(f"{cls.__name__}(") else ""


def _without_metadata(info: inspect.Type) -> inspect.Type:
    return info.type if isinstance(info, inspect.Metadata) else info


def _set_bounds(bounds: Mapping[str, Any]) -> Schema:
    return {name: value for name, value in bounds.items() if value is not None}
