"""
A fake Kubernetes API in memory, for tests of clients and controllers.

It implements what the runtime depends on: resource versions and conflicts, merge and JSON patches,
the status subresource, generations, finalizers and deletion, pages with continue tokens, watches
with bookmarks, initial events, timeouts and 410. It has no schemas: any group and resource exists.
:func:`moxwell.testing.kube_contract.check` checks it and the embedded API server alike.

Fault injection: ``compact`` drops history (the next resume gets 410), ``end_watches`` ends all
watches, ``fail`` answers the next matching request with an error, ``unreachable`` answers no
request, ``bookmark`` sends a bookmark now.
"""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moxwell.api.requests import Request, Response
from moxwell.api.selectors import parse_fields, parse_labels
from moxwell.clock import Clock
from moxwell.testing.kube_parts import (
    FakeApiError,
    Json,
    ResourcePath,
    apply_json_patch,
    apply_merge_patch,
    parse_path,
    status,
)

WRITES = {"POST", "PUT", "PATCH", "DELETE"}


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One change in the history."""

    version: int
    table: tuple[str, str]
    type: str
    object: Json
    before: Json | None = None


@dataclass(eq=False, slots=True)
class FakeWatch:
    """One open watch."""

    resource_path: ResourcePath
    matches: Callable[[Json], bool]
    lines: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    bookmarks: bool = False

    def offer(self, event: HistoryEvent) -> None:
        """Send an event, if the watch's selector matches."""
        resource_path = self.resource_path
        if event.table != (resource_path.group, resource_path.plural):
            return
        if (
            resource_path.namespace
            and event.object["metadata"].get("namespace", "") != resource_path.namespace
        ):
            return
        now = event.type != "DELETED" and self.matches(event.object)
        before = event.before is not None and self.matches(event.before)
        if now:
            self.put("MODIFIED" if before else "ADDED", event.object)
        elif before:
            self.put("DELETED", event.object)

    def put(self, kind: str, obj: Json) -> None:
        """Send one line."""
        self.lines.put_nowait(msgspec.json.encode({"type": kind, "object": obj}) + b"\n")


