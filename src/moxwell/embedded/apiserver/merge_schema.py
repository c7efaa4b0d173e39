"""
Merge schemas: how the fields of a kind merge, from structural schemas and OpenAPI alike.

A merge schema describes a value as a leaf, a map whose fields have separate owners, or a list that
merges by keys, as a set or atomically. Server-side apply, strategic merge patch and managedFields
use it. Schemas of recursive types are built on demand.
"""

from collections.abc import Callable, Mapping
from typing import Any

LEAF, MAP, LIST = "leaf", "map", "list"


class MergeSchema:
    """One node: a leaf, map or list; an atomic node is owned and replaced as a whole."""

    __slots__ = (
        "_element",
        "_fields",
        "atomic",
        "defaults",
        "keys",
        "kind",
        "merge_key",
        "strategies",
        "unknown",
    )

    def __init__(
        self,
        kind: str,
        *,
        atomic: bool = False,
        keys: tuple[str, ...] = (),
        defaults: Mapping[str, Any] | None = None,
        fields: "Mapping[str, Callable[[], MergeSchema]] | None" = None,
        element: "Callable[[], MergeSchema] | None" = None,
        strategies: tuple[str, ...] = (),
        merge_key: str = "",
        unknown: bool = False,
    ) -> None:
        self.kind, self.atomic, self.keys = kind, atomic, keys
        self.defaults = defaults or {}  # defaults of the keys
        self.strategies, self.merge_key = strategies, merge_key
        self.unknown = unknown  # deduced from values: maps merge, lists are atomic
        self._fields: dict[str, MergeSchema | Callable[[], MergeSchema]] = dict(fields or {})
        self._element: MergeSchema | Callable[[], MergeSchema] | None = element

    def field(self, name: str) -> "MergeSchema":
        """Return the schema of a map's field."""
        found = self._fields.get(name)
        if found is None:
            return self.element()
        if not isinstance(found, MergeSchema):
            found = self._fields[name] = found()
        return found

    def has(self, name: str) -> bool:
        """Report whether the field is declared by name (a struct's field, not a map's key)."""
        return name in self._fields

    def knows(self, name: str) -> bool:
        """Report whether a field of this name is allowed."""
        return name in self._fields or self._element is not None or not self._fields

    def element(self) -> "MergeSchema":
        """Return the schema of a list's items or a map's values."""
        if self._element is None:
            return ANY
        if not isinstance(self._element, MergeSchema):
            self._element = self._element()
        return self._element

    @property
    def is_set(self) -> bool:
        return self.kind == LIST and not self.atomic and not self.keys

    def of(self, value: Any) -> "MergeSchema":
        """Return this schema, or for an unknown one the schema deduced from a value."""
        if not self.unknown:
            return self
        if isinstance(value, dict):
            return ANY_MAP
        return ANY_LIST if isinstance(value, list) else SCALAR


SCALAR = MergeSchema(LEAF)
ANY = MergeSchema(LEAF, unknown=True)
ANY_MAP = MergeSchema(MAP, element=lambda: ANY)
ANY_LIST = MergeSchema(LIST, atomic=True, element=lambda: ANY)


def _const(merge_schema: MergeSchema) -> Callable[[], MergeSchema]:
    return lambda: merge_schema


STRING_MAP = MergeSchema(MAP, element=_const(SCALAR))


def from_schema(schema: Mapping[str, Any], names: Mapping[str, Any]) -> MergeSchema:
    """Build a merge schema; ``names`` are the definitions that references mean."""
    ref = _reference(schema)
    extra = {
        "strategies": tuple(filter(None, schema.get("x-kubernetes-patch-strategy", "").split(","))),
        "merge_key": schema.get("x-kubernetes-patch-merge-key", ""),
    }
    if ref:
        target = names[ref]
        if ref in _LEAVES:
            return SCALAR if ref not in _FREE else ANY
        merged = {**target, **{k: v for k, v in schema.items() if k.startswith("x-kubernetes-")}}
        return _typed(merged, names, extra)
    return _typed(schema, names, extra)


