"""
Declarations of API kinds, from which codecs, client paths and CRDs are derived.

``@kind(...)`` stores the declaration on the Struct; there is no global registry. ``apiVersion`` and
``kind`` are not fields: ``encode`` writes them and decoding ignores them, because an API server
omits them from list items of built-in kinds. Modules collect their kinds in a tuple ``KINDS``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from moxwell.api.meta import ObjectMeta, OwnerReference, Value

Scope = Literal["Namespaced", "Cluster"]
ColumnType = Literal["string", "integer", "number", "boolean", "date"]


@dataclass(frozen=True, slots=True)
class Resource:
    """The group, version, resource and kind of an API; enough to build URL paths."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """``plural.group``, which is also the name of the CRD."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """``/api/v1`` or ``/apis/group/version``."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Build the path of one object, of the objects in a namespace, or of all objects."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of ``kubectl get``; a priority above 0 is shown only with ``-o wide``."""

    name: str
    path: str
    type: ColumnType = "string"
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The JSON paths of the scale subresource."""

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str = ""


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """
    A validation rule, as CEL for the CRD and as an equivalent Python function.

    A Struct lists its rules in ``rules``. ``check(self, old)`` gets the Struct and, for a
    transition rule (its CEL mentions ``oldSelf``), the previous value.
    """

    cel: str
    message: str
    check: Callable[[Any, Any], bool]
    field_path: str = ""
    reason: str = ""

    @property
    def transition(self) -> bool:
        return "oldSelf" in self.cel


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The declaration of one version of one kind."""

    resource: Resource
    singular: str
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    status: bool = False
    scale: ScalePaths | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    selectable: tuple[str, ...] = ()
    served: bool = True
    storage: bool = True
    deprecated: str = ""
    open: bool = False
    builtin: bool = False
    list_kind: str = ""


class Object(Value, frozen=True, kw_only=True):
    """An API object with kind and metadata."""

    declared: ClassVar[Kind]
    resource: ClassVar[Resource]

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def key(self) -> str:
        return self.metadata.key

    @property
    def deleting(self) -> bool:
        """Report whether deletion was requested; finalizers may keep the object."""
        return self.metadata.deletion_timestamp is not None


K = TypeVar("K", bound=Object)


def kind(
    *,
    group: str,
    version: str,
    plural: str,
    name: str = "",
    scope: Scope = "Namespaced",
    **more: Any,
) -> Callable[[type[K]], type[K]]:
    """
    Declare a Struct as a kind; ``name`` overrides the class name.

    ``more`` are the remaining fields of :class:`Kind`: ``short``, ``categories``, ``columns``,
    ``status`` (has the subresource), ``scale``, ``labels`` (of the CRD), ``selectable`` (field
    selectors), ``served``, ``storage``, ``deprecated`` (a warning), ``open`` (unknown fields are
    kept, for upstream kinds that are declared in part), ``builtin`` (no CRD is rendered).
    """

    def declare(cls: type[K]) -> type[K]:
        kind_name = name or cls.__name__
        resource = Resource(group, version, plural, kind_name, scope == "Namespaced")
        facts = {"singular": kind_name.lower(), "list_kind": f"{kind_name}List", **more}
        cls.resource = resource
        cls.declared = Kind(resource=resource, **facts)
        return cls

    return declare


def encode(obj: Object) -> bytes:
    """Encode the object as JSON with apiVersion and kind."""
    resource = type(obj).resource
    head = f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}"'.encode()
    body = msgspec.json.encode(obj)
    return head + (b"," if len(body) > 2 else b"") + body[1:]


def as_dict(obj: Object) -> dict[str, Any]:
    """Convert the object to JSON values."""
    resource = type(obj).resource
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    body: dict[str, Any] = msgspec.to_builtins(obj)
    return head | body


def owner_reference(
    owner: Object, *, controller: bool = True, block: bool = True
) -> OwnerReference:
    """Build the owner reference to ``owner``."""
    return OwnerReference(
        api_version=owner.resource.api_version,
        kind=owner.resource.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True if controller else None,
        block_owner_deletion=True if block else None,
    )
