"""
Serves OpenAPI v3: an index and one document per group version.

The content types of a PATCH operation decide how kubectl applies: strategic merge patch is offered
for built-in kinds only. Documents are built on demand and again when a CRD changes.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from moxwell.api import requests
from moxwell.embedded.apiserver import openapi_v2
from moxwell.embedded.apiserver.builtin.model import BuiltinModel, BuiltinTypeData, definition
from moxwell.embedded.apiserver.object_cache import encode
from moxwell.embedded.apiserver.patcher import APPLY, JSON_PATCH, MERGE, STRATEGIC
from moxwell.embedded.apiserver.resources import ResourceRegistry, ServedResource

Object = dict[str, Any]
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_KEEP = "x-kubernetes-preserve-unknown-fields"


def reference(name: str) -> Object:
    return {"$ref": f"#/components/schemas/{name}"}


def custom_name(resource: ServedResource) -> str:
    """Return the schema name of a custom resource: reversed group, version, kind."""
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


class OpenApiHandler:
    """Handles OpenAPI requests."""

    def __init__(self, registry: ResourceRegistry, tables: BuiltinTypeData) -> None:
        self._registry, self._tables = registry, tables
        self._epoch = -1
        self._cached: dict[str, tuple[bytes, str]] = {}

    def handle(self, request: requests.Request) -> requests.Response | None:
        if request.path == "/openapi/v2":
            body = openapi_v2.document(self._registry)
            tag = hashlib.sha256(body).hexdigest().upper()
            return _json(request, body, tag, kind=openapi_v2.CONTENT_TYPE)
        if not request.path.startswith("/openapi/v3"):
            return None
        if self._epoch != self._registry.epoch:
            self._epoch, self._cached = self._registry.epoch, {}
        name = request.path.removeprefix("/openapi/v3").strip("/")
        if not name:
            return _json(request, *self._index(), kind="text/plain; charset=utf-8")
        if name not in self._names():
            return None
        return _json(request, *self._document(name))

    def _names(self) -> dict[str, list[ServedResource]]:
        found: dict[str, list[ServedResource]] = {}
        for resource in self._registry:
            root = (
                f"apis/{resource.group}/{resource.version}"
                if resource.group
                else f"api/{resource.version}"
            )
            found.setdefault(root, []).append(resource)
        return found

    def _index(self) -> tuple[bytes, str]:
        if "" not in self._cached:
            paths = {}
            for name, resources in self._names().items():
                text = repr([(f.kind, f.version, f.schema, f.subresources) for f in resources])
                mark = hashlib.sha256(text.encode()).hexdigest().upper()
                paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={mark}"}
            body = encode({"paths": paths}) + b"\n"
            self._cached[""] = (body, hashlib.sha256(body).hexdigest().upper())
        return self._cached[""]

    def _document(self, name: str) -> tuple[bytes, str]:
        if name not in self._cached:
            body = encode(self._make(self._names()[name])) + b"\n"
            self._cached[name] = (body, hashlib.sha256(body).hexdigest().upper())
        return self._cached[name]

    def _make(self, resources: list[ServedResource]) -> Object:
        schemas: Object = {}
        paths: Object = {}
        for resource in resources:
            name = self._schema(resource, schemas)
            paths |= _paths(resource, name)
        for name in ("DeleteOptions", "Status", "Patch", "ListMeta", "ObjectMeta"):
            self._include(_META + name, schemas)
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "v1.36.3"},
            "paths": dict(sorted(paths.items())),
            "components": {"schemas": dict(sorted(schemas.items()))},
        }

    def _schema(self, resource: ServedResource, schemas: Object) -> str:
        if not resource.custom and isinstance(resource.model, BuiltinModel):
            name = definition(resource.model.go)
            self._include(name, schemas)
            self._include(f"{name}List", schemas)
            return name
        name = custom_name(resource)
        self._include(_META + "ObjectMeta", schemas)
        self._include(_META + "ListMeta", schemas)
        kind = [{"group": resource.group, "version": resource.version, "kind": resource.kind}]
        schemas[name] = custom_schema(resource, kind)
        items = {
            "type": "array",
            "items": reference(name),
            "description": f"List of {resource.plural}.",
        }
        schemas[f"{name}List"] = _list_schema(resource, items)
        return name

    def _include(self, name: str, schemas: Object) -> None:
        """Collect a definition and everything it refers to."""
        known = self._tables.schemas
        todo = [name]
        while todo:
            at = todo.pop()
            if at in schemas or at not in known:
                continue
            schemas[at] = known[at]
            todo += _references(known[at])


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        found = [str(node["$ref"]).rsplit("/", 1)[-1]] if isinstance(node.get("$ref"), str) else []
        return found + [name for value in node.values() for name in _references(value)]
    if isinstance(node, list):
        return [name for value in node for name in _references(value)]
    return []


_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_API_VERSION = (
    "APIVersion defines the versioned schema of this representation of an object. Servers should"
    " convert recognized schemas to the latest internal value, and may reject unrecognized values."
    f" More info: {_CONVENTIONS}#resources"
)
_KIND = (
    "Kind is a string value representing the REST resource this object represents. Servers may"
    " infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase."
    f" More info: {_CONVENTIONS}#types-kinds"
)
_TYPE_META = {
    "apiVersion": {"type": "string", "description": _API_VERSION},
    "kind": {"type": "string", "description": _KIND},
}


def custom_schema(resource: ServedResource, kind: list[Object]) -> Object:
    """Return the declared schema of a custom resource with the object metadata."""
    given: Mapping[str, Any] = resource.schema or {"type": "object", _KEEP: True}
    properties = dict(given.get("properties") or {})
    meta = {
        "allOf": [reference(_META + "ObjectMeta")],
        "description": f"Standard object's metadata. More info: {_CONVENTIONS}#metadata",
    }
    properties |= {**_TYPE_META, "metadata": meta}
    made = {k: v for k, v in given.items() if k != "x-kubernetes-validations"}
    return {**made, "properties": properties, "x-kubernetes-group-version-kind": kind}


def _list_schema(resource: ServedResource, items: Object) -> Object:
    kind = [{"group": resource.group, "version": resource.version, "kind": resource.lists}]
    meta = {"allOf": [reference(_META + "ListMeta")], "description": "Standard list metadata."}
    return {
        "type": "object",
        "description": f"{resource.lists} is a list of {resource.kind}",
        "required": ["items"],
        "properties": {**_TYPE_META, "metadata": meta, "items": items},
        "x-kubernetes-group-version-kind": kind,
    }


def _query(name: str, kind: str, description: str) -> Object:
    schema = {"type": kind, "uniqueItems": True}
    return {"name": name, "in": "query", "description": description, "schema": schema}


_WRITES = [
    _query(
        "dryRun", "string", "When present, indicates that modifications should not be persisted."
    ),
    _query("fieldManager", "string", "The name of the actor that is making these changes."),
    _query("fieldValidation", "string", "What to do with unknown or duplicate fields."),
]


def _operation(
    resource: ServedResource, action: str, name: str, body: Object | None, writes: bool
) -> Object:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    group = resource.group.title().replace(".", "")
    made: Object = {
        "operationId": f"{action}{group}{resource.version}{resource.kind}",
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
        "responses": {
            "200": {
                "description": "OK",
                "content": {"application/json": {"schema": reference(name)}},
            }
        },
    }
    if writes:
        made["parameters"] = list(_WRITES)
    if body is not None:
        made["requestBody"] = {"content": body, "required": True}
    return made


def _paths(resource: ServedResource, name: str) -> Object:
    """Build the operations of a resource, as far as clients read them."""
    root = (
        f"/apis/{resource.group}/{resource.version}"
        if resource.group
        else f"/api/{resource.version}"
    )
    if resource.namespaced:
        root += "/namespaces/{namespace}"
    root = f"{root}/{resource.plural}"
    plain = {"*/*": {"schema": reference(name)}}
    types = [JSON_PATCH, MERGE, APPLY] if resource.custom else [JSON_PATCH, MERGE, STRATEGIC, APPLY]
    patch = {t: {"schema": reference(_META + "Patch")} for t in types}
    collection: Object = {}
    one: Object = {}
    if "create" in resource.verbs:
        collection["post"] = _operation(resource, "post", name, plain, True)
    if "list" in resource.verbs:
        collection["get"] = _operation(resource, "list", f"{name}List", None, False)
    if "get" in resource.verbs:
        one["get"] = _operation(resource, "get", name, None, False)
        one["put"] = _operation(resource, "put", name, plain, True)
        one["patch"] = _operation(resource, "patch", name, patch, True)
        one["patch"]["parameters"].append(
            _query("force", "boolean", "Force is going to force Apply requests.")
        )
        one["delete"] = _operation(resource, "delete", _META + "Status", None, True)
    found = {root: collection}
    return {**found, f"{root}/{{name}}": one} if one else found


def _json(
    request: requests.Request, body: bytes, tag: str, kind: str = "application/json"
) -> requests.Response:
    headers = {"content-type": kind, "etag": f'"{tag}"', "vary": "Accept"}
    if request.headers.get("if-none-match") == f'"{tag}"':
        return requests.Response(status=304, headers=headers)
    return requests.Response(status=200, headers=headers, body=body)
