"""
Handles get, list and watch, on committed records only.

A list continues at the revision of its first page: the watch cache's history gives the earlier
state of changed keys, so pages are consistent without snapshots. Older revisions get 410.
"""

import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

from moxwell.api import selectors
from moxwell.embedded.apiserver import metadata, status_errors
from moxwell.embedded.apiserver.object_cache import ObjectCache, ObjectRecord, encode
from moxwell.embedded.apiserver.representations import FullRepresentation, Representation
from moxwell.embedded.apiserver.request_info import ApiCall, parse_revision
from moxwell.embedded.apiserver.watches import WatchBuffer, WatchCache, WatchCaches, line

Matches = Callable[[ObjectRecord], bool]
DEFAULT_WATCH_SECONDS = 45 * 60.0


def matcher(call: ApiCall) -> Matches:
    """Compile the selectors of a list or watch to a filter."""
    tests: list[Matches] = []
    if call.namespace and call.resource.namespaced:
        namespace = call.namespace
        tests.append(lambda record: record.namespace == namespace)
    if call.name:
        name = call.name
        tests.append(lambda record: record.name == name)
    try:
        labels = selectors.parse_labels(call.query.get("labelSelector", ""))
        fields = selectors.parse_fields(call.query.get("fieldSelector", ""))
    except selectors.InvalidSelector as error:
        raise status_errors.bad_request(invalid_selector(call, str(error))) from None
    if labels.requirements:
        tests.append(lambda record: labels.matches(record.labels))
    for term in fields.terms:
        tests.append(_field_test(call, term))
    return lambda record: all(test(record) for test in tests)


def _field_test(call: ApiCall, term: selectors.FieldTerm) -> Matches:
    resource, path = call.resource, term.path
    if path == "metadata.name":
        return lambda record: (record.name == term.value) == term.equal
    if path == "metadata.namespace" and resource.namespaced:
        return lambda record: (record.namespace == term.value) == term.equal
    if path not in resource.model.selectable:
        shown = f"field label not supported: {path}"
        if not resource.custom:
            text = (
                f'"{path}" is not a known field selector: only "metadata.name",'
                ' "metadata.namespace"'
            )
            shown = text if not resource.model.selectable else f"field label not supported: {path}"
        raise status_errors.bad_request(shown)
    key = f"field:{resource.api_version}:{path}"

    def test(record: ObjectRecord) -> bool:
        value = record.cached_value(key)
        if value is None:
            obj = resource.between(
                record.object(), resource.api_version if resource.custom else resource.hub
            )
            value = resource.model.field_value(obj, path)
            record.cache_value(key, value)
        return bool(value == term.value) == term.equal

    return test


@dataclass(frozen=True, slots=True)
class _Token:
    """A continue token: the position after ``start`` at ``revision``."""

    revision: int
    start: str

    def text(self) -> str:
        value = {"v": "meta.k8s.io/v1", "rv": self.revision, "start": self.start + "\0"}
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


class _EncodedToken(msgspec.Struct):
    v: str = ""
    rv: int = 0
    start: str = ""


def _token(text: str) -> _Token:
    raw = b""
    try:
        raw = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        value = msgspec.json.decode(raw, type=_EncodedToken)
    except (ValueError, msgspec.MsgspecError) as error:
        typed = isinstance(error, msgspec.ValidationError)
        why = status_errors.shortened(str(error)) if typed else _syntax_error(raw)
        text = f"invalid continue token: continue key is not valid: {why}"
        raise status_errors.bad_request(text) from None
    problem = ""
    if value.v != "meta.k8s.io/v1":
        shown = status_errors.shortened(value.v)
        problem = f"server does not recognize this encoded version {shown}"
    elif not 0 < value.rv < 2**63:
        problem = f"incorrect encoded start resourceVersion (version {value.v})"
    if problem:
        text = f"invalid continue token: continue key is not valid: {problem}"
        raise status_errors.bad_request(text)
    return _Token(value.rv, value.start.removesuffix("\0"))


def _syntax_error(raw: bytes) -> str:
    """Return the message of Go's JSON parser."""
    if not raw:
        return "unexpected end of JSON input"
    shown = chr(raw[0]) if 32 <= raw[0] < 127 else f"\\u{raw[0]:04x}"
    return f"invalid character '{shown}' looking for beginning of value"


