"""
Handles PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.

A patch turns the current object into a new one, which the writer stores like an update.
"""

from typing import Any

from moxwell.embedded.apiserver import (
    jsonpatch,
    limits,
    request_body,
    status_errors,
    strategic_merge,
)
from moxwell.embedded.apiserver.apply import schema_check, tracking
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.object_cache import ObjectRecord, encode, key_of
from moxwell.embedded.apiserver.request_info import ApiCall
from moxwell.embedded.apiserver.writer import ResourceWriter, WriteResult

Object = dict[str, Any]
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TYPES = (JSON_PATCH, MERGE, STRATEGIC, APPLY)


class Patcher:
    """Applies patches."""

    def __init__(self, core: ServerContext, writer: ResourceWriter) -> None:
        self._core, self._writer = core, writer

    def patch(self, call: ApiCall) -> WriteResult:
        kind = request_body.media_type(call.request.headers.get("content-type", ""))
        if kind == STRATEGIC and call.resource.custom:
            raise status_errors.unsupported_media([t for t in TYPES if t != STRATEGIC])
        if kind not in TYPES:
            text = "415: Unsupported Media Type"
            raise status_errors.StatusError(415, "UnsupportedMediaType", text, details={})
        if kind == APPLY:
            return self._apply(call)
        if "force" in call.query:
            text = "Forbidden: may not be specified for non-apply patch"
            cause = status_errors.ErrorCause("FieldValueForbidden", text, "force")
            raise status_errors.invalid("PatchOptions", "meta.k8s.io", "", [cause])
        record = self._writer.current_record(call)
        old = self._writer.current(call, record)
        # A merge patch shares what it leaves alone, which comparisons then recognise at once. A
        # conversion to the storage version may modify the object, so it gets a copy of its own.
        shares = kind == MERGE and call.resource.api_version == call.resource.hub
        live = old if shares else self._writer.current(call, record)
        new = self._patched(call, kind, live)
        if kind == JSON_PATCH:  # other patches cannot nest deeper than the object and the patch
            limits.check_value(new, max_depth=limits.MAX_PATCHED_DEPTH)
        shared = old if shares and call.resource.custom else None
        return self.finish(call, record, old, new, shared)

    def finish(
        self,
        call: ApiCall,
        record: ObjectRecord,
        old: Object,
        new: Object,
        shared: Object | None = None,
    ) -> WriteResult:
        """Store the patched object; it may share parts with ``shared``."""
        if not isinstance(new, dict) or not isinstance(new.get("metadata", {}), dict):
            raise status_errors.bad_request("the patch result is not an object")
        given = new.get("metadata", {}).get("resourceVersion")
        try:
            new = self._writer.decode(call, new, shared=shared)
        except status_errors.StatusError as error:
            raise self._invalid_result(call, error) from None
        if given == str(old["metadata"].get("resourceVersion")):
            new["metadata"].pop("resourceVersion", None)
        self._writer.set_location(call, new)
        return self._writer.replace(call, record, old, new)

    def _invalid_result(
        self, call: ApiCall, error: status_errors.StatusError
    ) -> status_errors.StatusError:
        """Build the error for a patch whose result cannot be decoded."""
        if error.code != 400:
            return error
        why = error.message.partition(": ")[2] or error.message
        shown = encode(call.request.body.decode(errors="replace")).decode()
        cause = status_errors.ErrorCause(
            "FieldValueInvalid", f"Invalid value: {shown}: {why}", "patch"
        )
        return status_errors.invalid("", "", "", [cause])

    def _patched(self, call: ApiCall, kind: str, live: Object) -> Any:
        patch = self._read(call, kind)
        if kind == JSON_PATCH:
            try:
                return jsonpatch.apply_json_patch(live, patch)
            except jsonpatch.PatchFailed:
                raise status_errors.patch_rejected() from None
        if kind == MERGE:
            return jsonpatch.apply_merge_patch(live, patch)
        try:
            return strategic_merge.merge(live, patch, call.resource.model.merge_schema)
        except jsonpatch.PatchFailed as error:
            raise status_errors.unknown_error(str(error)) from None

    def _read(self, call: ApiCall, kind: str) -> Any:
        patch = request_body.decode_patch(call.request.body)
        found = request_body.json_kind(patch)
        wanted = "array" if kind == JSON_PATCH else "object"
        if found != wanted:
            go = "[]handlers.jsonPatchOp" if kind == JSON_PATCH else "map[string]interface {}"
            text = (
                f"error decoding patch: json: cannot unmarshal {found} into Go value of type {go}"
            )
            raise status_errors.bad_request(text)
        return patch

    def _apply(self, call: ApiCall) -> WriteResult:
        config = request_body.decode_apply(call.request.body)
        self._check_options(call, config)
        resource = call.resource
        key = key_of(call.namespace if resource.namespaced else "", call.name)
        record = self._core.cache.find_staged(resource.group_resource, key)
        live = self._writer.current(call, record) if record else None
        if live is None and call.subresource:
            raise status_errors.not_found(resource.plural, resource.group, call.name)
        config = self._typed(call, config)
        self._precondition(call, config, record)
        made = tracking.apply(self._core, call, live, config, force=call.flag("force"))
        return self._finish_apply(call, record, live, made)

    def _check_options(self, call: ApiCall, config: Object) -> None:
        resource = call.resource
        if not call.query.get("fieldManager"):
            cause = status_errors.ErrorCause(
                "FieldValueRequired", "Required value: is required for apply patch", "fieldManager"
            )
            raise status_errors.invalid("PatchOptions", "meta.k8s.io", "", [cause])
        meta = config.get("metadata") or {}
        if not isinstance(meta, dict):
            kind = request_body.json_kind(meta)
            raise status_errors.bad_request(f"metadata: expected an object, got a {kind}")
        if meta.get("managedFields"):
            raise status_errors.bad_request("metadata.managedFields must be nil")
        version, kind = config.get("apiVersion") or "", config.get("kind") or ""
        if kind != resource.kind:
            group, _, short = version.rpartition("/")
            raise status_errors.bad_request(f"invalid object type: {group}/{short}, Kind={kind}")
        if version != resource.api_version:
            raise status_errors.bad_request(
                f"Incorrect version specified in apply patch. Specified patch version: {version},"
                f" expected: {resource.api_version}"
            )
        name = meta.get("name")
        if not name:
            raise status_errors.bad_request(
                f"the name of the object ({call.name} based on URL) was undeterminable: name"
                " must be"
                " provided"
            )
        if name != call.name:
            raise status_errors.bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({call.name})"
            )

    def _typed(self, call: ApiCall, config: Object) -> Object:
        """Check an applied configuration for unknown fields, without defaulting it."""
        resource, meta = call.resource, config.setdefault("metadata", {})
        wrong = schema_check.problems(config, resource.model.merge_schema)
        if wrong:
            where = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
            kind = f"{resource.group}/{resource.version}, Kind={resource.kind}"
            listed = wrong[0] if len(wrong) == 1 else "errors:\n  " + "\n  ".join(wrong)
            text = f"failed to create typed patch object ({where}; {kind}): {listed}"
            raise status_errors.unknown_error(text)
        self._writer.check_fields(call, config)
        meta["name"] = call.name
        if resource.namespaced:
            given = meta.setdefault("namespace", call.namespace)
            if given != call.namespace:
                raise status_errors.bad_request(
                    "the namespace of the provided object does not match the namespace sent"
                    " on the request"
                )
        return config

    def _precondition(self, call: ApiCall, config: Object, record: ObjectRecord | None) -> None:
        resource, meta = call.resource, config["metadata"]
        uid, version = meta.pop("uid", None), meta.pop("resourceVersion", None)
        meta.pop("creationTimestamp", None)
        meta.pop("generation", None)
        if record is None:
            if uid or version:
                raise status_errors.conflict(
                    resource.plural,
                    resource.group,
                    call.name,
                    f"uid mismatch: the provided object specified uid {uid}, and no existing"
                    " object was found",
                )
            return
        if version and version != str(record.revision):
            raise status_errors.object_modified(resource.plural, resource.group, call.name)
        if uid and uid != record.uid:
            why = (
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
            )
            raise status_errors.conflict(resource.plural, resource.group, call.name, why)

    def _finish_apply(
        self, call: ApiCall, record: ObjectRecord | None, live: Object | None, made: Object
    ) -> WriteResult:
        fields = made["metadata"].get("managedFields")
        # An applied custom resource is not decoded again: a list that lost its last item is null
        # then and
        # rejected unless the schema is nullable, as in kube-apiserver.
        read = made if call.resource.custom else call.resource.model.decode(made, None)
        call.resource.model.default(read)
        if fields:
            read["metadata"]["managedFields"] = fields
        if record is None or live is None:
            return self._writer.create_applied(call, read)
        return self._writer.replace(call, record, live, read, track=False)