class FakeKube:
    """The fake API; code under test uses only ``handle``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tables: dict[tuple[str, str], dict[tuple[str, str], Json]] = {}
        self._log: list[HistoryEvent] = []
        self._streams: list[FakeWatch] = []
        self._pages: dict[str, tuple[int, list[Json]]] = {}
        self._faults: list[tuple[Callable[[Request], bool], int, str]] = []
        self.version = 1
        self.floor = 0
        self.unreachable = False  # no request is answered
        self.requests: list[Request] = []

    async def handle(self, request: Request) -> Response:
        """Handle one request."""
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.unreachable:
            await asyncio.Event().wait()
        try:
            self._fault(request)
            resource_path = parse_path(request.path)
            query = dict(request.query)
            if request.method == "GET" and query.get("watch") in ("1", "true"):
                return self._watch(resource_path, query)
            return _json(200, self._respond(request, resource_path, query))
        except FakeApiError as refused:
            return _json(refused.code, status(refused.code, refused.reason, refused.message))

    # fault injection and inspection

    def compact(self) -> None:
        """Drop the history: a watch from an older version gets 410."""
        self.floor = self.version
        self._log.clear()
        self._pages.clear()

    def end_watches(self) -> None:
        """End every open watch, as a restarting API server does."""
        for stream in self._streams:
            stream.lines.put_nowait(None)

    def fail(self, when: Callable[[Request], bool], code: int = 500, reason: str = "") -> None:
        """Answer the next request that satisfies ``when`` with this error."""
        self._faults.append((when, code, reason))

    def clear_faults(self) -> None:
        """Forget the errors of :meth:`fail` that have not been answered yet."""
        self._faults.clear()

    def bookmark(self) -> None:
        """Send a bookmark to every watch that asked for bookmarks."""
        for stream in self._streams:
            if stream.bookmarks:
                stream.put("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def objects(self, plural: str, group: str = "") -> list[Json]:
        """Return all objects of a resource, sorted by key."""
        table = self._tables.get((group, plural), {})
        return [table[key] for key in sorted(table)]

    def find(self, plural: str, name: str, namespace: str = "", group: str = "") -> Json | None:
        """Return one stored object."""
        return self._tables.get((group, plural), {}).get((namespace, name))

    def writes(self) -> list[Request]:
        """Return the requests so far that were writes."""
        return [r for r in self.requests if r.method in WRITES]

    # responses

    def _fault(self, request: Request) -> None:
        for fault in self._faults:
            when, code, reason = fault
            if when(request):
                self._faults.remove(fault)
                raise FakeApiError(code, reason or "InternalError", "a fault of the test")

    def _respond(
        self, request: Request, resource_path: ResourcePath, query: dict[str, str]
    ) -> Json:
        body: Any = msgspec.json.decode(request.body) if request.body else None
        match request.method:
            case "GET":
                return (
                    self._get(resource_path)
                    if resource_path.name
                    else self._list(resource_path, query)
                )
            case "POST":
                return self._create(resource_path, body)
            case "PUT":
                return self._update(resource_path, body, replace=True)
            case "PATCH":
                return self._patch(resource_path, body, request.headers.get("content-type", ""))
            case "DELETE":
                return self._delete(resource_path, body or {})
        raise FakeApiError(405, "MethodNotAllowed", request.method)

    def _get(self, resource_path: ResourcePath) -> Json:
        found = self._table(resource_path).get((resource_path.namespace, resource_path.name))
        if found is None:
            raise FakeApiError(
                404, "NotFound", f'{resource_path.plural} "{resource_path.name}" not found'
            )
        return found

    def _list(self, resource_path: ResourcePath, query: dict[str, str]) -> Json:
        token, limit = query.get("continue", ""), int(query.get("limit") or 0)
        if token:
            if token not in self._pages:
                raise FakeApiError(410, "Expired", "the continue token is too old")
            version, items = self._pages.pop(token)
        else:
            version, items = self.version, list(self._matching(resource_path, query))
        meta: Json = {"resourceVersion": str(version)}
        if limit and len(items) > limit:
            rest = items[limit:]
            items = items[:limit]
            token = base64.b64encode(f"{version}:{len(rest)}:{uuid.uuid4()}".encode()).decode()
            self._pages[token] = (version, rest)
            meta |= {"continue": token, "remainingItemCount": len(rest)}
        return {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items}

    def _matching(self, resource_path: ResourcePath, query: dict[str, str]) -> Iterator[Json]:
        matches, table = _matcher(query), self._table(resource_path)
        for namespace, name in sorted(table):
            obj = table[namespace, name]
            if (not resource_path.namespace or namespace == resource_path.namespace) and matches(
                obj
            ):
                yield obj

    def _create(self, resource_path: ResourcePath, body: Json) -> Json:
        meta = dict(body.get("metadata", {}))
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = f"{meta['generateName']}{uuid.uuid4().hex[:5]}"
        key = (resource_path.namespace, meta["name"])
        if key in self._table(resource_path):
            raise FakeApiError(
                409, "AlreadyExists", f'{resource_path.plural} "{key[1]}" already exists'
            )
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now, "generation": 1}
        if resource_path.namespace:
            meta["namespace"] = resource_path.namespace
        made = {**body, "metadata": meta}
        if "." in resource_path.group:  # custom resources: status only through its subresource
            made.pop("status", None)
        return self._store(resource_path, key, made, None)

    def _patch(self, resource_path: ResourcePath, body: Any, content_type: str) -> Json:
        old = self._table(resource_path).get((resource_path.namespace, resource_path.name))
        if content_type == "application/apply-patch+yaml" and old is None:
            return self._create(resource_path, body)
        old = self._get(resource_path)
        if content_type == "application/json-patch+json":
            return self._update(resource_path, apply_json_patch(old, body), replace=True)
        return self._update(resource_path, apply_merge_patch(old, body), replace=True)

    def _update(self, resource_path: ResourcePath, new: Json, *, replace: bool) -> Json:
        old = self._get(resource_path)
        requested, have = new["metadata"].get("resourceVersion"), old["metadata"]["resourceVersion"]
        if requested and requested != have:
            raise FakeApiError(409, "Conflict", "the object has been modified; look again")
        if new["metadata"].get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise FakeApiError(409, "Conflict", "Precondition failed: UID")
        result = (
            _status_only(old, new)
            if resource_path.subresource == "status"
            else _no_status(old, new)
        )
        if result == old:
            return old
        key = (resource_path.namespace, resource_path.name)
        if result["metadata"].get("deletionTimestamp") and not result["metadata"].get("finalizers"):
            return self._remove(resource_path, key, result)
        return self._store(resource_path, key, result, old)

    def _delete(self, resource_path: ResourcePath, options: Json) -> Json:
        if not resource_path.name:
            for obj in list(self._matching(resource_path, {})):
                self._delete(_named(resource_path, obj), options)
            return status(200, "", "", success=True)
        old, key = self._get(resource_path), (resource_path.namespace, resource_path.name)
        requested = options.get("preconditions") or {}
        for name, value in requested.items():
            if old["metadata"].get(name) != value:
                raise FakeApiError(409, "Conflict", f"Precondition failed: {name}")
        if not old["metadata"].get("finalizers"):
            return self._remove(resource_path, key, old)
        if old["metadata"].get("deletionTimestamp"):
            return old
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        meta = old["metadata"] | {"deletionTimestamp": now, "deletionGracePeriodSeconds": 0}
        meta["generation"] += 1
        return self._store(resource_path, key, {**old, "metadata": meta}, old)

    # history

    def _table(self, resource_path: ResourcePath) -> dict[tuple[str, str], Json]:
        return self._tables.setdefault((resource_path.group, resource_path.plural), {})

    def _store(
        self, resource_path: ResourcePath, key: tuple[str, str], obj: Json, old: Json | None
    ) -> Json:
        self.version += 1
        obj = {**obj, "metadata": obj["metadata"] | {"resourceVersion": str(self.version)}}
        self._table(resource_path)[key] = obj
        self._publish(resource_path, "ADDED" if old is None else "MODIFIED", obj, old)
        return obj

    def _remove(self, resource_path: ResourcePath, key: tuple[str, str], obj: Json) -> Json:
        old = self._table(resource_path).pop(key)
        self.version += 1
        obj = {**obj, "metadata": obj["metadata"] | {"resourceVersion": str(self.version)}}
        self._publish(resource_path, "DELETED", obj, old)
        return obj

    def _publish(
        self, resource_path: ResourcePath, kind: str, obj: Json, before: Json | None
    ) -> None:
        event = HistoryEvent(
            self.version, (resource_path.group, resource_path.plural), kind, obj, before
        )
        self._log.append(event)
        for stream in self._streams:
            stream.offer(event)

    def _watch(self, resource_path: ResourcePath, query: dict[str, str]) -> Response:
        stream = FakeWatch(
            resource_path, _matcher(query), bookmarks=query.get("allowWatchBookmarks") == "true"
        )
        since = int(query.get("resourceVersion") or 0)
        if query.get("sendInitialEvents") == "true":
            self._send_initial(stream, resource_path, query)
        elif since and since < self.floor:
            stream.put("ERROR", status(410, "Expired", "too old resource version"))
            stream.lines.put_nowait(None)
        else:
            for event in self._log:
                if event.version > since:
                    stream.offer(event)
        self._streams.append(stream)
        seconds = float(query.get("timeoutSeconds") or 0) or None
        return Response(status=200, chunks=self._lines(stream, seconds))

    def _send_initial(
        self, stream: FakeWatch, resource_path: ResourcePath, query: dict[str, str]
    ) -> None:
        for obj in self._matching(resource_path, query):
            stream.put("ADDED", obj)
        annotations = {"k8s.io/initial-events-end": "true"}
        meta = {"resourceVersion": str(self.version), "annotations": annotations}
        stream.put("BOOKMARK", {"metadata": meta})

    async def _lines(self, stream: FakeWatch, seconds: float | None) -> AsyncIterator[bytes]:
        try:
            async with asyncio.timeout(seconds):
                while (line := await stream.lines.get()) is not None:
                    yield line
        except TimeoutError:
            return
        finally:
            self._streams.remove(stream)


def _matcher(query: dict[str, str]) -> Callable[[Json], bool]:
    labels = parse_labels(query.get("labelSelector", ""))
    fields = parse_fields(query.get("fieldSelector", ""))

    def matches(obj: Json) -> bool:
        def read(path: str) -> str:
            value: Any = obj
            for part in path.split("."):
                value = value.get(part, {}) if isinstance(value, dict) else {}
            return "" if value == {} else str(value)

        return labels.matches(obj["metadata"].get("labels") or {}) and fields.matches(read)

    return matches


def _status_only(old: Json, new: Json) -> Json:
    kept = {**old}
    if "status" in new:
        kept["status"] = new["status"]
    else:
        kept.pop("status", None)
    return kept


def _no_status(old: Json, new: Json) -> Json:
    fixed = {n: old["metadata"][n] for n in ("uid", "creationTimestamp", "resourceVersion")}
    out = {**new, "metadata": {**new["metadata"], **fixed}}
    out["metadata"]["generation"] = old["metadata"]["generation"]
    if "deletionTimestamp" in old["metadata"]:
        out["metadata"]["deletionTimestamp"] = old["metadata"]["deletionTimestamp"]
    if not out["metadata"].get("finalizers"):
        out["metadata"].pop("finalizers", None)
    out.pop("status", None)
    if "status" in old:
        out["status"] = old["status"]
    if out.get("spec") != old.get("spec"):
        out["metadata"]["generation"] += 1
    return out


def _named(resource_path: ResourcePath, obj: Json) -> ResourcePath:
    meta, path = obj["metadata"], resource_path
    where = (path.group, path.version, path.plural)
    return ResourcePath(*where, meta.get("namespace", ""), meta["name"])


def _json(code: int, body: Json) -> Response:
    headers = {"content-type": "application/json"}
    return Response(status=code, headers=headers, body=msgspec.json.encode(body))
