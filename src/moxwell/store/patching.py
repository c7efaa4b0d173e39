"""
PATCH: four media types, one way. The patch makes a whole object of the live one; the writer does the rest.
"""

from typing import Any

from moxwell.store import bodies, jsonpatch, refusals, strategic
from moxwell.store.calls import Call
from moxwell.store.core import Core
from moxwell.store.ownership import tracking
from moxwell.store.state import Record, key_of
from moxwell.store.writing import Outcome, Writer

Object = dict[str, Any]
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TYPES = (JSON_PATCH, MERGE, STRATEGIC, APPLY)


class Patcher:
    """Carries out patches."""

    def __init__(self, core: Core, writer: Writer) -> None:
        self._core, self._writer = core, writer

    def patch(self, call: Call) -> Outcome:
        kind = bodies.media_type(call.request.headers.get("content-type", ""))
        offered = [t for t in TYPES if t != STRATEGIC or not call.face.custom]
        if kind not in offered and kind != "application/apply-patch+cbor":
            raise refusals.unsupported_media(kind, offered)
        if kind == APPLY:
            return self._apply(call)
        record = self._writer.live(call)
        old = self._writer.seen(call, record)
        new = self._patched(call, kind, self._writer.seen(call, record))
        return self.finish(call, record, old, new)

    def finish(self, call: Call, record: Record, old: Object, new: Object) -> Outcome:
        """The patched object on its way into the store."""
        if not isinstance(new, dict) or not isinstance(new.get("metadata", {}), dict):
            raise refusals.bad_request("the patch leaves no object")
        given = new.get("metadata", {}).get("resourceVersion")
        new = self._writer.understood(call, new)
        if given == str(old["metadata"].get("resourceVersion")):
            new["metadata"].pop("resourceVersion", None)
        if new["metadata"].get("name") != record.name:
            field = "metadata.name"
            cause = refusals.Cause(
                "FieldValueInvalid",
                f'Invalid value: "{new["metadata"].get("name", "")}": field is immutable',
                field,
            )
            raise refusals.invalid(call.face.kind, call.face.group, record.name, [cause])
        return self._writer.replace(call, record, old, new)

    def _patched(self, call: Call, kind: str, live: Object) -> Any:
        patch = bodies.read_json(call.request.body)
        try:
            if kind == JSON_PATCH:
                return jsonpatch.apply(live, patch)
            if not isinstance(patch, dict):
                raise refusals.bad_request("the patch must be an object")
            if kind == MERGE:
                return jsonpatch.merge(live, patch)
            return strategic.merge(live, patch, call.face.model.shape)
        except jsonpatch.PatchFailed as error:
            if kind == JSON_PATCH and "cannot unmarshal" not in str(error):
                text = f"the server rejected our request due to an error in our request: {error}"
                raise refusals.Refused(422, "Invalid", text.split(": ", 1)[0]) from None
            raise refusals.bad_request(str(error)) from None

    def _apply(self, call: Call) -> Outcome:
        config = bodies.read_yaml(call.request.body)
        if not isinstance(config, dict):
            raise refusals.bad_request("the apply configuration must be an object")
        self._check_options(call, config)
        face = call.face
        key = key_of(call.namespace if face.namespaced else "", call.name)
        record = self._core.state.find_staged(face.store, key)
        live = self._writer.seen(call, record) if record else None
        if live is None and call.sub:
            raise refusals.not_found(face.plural, face.group, call.name)
        config = self._typed(call, config)
        self._precondition(call, config, record)
        made = tracking.apply(self._core, call, live, config, force=call.flag("force"))
        return self._finish_apply(call, record, live, made)

    def _check_options(self, call: Call, config: Object) -> None:
        face = call.face
        if not call.query.get("fieldManager"):
            cause = refusals.Cause(
                "FieldValueRequired", "Required value: is required for apply patch", "fieldManager"
            )
            raise refusals.invalid("PatchOptions", "meta.k8s.io", "", [cause])
        if (config.get("metadata") or {}).get("managedFields"):
            raise refusals.bad_request("metadata.managedFields must be nil")
        version = config.get("apiVersion")
        if version != face.api_version:
            raise refusals.bad_request(
                f"Incorrect version specified in apply patch. Specified patch version: {version},"
                f" expected: {face.api_version}"
            )
        name = (config.get("metadata") or {}).get("name")
        if name and name != call.name:
            raise refusals.bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({call.name})"
            )

    def _typed(self, call: Call, config: Object) -> Object:
        """The configuration checked for unknown fields, but neither defaulted nor filled in."""
        face = call.face
        self._writer.understood_only(call, config)
        meta = config.setdefault("metadata", {})
        meta["name"] = call.name
        if face.namespaced:
            given = meta.setdefault("namespace", call.namespace)
            if given != call.namespace:
                raise refusals.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
        return config

    def _precondition(self, call: Call, config: Object, record: Record | None) -> None:
        face, meta = call.face, config["metadata"]
        uid, version = meta.pop("uid", None), meta.pop("resourceVersion", None)
        meta.pop("creationTimestamp", None)
        meta.pop("generation", None)
        if record is None:
            if uid or version:
                raise refusals.conflict(
                    face.plural,
                    face.group,
                    call.name,
                    f"uid mismatch: the provided object specified uid {uid}, and no existing object was found",
                )
            return
        if version and version != str(record.revision):
            raise refusals.stale(face.plural, face.group, call.name)
        if uid and uid != record.uid:
            why = (
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
            )
            raise refusals.conflict(face.plural, face.group, call.name, why)

    def _finish_apply(
        self, call: Call, record: Record | None, live: Object | None, made: Object
    ) -> Outcome:
        fields = made["metadata"].get("managedFields")
        read = call.face.model.read(made, None)
        call.face.model.default(read)
        if fields:
            read["metadata"]["managedFields"] = fields
        if record is None or live is None:
            return self._writer.create_applied(call, read)
        return self._writer.replace(call, record, live, read, track=False)
