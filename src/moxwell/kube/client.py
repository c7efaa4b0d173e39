"""
``Kube``: the Kubernetes client, for typed objects and for dicts.

A kind is a Struct class declared with ``@kind``, whose objects are instances, or a ``Resource``,
whose objects are dicts. Typed objects hold only some fields, so they are never sent whole:
``update`` sends the difference and ``apply`` the fields we own; only dicts can be replaced.
"""

import copy
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, Unpack, cast, overload

from moxwell.api import json_merge, kinds
from moxwell.api.kinds import Object, Resource
from moxwell.api.requests import Handler
from moxwell.errors import Bug
from moxwell.kube import caller, patch
from moxwell.kube.caller import Caller, selecting, words
from moxwell.kube.codec import Codec, Page
from moxwell.kube.discovery import DiscoveryClient
from moxwell.kube.errors import Gone, NotFound
from moxwell.kube.options import Deleting, Listing, Patching, Terms, Watching
from moxwell.kube.subresources import SubresourceClient
from moxwell.kube.tables import PrinterTables
from moxwell.kube.watch import WatchStream

K = TypeVar("K", bound=Object)
T = TypeVar("T", bound=Object | dict[str, Any])
Json = dict[str, Any]
PAGE = 500


class Kube(SubresourceClient, DiscoveryClient, PrinterTables):
    """A client of one Kubernetes API over any request handler."""

    def __init__(
        self,
        handler: Handler,
        *,
        manager: str = "moxwell",
        deadline: timedelta = timedelta(seconds=30),
        keep_managed_fields: bool = False,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self._caller = Caller(handler, deadline=deadline, warn=warn)
        self._manager = manager
        self._keep, self._strict = keep_managed_fields, False
        self._codecs: dict[Any, Codec[Any]] = {}

    def with_managed_fields(self) -> "Kube":
        """The same client, except that objects read as dicts keep ``metadata.managedFields``."""
        other = copy.copy(self)
        other._keep, other._codecs = True, {}
        return other

    def with_strict_fields(self) -> "Kube":
        """The same client, except that unknown fields of a write are an error, as in kubectl."""
        other = copy.copy(self)
        other._strict = True
        return other

    # Reads

    @overload
    async def get(self, kind: type[K], name: str, namespace: str = "") -> K: ...
    @overload
    async def get(self, kind: Resource, name: str, namespace: str = "") -> Json: ...
    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        """The object; raises ``NotFound``."""
        codec = self._codec(kind)
        answer = await self._caller.call("GET", codec.resource.path(namespace, name))
        return codec.one(answer.body)

    @overload
    async def find(self, kind: type[K], name: str, namespace: str = "") -> K | None: ...
    @overload
    async def find(self, kind: Resource, name: str, namespace: str = "") -> Json | None: ...
    async def find(self, kind: Any, name: str, namespace: str = "") -> Any:
        """The object, or None."""
        try:
            return await self.get(kind, name, namespace)
        except NotFound:
            return None

    @overload
    def pages(
        self, kind: type[K], namespace: str = "", **options: Unpack[Listing]
    ) -> AsyncIterator[Page[K]]: ...
    @overload
    def pages(
        self, kind: Resource, namespace: str = "", **options: Unpack[Listing]
    ) -> AsyncIterator[Page[Json]]: ...
    async def pages(
        self, kind: Any, namespace: str = "", **options: Unpack[Listing]
    ) -> AsyncIterator[Any]:
        """A list page by page; raises ``Gone`` when the continue token expired."""
        codec = self._codec(kind)
        path, more = codec.resource.path(namespace), ""
        select = selecting(options.get("labels", ""), options.get("fields", ""))
        while True:
            start = words(resourceVersion="" if more else options.get("resource_version", ""))
            size = words(limit=options.get("limit", PAGE) or "", continue_=more)
            query = [*size, *start, *select]
            page = codec.page((await self._caller.call("GET", path, query=query)).body)
            yield page
            more = page.metadata.continue_
            if not more:
                return

    @overload
    async def list(
        self, kind: type[K], namespace: str = "", **options: Unpack[Listing]
    ) -> Page[K]: ...
    @overload
    async def list(
        self, kind: Resource, namespace: str = "", **options: Unpack[Listing]
    ) -> Page[Json]: ...
    async def list(self, kind: Any, namespace: str = "", **options: Unpack[Listing]) -> Any:
        """
        The whole list; options as for ``pages``. An expired list is requested again without paging.
        """
        try:
            return _joined([page async for page in self.pages(kind, namespace, **options)])
        except Gone:
            options["limit"], options["resource_version"] = 0, ""
            return _joined([page async for page in self.pages(kind, namespace, **options)])

    @overload
    def watch(
        self, kind: type[K], namespace: str = "", **options: Unpack[Watching]
    ) -> WatchStream[K]: ...
    @overload
    def watch(
        self, kind: Resource, namespace: str = "", **options: Unpack[Watching]
    ) -> WatchStream[Json]: ...
    def watch(
        self, kind: Any, namespace: str = "", **options: Unpack[Watching]
    ) -> WatchStream[Any]:
        """
        Changes from ``resource_version`` on. With ``initial`` (a streaming list) every existing
        object comes first as ADDED, followed by a ``Bookmark`` with ``initial_end``.
        """
        codec = self._codec(kind)
        return WatchStream(
            self._caller,
            codec,
            codec.resource.path(namespace),
            query=selecting(options.get("labels", ""), options.get("fields", "")),
            resource_version=options.get("resource_version", ""),
            initial=options.get("initial", False),
            lasting=options.get("lasting", timedelta(minutes=5)),
        )

    # Writes

    async def create(
        self, obj: T, at: Resource | None = None, *, subresource: str = "", dry_run: bool = False
    ) -> T:
        """Create the object, or a subresource of it; ``at`` is the resource of a dict."""
        codec = self._codec(at or type(obj))
        name = _meta(obj, "name") if subresource else ""
        path = codec.resource.path(_meta(obj, "namespace"), name, subresource)
        return await self._send(codec, "POST", path, obj, dry_run=dry_run)

    async def replace(
        self, obj: T, at: Resource | None = None, *, subresource: str = "", dry_run: bool = False
    ) -> T:
        """Replace the object at the version that was read. Dicts only."""
        if isinstance(obj, Object):
            raise Bug(f"a typed {type(obj).__name__} is not whole: use update or apply")
        codec = self._codec(at or type(obj))
        path = codec.resource.path(_meta(obj, "namespace"), _meta(obj, "name"), subresource)
        return await self._send(codec, "PUT", path, obj, dry_run=dry_run)

    async def update(
        self, old: T, new: T, at: Resource | None = None, **options: Unpack[Patching]
    ) -> T:
        """
        Send the difference; raises a conflict if the object changed since ``old``. Sends nothing if
        equal.
        """
        wanted = patch.changes(old, new)
        if not wanted:
            return new
        version = _meta(old, "resourceVersion")
        precondition = {"metadata": {"resourceVersion": version}} if version else {}
        kind: Any = at or type(old)
        place = (
            _meta(old, "name"),
            json_merge.apply_merge_patch(wanted, precondition),
            _meta(old, "namespace"),
        )
        return cast(T, await self.merge(kind, *place, **options))

    @overload
    async def merge(
        self,
        kind: type[K],
        name: str,
        change: Mapping[str, Any],
        namespace: str = "",
        **o: Unpack[Patching],
    ) -> K: ...
    @overload
    async def merge(
        self,
        kind: Resource,
        name: str,
        change: Mapping[str, Any],
        namespace: str = "",
        **o: Unpack[Patching],
    ) -> Json: ...
    async def merge(
        self,
        kind: Any,
        name: str,
        change: Mapping[str, Any],
        namespace: str = "",
        **options: Unpack[Patching],
    ) -> Any:
        """A JSON merge patch; ``subresource`` and ``dry_run`` are options."""
        return await self._patch(kind, name, namespace, change, caller.MERGE, **options)

    @overload
    async def json_patch(
        self,
        kind: type[K],
        name: str,
        ops: Sequence[Json],
        namespace: str = "",
        **o: Unpack[Patching],
    ) -> K: ...
    @overload
    async def json_patch(
        self,
        kind: Resource,
        name: str,
        ops: Sequence[Json],
        namespace: str = "",
        **o: Unpack[Patching],
    ) -> Json: ...
    async def json_patch(
        self,
        kind: Any,
        name: str,
        ops: Sequence[Json],
        namespace: str = "",
        **options: Unpack[Patching],
    ) -> Any:
        """A JSON patch with operations from :mod:`moxwell.kube.patch`."""
        return await self._patch(kind, name, namespace, ops, caller.JSON_PATCH, **options)

    async def apply(
        self,
        obj: T,
        at: Resource | None = None,
        *,
        force: bool = False,
        manager: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        """
        Server-side apply; fields of other managers raise ApplyConflict unless ``force`` is set.
        """
        codec = self._codec(at or type(obj))
        path = codec.resource.path(_meta(obj, "namespace"), _meta(obj, "name"), subresource)
        query = words(force=force, fieldManager=manager or self._manager)
        return await self._send(
            codec, "PATCH", path, obj, query=query, content=caller.APPLY, dry_run=dry_run
        )

    async def merge_status(self, kind: Any, name: str, change: Any, namespace: str = "") -> Any:
        return await self.merge(kind, name, change, namespace, subresource="status")

    async def delete(
        self,
        kind: type[Object] | Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        **options: Unpack[Deleting],
    ) -> None:
        """Delete the object; ``uid`` is a precondition; options as for ``delete_collection``."""
        guard = {"uid": uid, "resourceVersion": resource_version}
        guard = {key: value for key, value in guard.items() if value}
        path = self._codec(kind).resource.path(namespace, name)
        await self._delete(path, preconditions=guard or None, **options)

    async def delete_collection(
        self,
        kind: type[Object] | Resource,
        namespace: str = "",
        *,
        labels: Terms = "",
        fields: Terms = "",
        **options: Unpack[Deleting],
    ) -> None:
        """
        Delete all matches; ``propagation``: Background, Foreground or Orphan; ``grace`` in seconds.
        """
        path = self._codec(kind).resource.path(namespace)
        await self._delete(path, query=selecting(labels, fields), **options)

    # Internals

    async def _delete(
        self,
        path: str,
        *,
        query: caller.Query = (),
        preconditions: Json | None = None,
        **options: Unpack[Deleting],
    ) -> None:
        wanted = {
            "propagationPolicy": options.get("propagation"),
            "gracePeriodSeconds": options.get("grace"),
            "preconditions": preconditions,
            "dryRun": ["All"] if options.get("dry_run") else None,
        }
        body = {key: value for key, value in wanted.items() if value is not None}
        head = {"apiVersion": "v1", "kind": "DeleteOptions"}
        raw = patch.encode(head | body) if body else b""
        await self._caller.call("DELETE", path, query=query, body=raw)

    async def _patch(
        self,
        kind: Any,
        name: str,
        namespace: str,
        change: Any,
        content: str,
        **options: Unpack[Patching],
    ) -> Any:
        codec = self._codec(kind)
        path = codec.resource.path(namespace, name, options.get("subresource", ""))
        dry = options.get("dry_run", False)
        return await self._send(codec, "PATCH", path, change, content=content, dry_run=dry)

    async def _send(
        self,
        codec: Codec[T],
        method: str,
        path: str,
        payload: Any,
        *,
        query: caller.Query = (),
        content: str = caller.JSON,
        dry_run: bool = False,
    ) -> T:
        checked = "Strict" if self._strict else ""
        asked = [*query, *words(dryRun="All" if dry_run else "", fieldValidation=checked)]
        if not any(word == "fieldManager" for word, _ in asked):
            asked += words(fieldManager=self._manager)
        raw = _body(payload)
        answer = await self._caller.call(method, path, query=asked, body=raw, content=content)
        return codec.one(answer.body)

    def _codec(self, kind: Any) -> Codec[Any]:
        if kind is dict:
            raise Bug("a dict has no resource of its own: say which with at=")
        found = self._codecs.get(kind)
        if found is None:
            found = self._codecs[kind] = Codec(kind, keep_managed_fields=self._keep)
        return found


def _body(payload: Any) -> bytes:
    return kinds.encode(payload) if isinstance(payload, Object) else patch.encode(payload)


def _meta(obj: Object | Mapping[str, Any], field: str) -> str:
    if isinstance(obj, Object):
        meta = obj.metadata
        found = {"namespace": meta.namespace, "name": meta.name}
        return found.get(field, meta.resource_version)
    return str(obj.get("metadata", {}).get(field, ""))


def _joined(pages: Sequence[Page[Any]]) -> Page[Any]:
    if len(pages) == 1:
        return pages[0]
    items = tuple(item for page in pages for item in page.items)
    bad = tuple(item for page in pages for item in page.unreadable)
    return Page(items, pages[-1].metadata, bad)
