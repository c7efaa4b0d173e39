"""
Kinds: one declaration on a Struct from which codec, client paths and CRD are derived.

``@kind(...)`` notes on the class what the wire, kubectl and the CRD need; nothing is registered
anywhere. ``apiVersion`` and ``kind`` are facts of the class and not fields: ``encode`` writes them,
reading ignores them (a genuine apiserver leaves them out of list items of built-in kinds).
Collections of kinds are plain tuples, named ``KINDS`` in each module that declares some.
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
    """Where objects of one kind live in an API, all a client needs to form paths."""

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
        """``plural.group``: also the name of the CRD."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """``/api/v1`` or ``/apis/group/version``."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of one object, of a namespace's objects, or (no namespace) of all."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``; priority above 0 only with ``-o wide``."""

    name: str
    path: str
    type: ColumnType = "string"
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the scale subresource finds its numbers."""

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str = ""


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """
    One validation rule: as CEL for Kubernetes, and the same in Python.

    A Struct lists its rules in ``rules``; ``check(self, old)`` gets the Struct and, for a
    transition rule (one whose CEL mentions ``oldSelf``), its former value.
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
    """The whole declaration of one version of one kind."""

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
    """Anything with a kind and metadata."""

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
        """Somebody asked for the end; finalizers still hold it."""
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
    Declare a Struct as a kind; ``name`` where the class is not called like the kind.

    ``more`` are the remaining fields of :class:`Kind`: ``short``, ``categories``, ``columns``,
    ``status`` (has the subresource), ``scale``, ``labels`` (of the CRD), ``selectable`` (field
    selectors), ``served``, ``storage``, ``deprecated`` (a warning), ``open`` (unknown fields are
    kept: for kinds of others of which we know a part), ``builtin`` (no CRD is rendered).
    """

    def note(cls: type[K]) -> type[K]:
        called = name or cls.__name__
        resource = Resource(group, version, plural, called, scope == "Namespaced")
        facts = {"singular": called.lower(), "list_kind": f"{called}List", **more}
        cls.resource = resource
        cls.declared = Kind(resource=resource, **facts)
        return cls

    return note


def encode(obj: Object) -> bytes:
    """The object as JSON, with its apiVersion and kind first."""
    resource = type(obj).resource
    head = f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}"'.encode()
    body = msgspec.json.encode(obj)
    return head + (b"," if len(body) > 2 else b"") + body[1:]


def as_dict(obj: Object) -> dict[str, Any]:
    """The object as plain JSON values."""
    resource = type(obj).resource
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    body: dict[str, Any] = msgspec.to_builtins(obj)
    return head | body


def owner_reference(
    owner: Object, *, controller: bool = True, block: bool = True
) -> OwnerReference:
    """A reference that makes ``owner`` the owner of whatever carries it."""
    return OwnerReference(
        api_version=owner.resource.api_version,
        kind=owner.resource.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True if controller else None,
        block_owner_deletion=True if block else None,
    )
