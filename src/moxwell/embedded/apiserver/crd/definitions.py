"""
Registers the resources of CRDs, on start and on every committed change of a CRD.

A CRD is served from the commit of its creation on; its conditions follow (see
:mod:`moxwell.embedded.apiserver.background`). The hook named ``plural.group`` converts between
versions.
"""

import re
from typing import Any

from moxwell.api.kinds import ScalePaths
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.crd.model import CustomModel
from moxwell.embedded.apiserver.hooks import ConvertHook
from moxwell.embedded.apiserver.object_cache import StoredChange
from moxwell.embedded.apiserver.resources import ServedResource, TableColumn

Object = dict[str, Any]
STORE = "customresourcedefinitions.apiextensions.k8s.io"
_VERSION = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")


def version_order(name: str) -> tuple[int, int, int, str]:
    """Sort key of versions in Kubernetes' order: newest stable first, other names last."""
    found = _VERSION.match(name)
    if found is None:
        return (3, 0, 0, name)
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (stage, -int(found[1]), -int(found[3] or 0), name)


class CrdRegistrar:
    """Keeps the resource registry in sync with the CRDs."""

    def __init__(self, core: ServerContext) -> None:
        self._core = core
        self._specs: dict[str, Any] = {}

    def load(self) -> None:
        for record in self._core.cache.table(STORE).scan():
            self._serve(record.object())

    def on_change(self, change: StoredChange) -> None:
        if change.record.group_resource != STORE:
            return
        name = change.record.name
        if change.deleted:
            self._specs.pop(name, None)
            self._core.registry.drop(name)
            self._core.watch_caches.end(name)
        else:
            self._serve(change.record.object())

    def _serve(self, crd: Object) -> None:
        name = crd["metadata"]["name"]
        spec = (crd["spec"], bool(crd["metadata"].get("deletionTimestamp")))
        if self._specs.get(name) == spec or name_conflict(crd, self._core):
            return
        known = name in self._specs
        self._specs[name] = spec
        if known:
            self._core.registry.drop(name)
        self._core.registry.put(crd_resources(crd, self._core))
        if known and not spec[1]:
            self._core.watch_caches.end(name)  # clients watch again and get the new schema


_CONFLICTS = (
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
)


def name_conflict(crd: Object, core: ServerContext) -> tuple[str, str] | None:
    """Return the name of a CRD that another CRD of the group already has, and the reason."""
    names, found = crd["spec"]["names"], None
    others = [
        resource
        for resource in core.registry.hubs()
        if resource.group == crd["spec"]["group"]
        and resource.group_resource != crd["metadata"]["name"]
    ]
    used = {
        "plural": {f.plural for f in others} | {s for f in others for s in (f.singular, *f.short)},
        "singular": {f.singular for f in others}
        | {s for f in others for s in (f.plural, *f.short)},
        "kind": {f.kind for f in others} | {f.lists for f in others},
        "listKind": {f.lists for f in others} | {f.kind for f in others},
    }
    for key, reason in _CONFLICTS:
        if names.get(key) and names[key] in used[key]:
            found = (reason, names[key])
    return found


def crd_resources(crd: Object, core: ServerContext) -> list[ServedResource]:
    """Build the served resources of all served versions."""
    spec = crd["spec"]
    versions = sorted(spec["versions"], key=lambda v: version_order(v["name"]))
    hub = next(v["name"] for v in versions if v.get("storage"))
    meta = core.tables.types.struct("k8s.io/apimachinery/pkg/apis/meta/v1.ObjectMeta")
    convert = core.hooks.converters.get(crd["metadata"]["name"])
    return [
        _served_resource(
            crd,
            version,
            hub,
            CustomModel(version, preserve=_preserves(spec), read_meta=meta),
            convert,
        )
        for version in versions
        if version.get("served")
    ]


def _preserves(spec: Object) -> bool:
    return bool(spec.get("preserveUnknownFields"))


def _served_resource(
    crd: Object, version: Object, hub: str, model: CustomModel, convert: ConvertHook | None
) -> ServedResource:
    spec, names = crd["spec"], crd["spec"]["names"]
    subresources = version.get("subresources") or {}
    warning = ""
    if version.get("deprecated"):
        kind = f"{spec['group']}/{version['name']} {names['kind']}"
        warning = version.get("deprecationWarning") or f"{kind} is deprecated"
    return ServedResource(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec["scope"] == "Namespaced",
        group_resource=crd["metadata"]["name"],
        hub=f"{spec['group']}/{hub}",
        model=model,
        list_kind=names.get("listKind") or f"{names['kind']}List",
        short=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(name for name in ("status", "scale") if name in subresources),
        columns=tuple(_column(c) for c in version.get("additionalPrinterColumns") or ()),
        custom=True,
        scale=_scale(subresources.get("scale")),
        deprecated=warning,
        terminating=bool(crd["metadata"].get("deletionTimestamp")),
        schema=model.schema,
        convert=convert if len(spec["versions"]) > 1 else None,
    )


def _column(column: Object) -> TableColumn:
    return TableColumn(
        column["name"],
        column["type"],
        column["jsonPath"],
        column.get("description") or "",
        column.get("format") or "",
        column.get("priority") or 0,
    )


def _scale(given: Object | None) -> ScalePaths | None:
    if given is None:
        return None
    return ScalePaths(
        given["specReplicasPath"], given["statusReplicasPath"], given.get("labelSelectorPath") or ""
    )
