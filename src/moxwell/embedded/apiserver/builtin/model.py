"""
The model of a built-in kind: Go's encoding, then the rules of the kind from the modules beside
this one.
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
from moxwell.embedded.apiserver.builtin.kinds import KINDS, Row
from moxwell.embedded.apiserver.resources import Face, Object
from moxwell.embedded.apiserver.status_errors import Cause


def load(name: str) -> Any:
    """A table out of the package's data."""
    packed = resources.files("moxwell.embedded.apiserver").joinpath("data", name).read_bytes()
    return json.loads(gzip.decompress(packed))


def definition(go_name: str) -> str:
    """``k8s.io/api/apps/v1.Deployment`` as OpenAPI names it."""
    package, _, name = go_name.rpartition(".")
    host, _, rest = package.partition("/")
    return ".".join([*reversed(host.split(".")), *rest.split("/"), name])


class Tables:
    """The tables of all built-in kinds, read when first needed."""

    @cached_property
    def types(self) -> GoTypes:
        return GoTypes(load("types.json.gz"))

    @cached_property
    def schemas(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = load("openapi.json.gz")
        return found


class BuiltinModel:
    """One built-in kind."""

    def __init__(self, row: Row, tables: Tables) -> None:
        self._row, self._tables = row, tables
        self.go = row.go
        self._read = tables.types.struct(row.go)
        self._default = defaults.DEFAULTS.get(row.kind)
        self._prepare = strategy.PREPARES.get(row.kind)
        self._check = validation.CHECKS.get(row.kind)
        self.selectable = fields.SELECTABLE.get(row.kind, frozenset())
        self.counts_generation = row.generation

    @cached_property
    def shape(self) -> merge_schema.Shape:
        names = self._tables.schemas
        return merge_schema.from_schema(names[definition(self._row.go)], names)

    def read(self, obj: Object, unknown: list[str] | None) -> Object:
        found: Object = self._read(obj, "", unknown)
        return found

    def default(self, obj: Object) -> None:
        if self._default is not None:
            self._default(obj)

    def prepare(self, new: Object, old: Object | None, sub: str) -> None:
        if self._prepare is not None:
            self._prepare(new, old, sub)

    def check(self, new: Object, old: Object | None, sub: str) -> list[Cause]:
        return [] if self._check is None else self._check(new, old, sub)

    def field(self, obj: Object, path: str) -> str:
        return fields.read(obj, path)


def faces(tables: Tables) -> list[Face]:
    """All built-in kinds."""
    return [_face(row, tables) for row in KINDS]


def _face(row: Row, tables: Tables) -> Face:
    hub = f"{row.group}/{row.version}" if row.group else row.version
    convert: Callable[[Object, str], Object] | None = None
    if row.kind == "Event":
        hub, convert = "v1", events.convert
    return Face(
        group=row.group,
        version=row.version,
        kind=row.kind,
        plural=row.plural,
        singular=row.kind.lower(),
        namespaced=row.namespaced,
        store=row.stored_as,
        hub=hub,
        model=BuiltinModel(row, tables),
        short=row.short,
        categories=row.categories,
        verbs=row.verbs,
        subs=row.subs,
        columns=COLUMNS.get(row.kind, ()),
        convert=convert,
    )