def invalid_selector(call: ApiCall, problem: str) -> str:
    """Build the error of an invalid selector, with kube-apiserver's message where known."""
    fields, labels = call.query.get("fieldSelector", ""), call.query.get("labelSelector", "")
    if "field selector" in problem:
        term = next((t for t in fields.split(",") if "=" not in t), fields)
        return f"invalid selector: '{fields}'; can't understand '{term}'"
    words = labels.replace("=", " = ").split()
    if len(words) > 1 and re.fullmatch(r"[\w./-]+", words[1]) and words[1] not in ("in", "notin"):
        known = "in, notin, =, ==, !=, gt, lt"
        return f"unable to parse requirement: found '{words[1]}', expected: {known}"
    found = re.match(r"^'(.*)' is not a label value$", problem)
    if found is not None:
        key = next((t.split("=")[0].rstrip("!") for t in labels.split(",") if found[1] in t), "")
        return (
            f'unable to parse requirement: values[0][{key}]: Invalid value: "{found[1]}":'
            f" {metadata.VALUE_TEXT}"
        )
    return f"unable to parse requirement: {problem}"


class ResourceReader:
    """Handles reads."""

    def __init__(self, cache: ObjectCache, watch_caches: WatchCaches) -> None:
        self._cache, self._watch_caches = cache, watch_caches

    def get(self, call: ApiCall, representation: Representation) -> bytes:
        self._check_resource_version(call)
        key = f"{call.namespace}/{call.name}" if call.resource.namespaced else call.name
        record = self._cache.find(call.resource.group_resource, key)
        if record is None:
            raise status_errors.not_found(call.resource.plural, call.resource.group, call.name)
        body = representation.body(record)
        return body if body.endswith(b"\n") else body + b"\n"

    def _check_resource_version(self, call: ApiCall) -> int | None:
        """Raise if the requested revision is in the future."""
        text = call.query.get("resourceVersion", "")
        if not text or text == "0":
            return None
        asked = _revision(call, text)
        if asked > self._cache.revision:
            raise status_errors.too_large_version(asked, self._cache.revision)
        return asked

    def list(self, call: ApiCall, representation: Representation) -> bytes:
        matches, limit = matcher(call), call.number("limit") or 0
        revision, after = self._position(call)
        prefix = f"{call.namespace}/" if call.namespace and call.resource.namespaced else ""
        found: list[ObjectRecord] = []
        more = False
        for record in self._scan(call.resource.group_resource, revision, prefix, after):
            if matches(record):
                if limit and len(found) == limit:
                    more = True
                    break
                found.append(record)
        meta: dict[str, Any] = {"resourceVersion": str(revision or self._cache.revision)}
        if call.resource.custom and isinstance(representation, FullRepresentation):
            meta["continue"] = ""
        if more:
            at = revision or self._cache.revision
            meta["continue"] = _Token(at, found[-1].key).text()
            if not call.query.get("labelSelector") and not call.query.get("fieldSelector"):
                rest = self._scan(call.resource.group_resource, revision, prefix, found[-1].key)
                meta["remainingItemCount"] = sum(1 for _ in rest)
        return representation.list([representation.item(record) for record in found], meta)

    def _position(self, call: ApiCall) -> tuple[int | None, str]:
        """Return the revision to list at (None: the current one) and the key to continue after."""
        text = call.query.get("continue", "")
        if text:
            if call.query.get("resourceVersion", "") not in ("", "0"):
                raise status_errors.bad_request(
                    "specifying resource version is not allowed when using continue"
                )
            token = _token(text)
            return token.revision, token.start
        asked, match = (
            self._check_resource_version(call),
            call.query.get("resourceVersionMatch", ""),
        )
        if match in ("Exact", "NotOlderThan") and not call.query.get("resourceVersion"):
            raise _bad_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if match == "Exact":
            if asked is None:
                raise _bad_match(
                    'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
                )
            return asked, ""
        if match and match != "NotOlderThan":
            text = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
            cause = status_errors.ErrorCause("FieldValueNotSupported", text, "resourceVersionMatch")
            raise status_errors.invalid("ListOptions", "meta.k8s.io", "", [cause])
        return None, ""

    def _scan(
        self, group_resource: str, revision: int | None, prefix: str, after: str
    ) -> Iterator[ObjectRecord]:
        table = self._cache.table(group_resource)
        if revision is None or revision == self._cache.revision:
            return table.scan(prefix, after)
        then = self._history_at(group_resource, revision)
        return (
            self._scan_at(group_resource, then, prefix, after)
            if then
            else table.scan(prefix, after)
        )

    def _history_at(self, group_resource: str, revision: int) -> dict[str, ObjectRecord | None]:
        """Return the records at a revision of keys that changed since."""
        watch_cache = self._watch_caches.watch_cache(group_resource)
        if revision < watch_cache.floor:
            raise status_errors.resource_expired(
                "The provided continue parameter is too old to display a consistent list"
                " result. You can"
                " start a new list without the continue parameter, or use the continue token"
                " in this"
                " response to retrieve the remainder of the results. Continuing with the"
                " provided token"
                " results in an inconsistent list - objects that were created, modified, or deleted"
                " between the time the first chunk was returned and now may show up in the list."
            )
        then: dict[str, ObjectRecord | None] = {}
        for change in watch_cache.history:
            if change.record.revision > revision:
                then.setdefault(change.record.key, change.previous)
        return then

    def _scan_at(
        self, group_resource: str, then: dict[str, ObjectRecord | None], prefix: str, after: str
    ) -> Iterator[ObjectRecord]:
        table = self._cache.table(group_resource)
        found = {r.key: r for r in table.scan(prefix, after) if r.key not in then}
        found |= {
            key: record
            for key, record in then.items()
            if record is not None and key.startswith(prefix) and key > after
        }
        return (found[key] for key in sorted(found))

    def watch(self, call: ApiCall, representation: Representation) -> AsyncIterator[bytes]:
        """Register a watch at once and return its stream."""
        watch_cache, stream = (
            self._watch_caches.watch_cache(call.resource.group_resource),
            WatchBuffer(matcher(call), representation),
        )
        initial, bookmarks = self._initial(call), call.flag("allowWatchBookmarks")
        asked = self._watched_from(call)
        if asked is None or initial:
            found = () if initial is False else self._matching(call, stream)
            lines = (line("ADDED", representation.body(record)) for record in found)
            end = []
            if initial and bookmarks:
                body = representation.bookmark(self._cache.revision, initial_end=True)
                end.append(line("BOOKMARK", body))
            stream.start_with(chain(lines, end))
        else:
            self._resume(watch_cache, stream, asked)
        watch_cache.streams.add(stream)
        seconds = call.number("timeoutSeconds") or DEFAULT_WATCH_SECONDS
        return self._watch_caches.stream(
            call.resource.group_resource, stream, seconds=seconds, bookmarks=bookmarks
        )

    def _matching(self, call: ApiCall, stream: WatchBuffer) -> Sequence[ObjectRecord]:
        prefix = f"{call.namespace}/" if call.namespace and call.resource.namespaced else ""
        table = self._cache.table(call.resource.group_resource)
        return [record for record in table.scan(prefix) if stream.matches(record)]

    def _resume(self, watch_cache: WatchCache, stream: WatchBuffer, asked: int) -> None:
        """Replay missed changes; a watch older than the history gets 410 and ends."""
        try:
            watch_cache.replay(stream, asked)
        except status_errors.StatusError as error:
            stream.push(line("ERROR", encode(error.status())))
            stream.end()

    def _watched_from(self, call: ApiCall) -> int | None:
        """Return the revision a watch resumes from; a future revision is waited for."""
        text = call.query.get("resourceVersion", "")
        if not text or text == "0":
            return None
        return _revision(call, text)

    def _initial(self, call: ApiCall) -> bool | None:
        if "sendInitialEvents" not in call.query:
            return None
        wanted, match = call.flag("sendInitialEvents"), call.query.get("resourceVersionMatch", "")
        if match != "NotOlderThan":
            text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            cause = status_errors.ErrorCause(
                "FieldValueForbidden", f"Forbidden: {text}", "resourceVersionMatch"
            )
            raise status_errors.invalid("ListOptions", "meta.k8s.io", "", [cause])
        return wanted


def _revision(call: ApiCall, text: str) -> int:
    try:
        return parse_revision(text)
    except status_errors.StatusError as error:
        short = status_errors.shortened(text)
        shown = f'resourceVersion: Invalid value: "{short}": {error.message}'
        if call.verb == "watch":
            raise status_errors.unknown_error(shown) from None
        raise status_errors.bad_request(f"invalid resource version: {shown}") from None


def _bad_match(text: str) -> status_errors.StatusError:
    cause = status_errors.ErrorCause(
        "FieldValueForbidden", f"Forbidden: {text}", "resourceVersionMatch"
    )
    return status_errors.invalid("ListOptions", "meta.k8s.io", "", [cause])
