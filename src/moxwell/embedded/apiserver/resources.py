"""
Faces: one stored kind as one group and version shows it. What is served, and by which model.

A stored kind may have several faces (a CRD with versions; ``v1`` and ``events.k8s.io/v1``
Events) but is kept in one version, its *hub*. The registry finds the face of a path; discovery,
OpenAPI, tables and all verbs work from faces alone, built in or custom.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from moxwell.embedded.apiserver.merge_schema import Shape
from moxwell.embedded.apiserver.status_errors import Cause

Object = dict[str, Any]
ALL_VERBS = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


class Model(Protocol):
    """What is particular to a kind in one version."""

    selectable: frozenset[str]
    counts_generation: bool

    @property
    def shape(self) -> Shape:
        """How its fields merge."""
        ...

    def read(self, obj: Object, unknown: list[str] | None) -> Object:
        """The object as this version stores it; unknown fields are dropped and reported."""
        ...

    def default(self, obj: Object) -> None:
        """Fill in what the writer left out."""
        ...

    def prepare(self, new: Object, old: Object | None, sub: str) -> None:
        """Take back what this writer may not set."""
        ...

    def check(self, new: Object, old: Object | None, sub: str) -> list[Cause]:
        """Everything wrong with it."""
        ...

    def field(self, obj: Object, path: str) -> str:
        """A field for field selectors, as text."""
        ...


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: ``path`` is JSONPath, or ``cell`` computes it."""

    name: str
    type: str = "string"
    path: str = ""
    description: str = ""
    format: str = ""
    priority: int = 0
    cell: Callable[[Object], Any] | None = None
    age: bool = False  # the path holds a time, shown as how long ago that is


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the scale subresource finds its numbers."""

    spec: str
    status: str
    selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """One kind in one group and version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    store: str
    hub: str  # the apiVersion objects are kept in
    model: Model
    list_kind: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subs: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    custom: bool = False
    scale: ScalePaths | None = None
    deprecated: str = ""
    terminating: bool = False  # its definition is being deleted
    schema: Mapping[str, Any] | None = None  # custom kinds: as declared
    convert: Callable[[Object, str], Object] | None = None
    priority: int = 0  # order of versions in discovery

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def lists(self) -> str:
        return self.list_kind or f"{self.kind}List"

    @property
    def status(self) -> bool:
        return "status" in self.subs

    def to_hub(self, obj: Object) -> Object:
        """As stored."""
        return self.between(obj, self.hub)

    def between(self, obj: Object, api_version: str) -> Object:
        if obj.get("apiVersion") == api_version:
            return obj
        if self.convert is None:
            obj["apiVersion"] = api_version
            return obj
        return self.convert(obj, api_version)


@dataclass(slots=True)
class Registry:
    """Every face served now. Changes when a CRD does."""

    _faces: dict[tuple[str, str, str], Face] = field(default_factory=dict)
    _hubs: dict[str, Face] = field(default_factory=dict)
    epoch: int = 0  # counts changes

    def put(self, faces: Sequence[Face]) -> None:
        for face in faces:
            self._faces[face.group, face.version, face.plural] = face
            if face.api_version == face.hub or face.store not in self._hubs:
                self._hubs[face.store] = face
        self.epoch += 1

    def drop(self, store: str) -> None:
        self._faces = {k: f for k, f in self._faces.items() if f.store != store}
        self._hubs.pop(store, None)
        self.epoch += 1

    def find(self, group: str, version: str, plural: str) -> Face | None:
        return self._faces.get((group, version, plural))

    def hub(self, store: str) -> Face | None:
        """The face in which a stored kind is kept (or any, if that one is not served)."""
        return self._hubs.get(store)

    def hubs(self) -> list[Face]:
        return [self._hubs[store] for store in sorted(self._hubs)]

    def by_kind(self, api_version: str, kind: str) -> Face | None:
        """The face an apiVersion and kind name."""
        return next(
            (f for f in self._faces.values() if f.kind == kind and f.api_version == api_version),
            None,
        )

    def __iter__(self) -> Iterator[Face]:
        return iter(self._faces.values())

    def groups(self) -> dict[str, dict[str, list[Face]]]:
        """Group, version, faces: in the order they are announced."""
        found: dict[str, dict[str, list[Face]]] = {}
        for face in self._faces.values():
            found.setdefault(face.group, {}).setdefault(face.version, []).append(face)
        return found
