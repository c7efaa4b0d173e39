"""
Exports all objects of an API as YAML documents and imports them.

Works with any handler: the embedded API server or a kube-apiserver. ``dump`` omits objects that
every cluster creates and fields that the server sets. Portable documents (the default) suit
``kubectl apply``; complete ones keep status, owners and uids, and ``load`` writes owners before
dependents, with the new uids.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import msgspec
import yaml

from moxwell.api.requests import Handler, Request
from moxwell.errors import Invalid, Unreachable

Object = dict[str, Any]
SKIPPED = frozenset(
    ["events", "leases", "endpoints", "endpointslices", "bindings", "csinodes", "pods/binding"]
)
_SERVER = ("resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
_WHOLE = ("uid", "ownerReferences")
_SYSTEM = frozenset(["kube-system", "kube-public", "kube-node-lease"])
_PROTECTION = frozenset(
    ["kubernetes.io/pvc-protection", "kubernetes.io/pv-protection", "kubernetes"]
)
_FIRST = ("namespaces", "customresourcedefinitions", "storageclasses", "priorityclasses")


class ApiRequestFailed(Invalid):
    """The API rejected a request."""

    reason = "ApiRefused"


class ApiSession:
    """Sends requests to a handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def attributes(
        self, method: str, path: str, body: Any = None, **query: str
    ) -> tuple[int, Any]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = Request(
            method=method,
            path=path,
            query=tuple(query.items()),
            headers={
                "content-type": kind,
                "accept": "application/json",
                "user-agent": "moxwell-export",
            },
            body=b"" if body is None else msgspec.json.encode(body),
        )
        answer = await self._handler.handle(request)
        return answer.status, msgspec.json.decode(answer.body) if answer.body.strip() else None

    async def require(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        status, found = await self.attributes(method, path, body, **query)
        if status >= 300:
            message = found.get("message", "") if isinstance(found, dict) else ""
            raise ApiRequestFailed(f"{method} {path}: {status} {message}")
        return found

    async def resources(self) -> list[Object]:
        """List every resource in its preferred version with the path of its group version."""
        groups = (await self.require("GET", "/apis"))["groups"]
        roots = ["/api/v1", *(f"/apis/{g['preferredVersion']['groupVersion']}" for g in groups)]
        found = []
        for root in roots:
            listed = (await self.require("GET", root))["resources"]
            subresources = {r["name"] for r in listed if "/" in r["name"]}
            for row in listed:
                if "/" not in row["name"] and "list" in row["verbs"]:
                    status = f"{row['name']}/status" in subresources
                    found.append({**row, "root": root, "status": status})
        return found


def is_exported(plural: str, obj: Object) -> bool:
    """Report whether an object is the user's and not one that every cluster has."""
    meta = obj["metadata"]
    if meta.get("deletionTimestamp") or meta.get("namespace") in _SYSTEM:
        return False
    if "kubernetes.io/bootstrapping" in (meta.get("labels") or {}):
        return False
    name = meta["name"]
    own = {
        "namespaces": _SYSTEM | {"default"},
        "serviceaccounts": {"default"},
        "configmaps": {"kube-root-ca.crt"},
        "priorityclasses": {"system-node-critical", "system-cluster-critical"},
    }
    return name not in own.get(plural, ())


def without_server_fields(obj: Object, *, complete: bool) -> Object:
    """Remove the fields that only the server sets."""
    meta = {k: v for k, v in obj["metadata"].items() if k not in _SERVER}
    if not complete:
        meta = {k: v for k, v in meta.items() if k not in _WHOLE}
    finalizers = [f for f in meta.pop("finalizers", ()) if f not in _PROTECTION]
    if finalizers:
        meta["finalizers"] = finalizers
    head = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": meta}
    skip = ("metadata",) if complete else ("metadata", "status")
    rest = {k: v for k, v in obj.items() if k not in skip and k not in head}
    if obj["kind"] == "Namespace":
        rest = {}
    if obj["kind"] == "Service":
        rest["spec"] = {
            k: v for k, v in rest["spec"].items() if k not in ("clusterIP", "clusterIPs")
        }
    return {**head, **rest}


def _order(row: Mapping[str, Any]) -> tuple[int, bool, str]:
    name = row["name"]
    return _FIRST.index(name) if name in _FIRST else len(_FIRST), row["namespaced"], name


async def dump(handler: Handler, *, complete: bool = False) -> AsyncIterator[Object]:
    """Yield the objects to export, CRDs and namespaces first."""
    session = ApiSession(handler)
    for row in sorted(await session.resources(), key=_order):
        if row["name"] in SKIPPED:
            continue
        version = row["root"].removeprefix("/apis/").removeprefix("/api/")
        token = ""
        while True:
            query = {"limit": "500", **({"continue": token} if token else {})}
            page = await session.require("GET", f"{row['root']}/{row['name']}", **query)
            for item in page.get("items") or ():
                obj = {**item, "apiVersion": version, "kind": row["kind"]}
                if is_exported(row["name"], obj):
                    yield without_server_fields(obj, complete=complete)
            token = (page.get("metadata") or {}).get("continue", "")
            if not token:
                break


def to_yaml(obj: Object) -> str:
    """Encode one document."""
    return "---\n" + yaml.safe_dump(obj, sort_keys=False, allow_unicode=True)


class ManifestWriter:
    """Writes documents to an API."""

    def __init__(self, handler: Handler) -> None:
        self._session = ApiSession(handler)
        self._rows: dict[tuple[str, str], Object] = {}
        self._uids: dict[str, str] = {}  # old uid to new uid

    async def _row(self, obj: Object) -> Object:
        """Find the resource of an object; a new CRD can take a moment to be served."""
        key = (obj["apiVersion"], obj["kind"])
        for _ in range(50):
            if key not in self._rows:
                await self._discover(obj["apiVersion"])
            if key in self._rows:
                return self._rows[key]
            await asyncio.sleep(0.1)
        raise Unreachable(f"the API does not serve {obj['kind']} of {obj['apiVersion']}")

    async def _discover(self, version: str) -> None:
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        status, found = await self._session.attributes("GET", root)
        if status != 200:
            return
        names = {r["name"] for r in found["resources"]}
        for row in found["resources"]:
            if "/" not in row["name"]:
                more = {"root": root, "status": f"{row['name']}/status" in names}
                self._rows[version, row["kind"]] = {**row, **more}

    async def write(self, obj: Object) -> None:
        """Create the object or update the existing one."""
        row = await self._row(obj)
        meta = dict(obj["metadata"])
        old_uid = meta.pop("uid", "")
        space = f"/namespaces/{meta['namespace']}" if row["namespaced"] else ""
        path = f"{row['root']}{space}/{row['name']}"
        if owners := meta.get("ownerReferences"):
            meta["ownerReferences"] = [
                {**o, "uid": self._uids[o["uid"]]} for o in owners if o["uid"] in self._uids
            ]
        body = {**obj, "metadata": meta}
        status, found = await self._session.attributes("POST", path, body)
        if status == 409:
            found = await self._session.require("PATCH", f"{path}/{meta['name']}", body)
        elif status >= 300:
            text = found.get("message", "") if isinstance(found, dict) else ""
            raise ApiRequestFailed(f"{obj['kind']} {meta['name']}: {text}")
        if old_uid:
            self._uids[old_uid] = found["metadata"]["uid"]
        if obj.get("status") and row["status"]:
            change = {"status": obj["status"]}
            await self._session.require("PATCH", f"{path}/{meta['name']}/status", change)


def owners_first(objects: Iterable[Object]) -> list[Object]:
    """Order objects so that owners precede dependents."""
    listed = list(objects)
    by_uid = {o["metadata"]["uid"]: o for o in listed if o["metadata"].get("uid")}
    done: dict[int, None] = {}
    made: list[Object] = []

    def put(obj: Object) -> None:
        if id(obj) in done:
            return
        done[id(obj)] = None
        for ref in obj["metadata"].get("ownerReferences") or ():
            if ref.get("uid") in by_uid:
                put(by_uid[ref["uid"]])
        made.append(obj)

    for obj in listed:
        put(obj)
    return made


async def load(handler: Handler, objects: Iterable[Object]) -> int:
    """Write all objects; returns their number."""
    writer, count = ManifestWriter(handler), 0
    for obj in owners_first(objects):
        await writer.write(obj)
        count += 1
    return count
