"""
A small Kubernetes API in memory, for tests of what talks to one.

It answers :class:`moxwell.api.requests.Request` like a genuine apiserver where the runtime looks:
versions and conflicts, merge and JSON patches, the status subresource, generations, finalizers and
deletion, pages with continue tokens, watches with bookmarks, initial events, timeouts and 410. It
knows no schemas: any group and plural exists. What it promises is checked by
:func:`moxwell.testing.kube_contract.check`, which the embedded API passes too.

Faults are made on purpose: ``compact`` forgets history (the next resume gets 410), ``cut`` ends all
watches, ``fail`` answers the next matching request with an error, ``away`` answers nothing at all,
``bookmark`` sends one now.
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
from moxwell.testing.kube_parts import Json, Place, Refused, json_patch, merge, parse_path, status

WRITES = {"POST", "PUT", "PATCH", "DELETE"}


@dataclass(frozen=True, slots=True)
class Event:
    """One line of history."""

    version: int
    table: tuple[str, str]
    type: str
    object: Json
    before: Json | None = None


@dataclass(eq=False, slots=True)
class Stream:
    """One open watch."""

    place: Place
    wants: Callable[[Json], bool]
    lines: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    bookmarks: bool = False

    def offer(self, event: Event) -> None:
        """Pass an event on, as this watcher's selector sees it."""
        place = self.place
        if event.table != (place.group, place.plural):
            return
        if place.namespace and event.object["metadata"].get("namespace", "") != place.namespace:
            return
        now = event.type != "DELETED" and self.wants(event.object)
        before = event.before is not None and self.wants(event.before)
        if now:
            self.put("MODIFIED" if before else "ADDED", event.object)
        elif before:
            self.put("DELETED", event.object)

    def put(self, kind: str, obj: Json) -> None:
        """Send one line."""
        self.lines.put_nowait(msgspec.json.encode({"type": kind, "object": obj}) + b"\n")


