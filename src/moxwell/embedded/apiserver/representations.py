"""
Representations of objects in responses: complete, metadata only, or a table, chosen by ``Accept``.

Stored bytes are passed on unchanged where possible; other renderings are cached with the record.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moxwell.embedded.apiserver import status_errors, tables
from moxwell.embedded.apiserver.object_cache import ObjectRecord, decode, encode
from moxwell.embedded.apiserver.resources import ServedResource

INITIAL_END = "k8s.io/initial-events-end"
JSON_TYPE = "application/json"


class FullRepresentation:
    """Complete objects in the version of the resource."""

    content_type = JSON_TYPE

    def __init__(self, resource: ServedResource) -> None:
        self.resource = resource
        self.key = f"whole:{resource.api_version}:{id(resource.model)}"
        self._cut = len(encode({"kind": resource.kind, "apiVersion": resource.api_version})) - 1

    def body(self, record: ObjectRecord) -> bytes:
        resource = self.resource
        if record.api_version == resource.api_version and (
            not resource.custom or record.decoded_by is resource.model
        ):
            return record.body
        made = record.cached_value(self.key)
        if made is None:
            made = self._render(record)
            if record.decoded_by is resource.model and record.api_version == resource.api_version:
                return record.body
            record.cache_value(self.key, made)
        found: bytes = made
        return found

    def _render(self, record: ObjectRecord) -> bytes:
        resource = self.resource
        obj = resource.between(decode(record.body), resource.api_version)
        if resource.custom:
            obj = resource.model.decode(obj, None)
            resource.model.default(obj)
        head = {"kind": resource.kind, "apiVersion": resource.api_version}
        made = encode(head | obj)
        if record.api_version == resource.api_version and made == record.body:
            record.decoded_by = resource.model
        return made

    def item(self, record: ObjectRecord) -> bytes:
        """Encode a list item; items of built-in kinds omit apiVersion and kind."""
        body = self.body(record)
        return body if self.resource.custom else b"{" + body[self._cut + 1 :]

    def list(self, items: Iterable[bytes], meta: Mapping[str, Any]) -> bytes:
        resource = self.resource
        head = encode(
            {"kind": resource.lists, "apiVersion": resource.api_version, "metadata": meta}
        )
        return head[:-1] + b',"items":[' + b",".join(items) + b"]}\n"

    def object(self, obj: dict[str, Any]) -> bytes:
        """Encode an object that is not stored (dry run, review)."""
        return encode(obj) + b"\n"

    def bookmark(self, revision: int, *, initial_end: bool) -> bytes:
        return encode(
            {
                "kind": self.resource.kind,
                "apiVersion": self.resource.api_version,
                "metadata": _bookmark_meta(revision, initial_end=initial_end),
            }
        )


def _bookmark_meta(revision: int, *, initial_end: bool) -> dict[str, Any]:
    meta: dict[str, Any] = {"resourceVersion": str(revision)}
    return {**meta, "annotations": {INITIAL_END: "true"}} if initial_end else meta


class MetadataRepresentation:
    """PartialObjectMetadata."""

    def __init__(self, resource: ServedResource) -> None:
        self.resource = resource
        self.key = f"partial:{resource.group}"
        self.content_type = JSON_TYPE

    def body(self, record: ObjectRecord) -> bytes:
        return self.object(decode(record.body)).rstrip()

    item = body

    def object(self, obj: dict[str, Any]) -> bytes:
        head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        return encode({**head, "metadata": obj["metadata"]}) + b"\n"

    def list(self, items: Iterable[bytes], meta: Mapping[str, Any]) -> bytes:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        return encode({**head, "metadata": meta})[:-1] + b',"items":[' + b",".join(items) + b"]}\n"

    def bookmark(self, revision: int, *, initial_end: bool) -> bytes:
        return self.object({"metadata": _bookmark_meta(revision, initial_end=initial_end)}).rstrip()


class TableRepresentation:
    """Tables for ``kubectl get``."""

    def __init__(self, resource: ServedResource, include: str, now: str) -> None:
        self.resource = resource
        self._tabler = tables.TablePrinter(resource, include, now)
        self.key = f"table:{resource.api_version}:{include}:{now}"
        self.content_type = JSON_TYPE
        self._first = True

    def body(self, record: ObjectRecord) -> bytes:
        """Encode one object as a table; only the first table of a watch has columns."""
        return self._table([self.item(record)], {"resourceVersion": str(record.revision)})

    def item(self, record: ObjectRecord) -> bytes:
        obj = self.resource.between(decode(record.body), self.resource.api_version)
        return encode(self._tabler.row(obj))

    def object(self, obj: dict[str, Any]) -> bytes:
        rows = [encode(self._tabler.row(obj))]
        return (
            self._table(rows, {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
            + b"\n"
        )

    def list(self, items: Iterable[bytes], meta: Mapping[str, Any]) -> bytes:
        return self._table(items, meta) + b"\n"

    def _table(self, rows: Iterable[bytes], meta: Mapping[str, Any]) -> bytes:
        head = {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": meta,
            "columnDefinitions": self._tabler.definitions(),
        }
        return encode(head)[:-1] + b',"rows":[' + b",".join(rows) + b"]}"

    def bookmark(self, revision: int, *, initial_end: bool) -> bytes:
        meta = _bookmark_meta(revision, initial_end=initial_end)
        row = {"cells": [], "object": {**tables.PARTIAL, "metadata": meta}}
        return self._table([encode(row)], {"resourceVersion": str(revision)})


Representation = FullRepresentation | MetadataRepresentation | TableRepresentation


def parameters(clause: str) -> tuple[str, dict[str, str]]:
    """Parse a clause of ``Accept`` to media type and parameters."""
    kind, *rest = (part.strip() for part in clause.split(";"))
    found = dict(part.partition("=")[::2] for part in rest)
    return kind.lower(), {k.strip().lower(): v.strip() for k, v in found.items()}


def negotiate(
    accept: str, resource: ServedResource, include: str, now: Callable[[], str]
) -> Representation:
    """Choose the first acceptable representation; only a table asks for the time."""
    for clause in accept.split(",") if accept else ["*/*"]:
        kind, wanted = parameters(clause)
        shown = wanted.get("as", "")
        if kind not in ("*/*", "application/*", JSON_TYPE, ""):
            continue
        if not shown:
            return FullRepresentation(resource)
        if wanted.get("g") != "meta.k8s.io" or wanted.get("v") != "v1":
            continue
        if shown == "Table":
            if include not in ("", "None", "Metadata", "Object"):
                raise status_errors.bad_request(
                    "Unable to convert to Table as requested: includeObject: Invalid value:"
                    f' "{include}":'
                    " must be 'Metadata', 'Object', 'None', or empty"
                )
            return TableRepresentation(resource, include or "Metadata", now())
        if shown in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return MetadataRepresentation(resource)
    raise status_errors.not_acceptable([JSON_TYPE])