_PREFIX = "io.k8s.apimachinery.pkg."
_FREE = frozenset(
    [
        _PREFIX + "runtime.RawExtension",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    ]
)
_LEAVES = _FREE | frozenset(
    [
        _PREFIX + "apis.meta.v1.Time",
        _PREFIX + "apis.meta.v1.MicroTime",
        _PREFIX + "api.resource.Quantity",
        _PREFIX + "util.intstr.IntOrString",
        _PREFIX + "apis.meta.v1.FieldsV1",
    ]
)


def _reference(schema: Mapping[str, Any]) -> str:
    ref = schema.get("$ref", "")
    if not ref and len(schema.get("allOf", ())) == 1:
        ref = schema["allOf"][0].get("$ref", "")
    return str(ref).rsplit("/", 1)[-1]


def _typed(
    schema: Mapping[str, Any], names: Mapping[str, Any], extra: dict[str, Any]
) -> MergeSchema:
    if schema.get("x-kubernetes-int-or-string"):
        return SCALAR
    kind = schema.get("type")
    if kind == "array":
        return _list(schema, names, extra)
    if kind == "object" or "properties" in schema:
        return _map(schema, names, extra)
    if schema.get("x-kubernetes-preserve-unknown-fields") or kind is None:
        return ANY
    return SCALAR


def _map(schema: Mapping[str, Any], names: Mapping[str, Any], extra: dict[str, Any]) -> MergeSchema:
    properties = schema.get("properties") or {}
    rest = schema.get("additionalProperties")
    element = None
    if isinstance(rest, Mapping):
        element = _late(rest, names)
    elif schema.get("x-kubernetes-preserve-unknown-fields") or not properties:
        element = _const(ANY)
    fields = {name: _late(found, names) for name, found in properties.items()}
    if schema.get("x-kubernetes-embedded-resource"):
        fields.setdefault("metadata", _const(METADATA))
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    return MergeSchema(MAP, atomic=atomic, fields=fields, element=element, **extra)


def _list(
    schema: Mapping[str, Any], names: Mapping[str, Any], extra: dict[str, Any]
) -> MergeSchema:
    listed = schema.get("x-kubernetes-list-type", "atomic")
    items = schema.get("items") or {}
    keys = tuple(schema.get("x-kubernetes-list-map-keys", ())) if listed == "map" else ()
    defaults = {k: v for k in keys if (v := _default_of(items, names, k)) is not None}
    return MergeSchema(
        LIST,
        atomic=listed == "atomic",
        keys=keys,
        defaults=defaults,
        element=_late(items, names),
        **extra,
    )


def _default_of(items: Mapping[str, Any], names: Mapping[str, Any], key: str) -> Any:
    target = names.get(_reference(items), items)
    return target.get("properties", {}).get(key, {}).get("default")


def _late(schema: Mapping[str, Any], names: Mapping[str, Any]) -> Callable[[], MergeSchema]:
    return lambda: from_schema(schema, names)


def _metadata() -> MergeSchema:
    scalars = ("name", "generateName", "namespace", "uid", "resourceVersion", "generation")
    times = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
    owner = MergeSchema(MAP, atomic=True, element=_const(ANY))
    owners = MergeSchema(
        LIST, keys=("uid",), element=_const(owner), strategies=("merge",), merge_key="uid"
    )
    finalizers = MergeSchema(LIST, element=_const(SCALAR), strategies=("merge",))
    fields = {name: _const(SCALAR) for name in scalars + times}
    fields |= {name: _const(STRING_MAP) for name in ("labels", "annotations")}
    fields |= {
        "ownerReferences": _const(owners),
        "finalizers": _const(finalizers),
        "managedFields": _const(ANY_LIST),
    }
    return MergeSchema(MAP, fields=fields)


METADATA = _metadata()


def for_custom_resource(schema: Mapping[str, Any] | None) -> MergeSchema:
    """Build the merge schema of a custom resource: its schema and the object metadata."""
    if schema is None:
        return MergeSchema(MAP, fields={"metadata": _const(METADATA)}, element=_const(ANY))
    complete = dict(schema.get("properties") or {})
    complete.pop("metadata", None)
    fields: dict[str, Callable[[], MergeSchema]] = {k: _late(v, {}) for k, v in complete.items()}
    fields |= {"metadata": _const(METADATA), "apiVersion": _const(SCALAR), "kind": _const(SCALAR)}
    keeps = schema.get("x-kubernetes-preserve-unknown-fields")
    return MergeSchema(MAP, fields=fields, element=_const(ANY) if keeps else None)