class FakeKube:
    """The API; ``handle`` is the only way in for the code under test."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tables: dict[tuple[str, str], dict[tuple[str, str], Json]] = {}
        self._log: list[Event] = []
        self._streams: list[Stream] = []
        self._pages: dict[str, tuple[int, list[Json]]] = {}
        self._faults: list[tuple[Callable[[Request], bool], int, str]] = []
        self.version = 1
        self.floor = 0
        self.away = False  # nobody answers
        self.requests: list[Request] = []

    async def handle(self, request: Request) -> Response:
        """Answer one request."""
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.away:
            await asyncio.Event().wait()
        try:
            self._fault(request)
            place = parse_path(request.path)
            query = dict(request.query)
            if request.method == "GET" and query.get("watch") in ("1", "true"):
                return self._watch(place, query)
            return _json(200, self._answer(request, place, query))
        except Refused as refused:
            return _json(refused.code, status(refused.code, refused.reason, refused.message))

    # ---- faults and views for tests

    def compact(self) -> None:
        """Forget history: whoever resumes from an older version gets 410."""
        self.floor = self.version
        self._log.clear()
        self._pages.clear()

    def cut(self) -> None:
        """End every open watch, as a restarting apiserver does."""
        for stream in self._streams:
            stream.lines.put_nowait(None)

    def fail(self, when: Callable[[Request], bool], code: int = 500, reason: str = "") -> None:
        """Answer the next request for which ``when`` holds with this error."""
        self._faults.append((when, code, reason))

    def bookmark(self) -> None:
        """Tell every watcher that asked how far it has seen."""
        for stream in self._streams:
            if stream.bookmarks:
                stream.put("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def objects(self, plural: str, group: str = "") -> list[Json]:
        """Everything of one resource, sorted by key."""
        table = self._tables.get((group, plural), {})
        return [table[key] for key in sorted(table)]

    def find(self, plural: str, name: str, namespace: str = "", group: str = "") -> Json | None:
        """One object as stored."""
        return self._tables.get((group, plural), {}).get((namespace, name))

    def writes(self) -> list[Request]:
        """The requests so far that were not reads."""
        return [r for r in self.requests if r.method in WRITES]

    # ---- answers

    def _fault(self, request: Request) -> None:
        for fault in self._faults:
            when, code, reason = fault
            if when(request):
                self._faults.remove(fault)
                raise Refused(code, reason or "InternalError", "a fault of the test")

    def _answer(self, request: Request, place: Place, query: dict[str, str]) -> Json:
        body: Any = msgspec.json.decode(request.body) if request.body else None
        match request.method:
            case "GET":
                return self._get(place) if place.name else self._list(place, query)
            case "POST":
                return self._create(place, body)
            case "PUT":
                return self._update(place, body, whole=True)
            case "PATCH":
                return self._patch(place, body, request.headers.get("content-type", ""))
            case "DELETE":
                return self._delete(place, body or {})
        raise Refused(405, "MethodNotAllowed", request.method)

    def _get(self, place: Place) -> Json:
        found = self._table(place).get((place.namespace, place.name))
        if found is None:
            raise Refused(404, "NotFound", f'{place.plural} "{place.name}" not found')
        return found

    def _list(self, place: Place, query: dict[str, str]) -> Json:
        token, limit = query.get("continue", ""), int(query.get("limit") or 0)
        if token:
            if token not in self._pages:
                raise Refused(410, "Expired", "the continue token is too old")
            version, items = self._pages.pop(token)
        else:
            version, items = self.version, list(self._matching(place, query))
        meta: Json = {"resourceVersion": str(version)}
        if limit and len(items) > limit:
            rest = items[limit:]
            items = items[:limit]
            token = base64.b64encode(f"{version}:{len(rest)}:{uuid.uuid4()}".encode()).decode()
            self._pages[token] = (version, rest)
            meta |= {"continue": token, "remainingItemCount": len(rest)}
        return {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items}

    def _matching(self, place: Place, query: dict[str, str]) -> Iterator[Json]:
        wants, table = _wants(query), self._table(place)
        for namespace, name in sorted(table):
            obj = table[namespace, name]
            if (not place.namespace or namespace == place.namespace) and wants(obj):
                yield obj

    def _create(self, place: Place, body: Json) -> Json:
        meta = dict(body.get("metadata", {}))
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = f"{meta['generateName']}{uuid.uuid4().hex[:5]}"
        key = (place.namespace, meta["name"])
        if key in self._table(place):
            raise Refused(409, "AlreadyExists", f'{place.plural} "{key[1]}" already exists')
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now, "generation": 1}
        if place.namespace:
            meta["namespace"] = place.namespace
        made = {**body, "metadata": meta}
        if "." in place.group:  # custom kinds: status only through its subresource
            made.pop("status", None)
        return self._store(place, key, made, None)

    def _patch(self, place: Place, body: Any, content_type: str) -> Json:
        old = self._table(place).get((place.namespace, place.name))
        if content_type == "application/apply-patch+yaml" and old is None:
            return self._create(place, body)
        old = self._get(place)
        if content_type == "application/json-patch+json":
            return self._update(place, json_patch(old, body), whole=True)
        return self._update(place, merge(old, body), whole=True)

    def _update(self, place: Place, new: Json, *, whole: bool) -> Json:
        old = self._get(place)
        asked, have = new["metadata"].get("resourceVersion"), old["metadata"]["resourceVersion"]
        if asked and asked != have:
            raise Refused(409, "Conflict", "the object has been modified; look again")
        if new["metadata"].get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise Refused(409, "Conflict", "Precondition failed: UID")
        result = _status_only(old, new) if place.subresource == "status" else _no_status(old, new)
        if result == old:
            return old
        key = (place.namespace, place.name)
        if result["metadata"].get("deletionTimestamp") and not result["metadata"].get("finalizers"):
            return self._remove(place, key, result)
        return self._store(place, key, result, old)

    def _delete(self, place: Place, options: Json) -> Json:
        if not place.name:
            for obj in list(self._matching(place, {})):
                self._delete(_named(place, obj), options)
            return status(200, "", "", success=True)
        old, key = self._get(place), (place.namespace, place.name)
        asked = options.get("preconditions") or {}
        for name, value in asked.items():
            if old["metadata"].get(name) != value:
                raise Refused(409, "Conflict", f"Precondition failed: {name}")
        if not old["metadata"].get("finalizers"):
            return self._remove(place, key, old)
        if old["metadata"].get("deletionTimestamp"):
            return old
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        meta = old["metadata"] | {"deletionTimestamp": now, "deletionGracePeriodSeconds": 0}
        meta["generation"] += 1
        return self._store(place, key, {**old, "metadata": meta}, old)

    # ---- history

    def _table(self, place: Place) -> dict[tuple[str, str], Json]:
        return self._tables.setdefault((place.group, place.plural), {})

    def _store(self, place: Place, key: tuple[str, str], obj: Json, old: Json | None) -> Json:
        self.version += 1
        obj = {**obj, "metadata": obj["metadata"] | {"resourceVersion": str(self.version)}}
        self._table(place)[key] = obj
        self._tell(place, "ADDED" if old is None else "MODIFIED", obj, old)
        return obj

    def _remove(self, place: Place, key: tuple[str, str], obj: Json) -> Json:
        old = self._table(place).pop(key)
        self.version += 1
        obj = {**obj, "metadata": obj["metadata"] | {"resourceVersion": str(self.version)}}
        self._tell(place, "DELETED", obj, old)
        return obj

    def _tell(self, place: Place, kind: str, obj: Json, before: Json | None) -> None:
        event = Event(self.version, (place.group, place.plural), kind, obj, before)
        self._log.append(event)
        for stream in self._streams:
            stream.offer(event)

    def _watch(self, place: Place, query: dict[str, str]) -> Response:
        stream = Stream(place, _wants(query), bookmarks=query.get("allowWatchBookmarks") == "true")
        since = int(query.get("resourceVersion") or 0)
        if query.get("sendInitialEvents") == "true":
            self._send_initial(stream, place, query)
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

    def _send_initial(self, stream: Stream, place: Place, query: dict[str, str]) -> None:
        for obj in self._matching(place, query):
            stream.put("ADDED", obj)
        annotations = {"k8s.io/initial-events-end": "true"}
        meta = {"resourceVersion": str(self.version), "annotations": annotations}
        stream.put("BOOKMARK", {"metadata": meta})

    async def _lines(self, stream: Stream, seconds: float | None) -> AsyncIterator[bytes]:
        try:
            async with asyncio.timeout(seconds):
                while (line := await stream.lines.get()) is not None:
                    yield line
        except TimeoutError:
            return
        finally:
            self._streams.remove(stream)


def _wants(query: dict[str, str]) -> Callable[[Json], bool]:
    labels = parse_labels(query.get("labelSelector", ""))
    fields = parse_fields(query.get("fieldSelector", ""))

    def wants(obj: Json) -> bool:
        def read(path: str) -> str:
            value: Any = obj
            for part in path.split("."):
                value = value.get(part, {}) if isinstance(value, dict) else {}
            return "" if value == {} else str(value)

        return labels.matches(obj["metadata"].get("labels") or {}) and fields.matches(read)

    return wants


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


def _named(place: Place, obj: Json) -> Place:
    meta = obj["metadata"]
    return Place(place.group, place.version, place.plural, meta.get("namespace", ""), meta["name"])


def _json(code: int, body: Json) -> Response:
    headers = {"content-type": "application/json"}
    return Response(status=code, headers=headers, body=msgspec.json.encode(body))
