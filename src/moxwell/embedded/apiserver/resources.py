"""
Served resources: group, version, kind, verbs, and the resource model behind them.

A group resource can be served in several versions (a CRD's versions; ``v1`` and
``events.k8s.io/v1`` Events) but is stored in one, its hub. The registry resolves paths; discovery,
OpenAPI, tables and all verbs use served resources, built-in or custom.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from moxwell.api.kinds import ScalePaths
from moxwell.embedded.apiserver.merge_schema import MergeSchema
from moxwell.embedded.apiserver.status_errors import ErrorCause

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


class ResourceModel(Protocol):
    """The functions of a kind in one version: decoding, defaulting, preparation, validation."""

    selectable: frozenset[str]
    has_generation: bool

    @property
    def merge_schema(self) -> MergeSchema:
        """The merge schema of the kind."""
        ...

    def decode(self, obj: Object, unknown: list[str] | None) -> Object:
        """Decode an object; unknown fields are dropped and reported."""
        ...

    def default(self, obj: Object) -> None:
        """Set defaults."""
        ...

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        """Reset the fields that this writer may not set."""
        ...

    def validate(self, new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
        """Validate the object."""
        ...

    def field_value(self, obj: Object, path: str) -> str:
        """Return a field's text for field selectors."""
        ...


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A table column; ``path`` is a JSONPath, or ``cell`` computes the value."""

    name: str
    type: str = "string"
    path: str = ""
    description: str = ""
    format: str = ""
    priority: int = 0
    cell: Callable[[Object], Any] | None = None
    age: bool = False  # the path holds a time, shown as an age
    until: str = ""  # path of the time at which an age ends


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedResource:
    """A resource in one group and version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    group_resource: str
    hub: str  # the storage apiVersion
    model: ResourceModel
    list_kind: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[str, ...] = ()
    columns: tuple[TableColumn, ...] = ()
    custom: bool = False
    scale: ScalePaths | None = None
    deprecated: str = ""
    terminating: bool = False  # its CRD is being deleted
    schema: Mapping[str, Any] | None = None  # the declared schema of a custom resource
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
        return "status" in self.subresources

    def to_hub(self, obj: Object) -> Object:
        """Convert an object to the storage version."""
        return self.between(obj, self.hub)

    def between(self, obj: Object, api_version: str) -> Object:
        if obj.get("apiVersion") == api_version:
            return obj
        if self.convert is None:
            obj["apiVersion"] = api_version
            return obj
        return self.convert(obj, api_version)


@dataclass(slots=True)
class ResourceRegistry:
    """All served resources."""

    _resources: dict[tuple[str, str, str], ServedResource] = field(default_factory=dict)
    _hubs: dict[str, ServedResource] = field(default_factory=dict)
    epoch: int = 0  # counts changes

    def put(self, resources: Sequence[ServedResource]) -> None:
        for resource in resources:
            self._resources[resource.group, resource.version, resource.plural] = resource
            if resource.api_version == resource.hub or resource.group_resource not in self._hubs:
                self._hubs[resource.group_resource] = resource
        self.epoch += 1

    def drop(self, group_resource: str) -> None:
        self._resources = {
            k: f for k, f in self._resources.items() if f.group_resource != group_resource
        }
        self._hubs.pop(group_resource, None)
        self.epoch += 1

    def find(self, group: str, version: str, plural: str) -> ServedResource | None:
        return self._resources.get((group, version, plural))

    def hub(self, group_resource: str) -> ServedResource | None:
        """Return the resource in the storage version, or another served version."""
        return self._hubs.get(group_resource)

    def hubs(self) -> list[ServedResource]:
        return [self._hubs[group_resource] for group_resource in sorted(self._hubs)]

    def by_kind(self, api_version: str, kind: str) -> ServedResource | None:
        """Find the resource of an apiVersion and kind."""
        return next(
            (
                f
                for f in self._resources.values()
                if f.kind == kind and f.api_version == api_version
            ),
            None,
        )

    def __iter__(self) -> Iterator[ServedResource]:
        return iter(self._resources.values())

    def groups(self) -> dict[str, dict[str, list[ServedResource]]]:
        """List group, version and resources in discovery order."""
        found: dict[str, dict[str, list[ServedResource]]] = {}
        for resource in self._resources.values():
            found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
        return found
