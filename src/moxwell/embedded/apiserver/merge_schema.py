"""
Shapes: how the fields of a kind merge. One small form for structural schemas and for OpenAPI.

A shape says of a value whether it is a leaf, a map whose members have their own owners, or a
list that merges by keys, as a set, or not at all. Server-side apply, strategic merge patches and
field ownership all read shapes; none of them reads a schema. Shapes of recursive types are made
when first asked for.
"""

from collections.abc import Callable, Mapping
from typing import Any

LEAF, MAP, LIST = "leaf", "map", "list"


class Shape:
    """One node: a leaf, a map or a list; ``atomic`` ones are owned and replaced whole."""

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
        fields: "Mapping[str, Callable[[], Shape]] | None" = None,
        element: "Callable[[], Shape] | None" = None,
        strategies: tuple[str, ...] = (),
        merge_key: str = "",
        unknown: bool = False,
    ) -> None:
        self.kind, self.atomic, self.keys = kind, atomic, keys
        self.defaults = defaults or {}  # of the keys
        self.strategies, self.merge_key = strategies, merge_key
        self.unknown = unknown  # deduced from values: maps merge, lists are atomic
        self._fields: dict[str, Shape | Callable[[], Shape]] = dict(fields or {})
        self._element: Shape | Callable[[], Shape] | None = element

    def field(self, name: str) -> "Shape":
        """The shape of a member of a map."""
        found = self._fields.get(name)
        if found is None:
            return self.element()
        if not isinstance(found, Shape):
            found = self._fields[name] = found()
        return found

    def has(self, name: str) -> bool:
        """Whether the member is declared by name (a struct's field, not a map's key)."""
        return name in self._fields

    def knows(self, name: str) -> bool:
        """Whether a member of this name may be there at all."""
        return name in self._fields or self._element is not None or not self._fields

    def element(self) -> "Shape":
        """The shape of a list's items or of a free map's values."""
        if self._element is None:
            return ANY
        if not isinstance(self._element, Shape):
            self._element = self._element()
        return self._element

    @property
    def is_set(self) -> bool:
        return self.kind == LIST and not self.atomic and not self.keys

    def of(self, value: Any) -> "Shape":
        """This shape, or what an unknown one is deduced to be from a value."""
        if not self.unknown:
            return self
        if isinstance(value, dict):
            return ANY_MAP
        return ANY_LIST if isinstance(value, list) else SCALAR


SCALAR = Shape(LEAF)
ANY = Shape(LEAF, unknown=True)
ANY_MAP = Shape(MAP, element=lambda: ANY)
ANY_LIST = Shape(LIST, atomic=True, element=lambda: ANY)


def _const(shape: Shape) -> Callable[[], Shape]:
    return lambda: shape


STRING_MAP = Shape(MAP, element=_const(SCALAR))


def from_schema(schema: Mapping[str, Any], names: Mapping[str, Any]) -> Shape:
    """From a schema; ``names`` are the definitions its references mean."""
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


def _typed(schema: Mapping[str, Any], names: Mapping[str, Any], extra: dict[str, Any]) -> Shape:
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


def _map(schema: Mapping[str, Any], names: Mapping[str, Any], extra: dict[str, Any]) -> Shape:
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
    return Shape(MAP, atomic=atomic, fields=fields, element=element, **extra)


def _list(schema: Mapping[str, Any], names: Mapping[str, Any], extra: dict[str, Any]) -> Shape:
    listed = schema.get("x-kubernetes-list-type", "atomic")
    items = schema.get("items") or {}
    keys = tuple(schema.get("x-kubernetes-list-map-keys", ())) if listed == "map" else ()
    defaults = {k: v for k in keys if (v := _default_of(items, names, k)) is not None}
    return Shape(
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


def _late(schema: Mapping[str, Any], names: Mapping[str, Any]) -> Callable[[], Shape]:
    return lambda: from_schema(schema, names)


def _metadata() -> Shape:
    scalars = ("name", "generateName", "namespace", "uid", "resourceVersion", "generation")
    times = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
    owner = Shape(MAP, atomic=True, element=_const(ANY))
    owners = Shape(
        LIST, keys=("uid",), element=_const(owner), strategies=("merge",), merge_key="uid"
    )
    finalizers = Shape(LIST, element=_const(SCALAR), strategies=("merge",))
    fields = {name: _const(SCALAR) for name in scalars + times}
    fields |= {name: _const(STRING_MAP) for name in ("labels", "annotations")}
    fields |= {
        "ownerReferences": _const(owners),
        "finalizers": _const(finalizers),
        "managedFields": _const(ANY_LIST),
    }
    return Shape(MAP, fields=fields)


METADATA = _metadata()


def custom(schema: Mapping[str, Any] | None) -> Shape:
    """The shape of a custom kind: its schema, with the metadata every object has."""
    if schema is None:
        return Shape(MAP, fields={"metadata": _const(METADATA)}, element=_const(ANY))
    whole = dict(schema.get("properties") or {})
    whole.pop("metadata", None)
    fields: dict[str, Callable[[], Shape]] = {k: _late(v, {}) for k, v in whole.items()}
    fields |= {"metadata": _const(METADATA), "apiVersion": _const(SCALAR), "kind": _const(SCALAR)}
    keeps = schema.get("x-kubernetes-preserve-unknown-fields")
    return Shape(MAP, fields=fields, element=_const(ANY) if keeps else None)
