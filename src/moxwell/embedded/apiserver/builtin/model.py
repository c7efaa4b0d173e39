"""
The resource model of built-in kinds: Go's encoding and the per-kind functions of this package.
"""

import gzip
import json
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import resources
from typing import Any

from moxwell.embedded.apiserver import merge_schema
from moxwell.embedded.apiserver.builtin import defaults, events, fields, strategy, validation
from moxwell.embedded.apiserver.builtin.columns import COLUMNS
from moxwell.embedded.apiserver.builtin.go_types import GoTypes
from moxwell.embedded.apiserver.builtin.kinds import KINDS, BuiltinKind
from moxwell.embedded.apiserver.resources import Object, ServedResource
from moxwell.embedded.apiserver.status_errors import ErrorCause


def load(name: str) -> Any:
    """Load a table from the package's data."""
    packed = resources.files("moxwell.embedded.apiserver").joinpath("data", name).read_bytes()
    return json.loads(gzip.decompress(packed))


def definition(go_name: str) -> str:
    """Convert a Go type name such as ``k8s.io/api/apps/v1.Deployment`` to its OpenAPI name."""
    package, _, name = go_name.rpartition(".")
    host, _, rest = package.partition("/")
    return ".".join([*reversed(host.split(".")), *rest.split("/"), name])


class BuiltinTypeData:
    """Go types and OpenAPI schemas of all built-in kinds, loaded on first use."""

    @cached_property
    def types(self) -> GoTypes:
        return GoTypes(load("types.json.gz"))

    @cached_property
    def schemas(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = load("openapi.json.gz")
        return found


class BuiltinModel:
    """The resource model of one built-in kind."""

    def __init__(self, row: BuiltinKind, tables: BuiltinTypeData) -> None:
        self._row, self._tables = row, tables
        self.go = row.go
        self._read = tables.types.struct(row.go)
        self._default = defaults.DEFAULTS.get(row.kind)
        self._prepare = strategy.PREPARE_FUNCTIONS.get(row.kind)
        self._check = validation.CHECKS.get(row.kind)
        self.selectable = fields.SELECTABLE.get(row.kind, frozenset())
        self.has_generation = row.generation

    @cached_property
    def merge_schema(self) -> merge_schema.MergeSchema:
        names = self._tables.schemas
        return merge_schema.from_schema(names[definition(self._row.go)], names)

    def decode(self, obj: Object, unknown: list[str] | None) -> Object:
        found: Object = self._read(obj, "", unknown)
        return found

    def default(self, obj: Object) -> None:
        if self._default is not None:
            self._default(obj)

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        if self._prepare is not None:
            self._prepare(new, old, subresource)

    def validate(self, new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
        return [] if self._check is None else self._check(new, old, subresource)

    def field_value(self, obj: Object, path: str) -> str:
        return fields.read(obj, path)


def builtin_resources(tables: BuiltinTypeData) -> list[ServedResource]:
    """Build the served resources of all built-in kinds."""
    return [_served_resource(row, tables) for row in KINDS]


def _served_resource(row: BuiltinKind, tables: BuiltinTypeData) -> ServedResource:
    hub = f"{row.group}/{row.version}" if row.group else row.version
    convert: Callable[[Object, str], Object] | None = None
    if row.kind == "Event":
        hub, convert = "v1", events.convert
    return ServedResource(
        group=row.group,
        version=row.version,
        kind=row.kind,
        plural=row.plural,
        singular=row.kind.lower(),
        namespaced=row.namespaced,
        group_resource=row.storage_group_resource,
        hub=hub,
        model=BuiltinModel(row, tables),
        short=row.short,
        categories=row.categories,
        verbs=row.verbs,
        subresources=row.subresources,
        columns=COLUMNS.get(row.kind, ()),
        convert=convert,
    )
