"""
Serves API discovery, legacy and aggregated, from the resource registry.

Responses are cached until the registry changes.
"""

import base64
import hashlib
from typing import Any

from moxwell.api import requests
from moxwell.embedded.apiserver import representations
from moxwell.embedded.apiserver.crd.definitions import version_order
from moxwell.embedded.apiserver.object_cache import encode
from moxwell.embedded.apiserver.resources import ResourceRegistry, ServedResource

Object = dict[str, Any]
AGGREGATED = ("v2", "v2beta1")
_SCALE = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
_SUBS: dict[str, tuple[Object, tuple[str, ...]]] = {
    "scale": (_SCALE, ("get", "patch", "update")),
    "eviction": ({"group": "policy", "version": "v1", "kind": "Eviction"}, ("create",)),
    "binding": ({"group": "", "version": "v1", "kind": "Binding"}, ("create",)),
    "token": (
        {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"},
        ("create",),
    ),
    "finalize": ({}, ("update",)),
    "status": ({}, ("get", "patch", "update")),
    "approval": ({}, ("get", "patch", "update")),
}
_FIRST = [
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "certificates.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
]


def storage_hash(resource: ServedResource) -> str:
    """Compute the storage version hash."""
    group, _, version = resource.hub.rpartition("/")
    text = f"{group}/{version}/{resource.kind}" if group else f"{version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


class DiscoveryHandler:
    """Handles discovery requests."""

    def __init__(self, registry: ResourceRegistry) -> None:
        self._registry = registry
        self._epoch = -1
        self._cached: dict[str, tuple[bytes, str]] = {}

    def handle(self, request: requests.Request) -> requests.Response | None:
        if self._epoch != self._registry.epoch:
            self._epoch, self._cached = self._registry.epoch, {}
        parts = [part for part in request.path.split("/") if part]
        if parts in (["api"], ["apis"]):
            version = _aggregated(request.headers.get("accept", ""))
            return self._root(request, parts[0], version)
        found = self._old(parts)
        return None if found is None else _json(encode(found) + b"\n", "application/json")

    def _root(self, request: requests.Request, root: str, version: str) -> requests.Response:
        key = f"{root}:{version}"
        if key not in self._cached:
            made = self._new(root, version) if version else self._old([root])
            body = encode(made) + b"\n"
            self._cached[key] = (body, '"' + hashlib.sha256(body).hexdigest().upper() + '"')
        body, tag = self._cached[key]
        if not version:
            return _json(body, "application/json")
        kind = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
        headers = {"content-type": kind, "etag": tag, "vary": "Accept"}
        if request.headers.get("if-none-match") == tag:
            return requests.Response(status=304, headers=headers)
        return requests.Response(status=200, headers=headers, body=body)

    # legacy discovery

    def _old(self, parts: list[str]) -> Object | None:
        groups = self._registry.groups()
        match parts:
            case []:
                return {"paths": sorted(self._paths())}
            case ["api"]:
                address = [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]
                return {
                    "kind": "APIVersions",
                    "versions": ["v1"],
                    "serverAddressByClientCIDRs": address,
                }
            case ["apis"]:
                listed = [_group(name, groups[name]) for name in self._names() if name]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
            case ["apis", group] if group in groups:
                return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
            case ["api", version] if version in groups[""]:
                return _resource_list("", version, groups[""][version])
            case ["apis", group, version] if version in groups.get(group, {}):
                return _resource_list(group, version, groups[group][version])
        return None

    def _paths(self) -> list[str]:
        """List the non-resource paths; Cluster API requests them as a liveness check."""
        found = ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz"]
        for group, versions in self._registry.groups().items():
            root = f"/apis/{group}" if group else "/api"
            found += ([root] if group else []) + [f"{root}/{version}" for version in versions]
        return [*found, "/version"]

    def _names(self) -> list[str]:
        found = self._registry.groups()
        known = [name for name in _FIRST if name in found]
        return ["", *known, *sorted(name for name in found if name and name not in known)]

    # aggregated discovery

    def _new(self, root: str, version: str) -> Object:
        groups = self._registry.groups()
        names = [""] if root == "api" else [name for name in self._names() if name]
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": [_group_item(name, groups[name]) for name in names],
        }


def _json(body: bytes, kind: str) -> requests.Response:
    return requests.Response(
        status=200, headers={"content-type": kind, "vary": "Accept"}, body=body
    )


def _aggregated(accept: str) -> str:
    """Return the requested version of aggregated discovery, or the empty string."""
    for clause in accept.split(","):
        kind, wanted = representations.parameters(clause)
        if kind == "application/json" and wanted.get("g") == "apidiscovery.k8s.io":
            if wanted.get("v") in AGGREGATED and wanted.get("as") == "APIGroupDiscoveryList":
                return wanted["v"]
        elif kind in ("application/json", "*/*"):
            return ""
    return ""


def _group(name: str, versions: dict[str, list[ServedResource]]) -> Object:
    listed = [
        {"groupVersion": f"{name}/{v}", "version": v} for v in sorted(versions, key=version_order)
    ]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource_list(group: str, version: str, resources: list[ServedResource]) -> Object:
    rows = [row for resource in resources for row in _rows(resource)]
    return {
        "kind": "APIResourceList",
        **({"apiVersion": "v1"} if group else {}),
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": rows,
    }


def _rows(resource: ServedResource) -> list[Object]:
    row: Object = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _verbs(resource),
    }
    if resource.short:
        row["shortNames"] = list(resource.short)
    if resource.categories:
        row["categories"] = list(resource.categories)
    if "get" in resource.verbs:
        row["storageVersionHash"] = storage_hash(resource)
    return [row, *(_sub_row(resource, subresource) for subresource in resource.subresources)]


def _sub_row(resource: ServedResource, subresource: str) -> Object:
    about, verbs = _SUBS[subresource]
    row: Object = {
        "name": f"{resource.plural}/{subresource}",
        "singularName": "",
        "namespaced": resource.namespaced,
    }
    if about:
        row |= {k: v for k, v in about.items() if v and k != "kind" and about["group"]}
        row["kind"] = about["kind"]
    else:
        row["kind"] = resource.kind
    return {**row, "verbs": list(verbs)}


def _group_item(name: str, versions: dict[str, list[ServedResource]]) -> Object:
    listed = []
    for version in sorted(versions, key=version_order):
        resources = [_resource_item(resource) for resource in versions[version]]
        listed.append({"version": version, "resources": resources, "freshness": "Current"})
    return {"metadata": {"name": name} if name else {}, "versions": listed}


def _resource_item(resource: ServedResource) -> Object:
    item: Object = {
        "resource": resource.plural,
        "responseKind": _own_kind(resource),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": _verbs(resource),
    }
    if resource.short:
        item["shortNames"] = list(resource.short)
    if resource.categories:
        item["categories"] = list(resource.categories)
    if resource.subresources:
        item["subresources"] = [
            _sub_item(resource, subresource) for subresource in resource.subresources
        ]
    return item


_CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]


def _verbs(resource: ServedResource) -> list[str]:
    return list(_CUSTOM_VERBS) if resource.custom else sorted(resource.verbs)


def _own_kind(resource: ServedResource) -> Object:
    """The response kind of a resource; kinds of the core group omit group and version."""
    return {
        "group": resource.group,
        "version": resource.version if resource.group else "",
        "kind": resource.kind,
    }


def _sub_item(resource: ServedResource, subresource: str) -> Object:
    about, verbs = _SUBS[subresource]
    kind = about or _own_kind(resource)
    return {"subresource": subresource, "responseKind": kind, "verbs": list(verbs)}
