"""
DELETE: at once, or by finalizers. Propagation, preconditions, collections.

An object with finalizers only gets a deletion timestamp; it goes when a later write removes the
last of them. ``Foreground`` and ``Orphan`` are finalizers that the collector works off.
"""

from typing import Any

from moxwell.embedded.apiserver import request_body, status_errors
from moxwell.embedded.apiserver.core import Core
from moxwell.embedded.apiserver.object_cache import Record
from moxwell.embedded.apiserver.reader import matcher
from moxwell.embedded.apiserver.request_info import Call
from moxwell.embedded.apiserver.writer import Outcome, Writer, admit

Object = dict[str, Any]
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
SHOWN = frozenset(
    [
        "Pod",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PodTemplate",
        "ResourceQuota",
        "ServiceAccount",
        "StorageClass",
        "CSINode",
        "CSIDriver",
        "VolumeAttachment",
        "CSIStorageCapacity",
    ]
)  # deletions of these are answered with the object


class Remover:
    """Deletes."""

    def __init__(self, core: Core, writer: Writer) -> None:
        self._core, self._writer = core, writer
        writer.removed = self.vanish

    def delete(self, call: Call, options: Object) -> tuple[int, Object]:
        """The answer: the object while it is still there, else a success."""
        record = self._writer.live(call)
        return self.remove(call, record, options)

    def remove(self, call: Call, record: Record, options: Object) -> tuple[int, Object]:
        core, face = self._core, call.face
        self._preconditions(call, record, options)
        old = core.seen(face, record)
        admit(core, call, core.review(call, None, old))
        if face.kind == "Namespace" and not face.group:
            self._protect(record)
        new = self._marked(call, old, options)
        meta = new["metadata"]
        if meta.get("finalizers") or not core.may_vanish(face, new):
            return 200, self._delay(call, record, old, new)
        if face.kind in SHOWN and not face.custom:
            shown = new if face.kind == "Pod" else old
            if not call.dry_run:
                made = self._drop(call, shown, record)
                shown["metadata"]["resourceVersion"] = str(made.revision)
            return 200, shown
        if not call.dry_run:
            self._drop(call, old, record)
        return 200, self._success(call, record)

    def _protect(self, record: Record) -> None:
        if record.name in ("default", "kube-system", "kube-public"):
            raise status_errors.forbidden(
                "namespaces", "", record.name, "this namespace may not be deleted"
            )

    def _preconditions(self, call: Call, record: Record, options: Object) -> None:
        face, wanted = call.face, options.get("preconditions") or {}
        uid, version = wanted.get("uid"), wanted.get("resourceVersion")
        if uid is not None and uid != record.uid:
            why = (
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
            )
            raise status_errors.conflict(face.plural, face.group, record.name, why, kind=face.kind)
        if version is not None and version != str(record.revision):
            why = (
                f"Precondition failed: ResourceVersion in precondition: {version}, "
                f"ResourceVersion in object meta: {record.revision}"
            )
            raise status_errors.conflict(face.plural, face.group, record.name, why, kind=face.kind)

    def _marked(self, call: Call, old: Object, options: Object) -> Object:
        """The object with what a deletion adds to it."""
        meta = dict(old["metadata"])
        finalizers = _finalizers(meta.get("finalizers") or [], options)
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        if not meta.get("deletionTimestamp"):
            meta["deletionTimestamp"] = self._core.now()
            meta["deletionGracePeriodSeconds"] = self._grace(call, old, options)
            if "generation" in meta:
                meta["generation"] += 1
            if call.face.kind == "CustomResourceDefinition":
                return self._terminating({**old, "metadata": meta})
        elif call.face.kind == "Pod" and options.get("gracePeriodSeconds") == 0:
            meta["deletionGracePeriodSeconds"] = 0
        return {**old, "metadata": meta}

    def _terminating(self, crd: Object) -> Object:
        """A definition goes when its objects are gone."""
        meta, status = crd["metadata"], crd.get("status") or {}
        meta["finalizers"] = [*(meta.get("finalizers") or []), CLEANUP]
        text = "CustomResource deletion is in progress"
        made = {"type": "Terminating", "status": "True", "lastTransitionTime": self._core.now()}
        made |= {"reason": "InstanceDeletionInProgress", "message": text}
        others = [c for c in status.get("conditions") or () if c["type"] != "Terminating"]
        return {**crd, "status": {**status, "conditions": [*others, made]}}

    def _grace(self, call: Call, old: Object, options: Object) -> int:
        """Only a Pod on a node has somebody who would use the time."""
        spec, status = old.get("spec") or {}, old.get("status") or {}
        if call.face.kind != "Pod" or call.face.group or not spec.get("nodeName"):
            return 0
        if status.get("phase") in ("Failed", "Succeeded"):
            return 0
        asked = options.get("gracePeriodSeconds")
        found: int = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
        return max(found, 0)

    def _delay(self, call: Call, record: Record, old: Object, new: Object) -> Object:
        core, face = self._core, call.face
        if face.kind == "Namespace" and not face.group:
            new["status"] = {**(new.get("status") or {}), "phase": "Terminating"}
        before = old["metadata"]
        if before == new["metadata"] or call.dry_run:
            return new
        made = core.put(face, face.to_hub({**new, "metadata": dict(new["metadata"])}), record)
        new["metadata"]["resourceVersion"] = str(made.revision)
        return new

    def _drop(self, call: Call, obj: Object, record: Record) -> Record:
        face = call.face
        hub = face.to_hub({**obj, "metadata": dict(obj["metadata"])})
        return self._core.commits.drop(face.store, hub, record)

    def vanish(self, call: Call, obj: Object, record: Record) -> Outcome:
        """The last finalizer is gone: so is the object."""
        if call.dry_run:
            return Outcome(200, obj, None)
        self._drop(call, obj, record)
        obj["metadata"]["resourceVersion"] = str(record.revision)
        return Outcome(200, obj, None)

    def _success(self, call: Call, record: Record) -> Object:
        face = call.face
        details = {"name": record.name, "group": face.group, "kind": face.plural, "uid": record.uid}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {k: v for k, v in details.items() if v},
        }

    def delete_collection(self, call: Call, options: Object) -> list[Record]:
        """Everything the selectors match; returns what it was."""
        wants = matcher(call)
        prefix = f"{call.namespace}/" if call.namespace and call.face.namespaced else ""
        found = [r for r in self._core.state.scan_staged(call.face.store, prefix) if wants(r)]
        for record in found:
            self.remove(call, record, options)
        return found


def _finalizers(have: list[str], options: Object) -> list[str]:
    """Those of the object, with the ones the propagation policy asks for."""
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    kept = [name for name in have if name not in (ORPHAN, FOREGROUND)]
    if policy == "Orphan" or orphan is True:
        return [*kept, ORPHAN]
    if policy == "Foreground":
        return [*kept, FOREGROUND]
    if policy == "Background" or orphan is False:
        return kept
    return have


def options_of(call: Call, from_protobuf: request_body.FromProtobuf) -> Object:
    """DeleteOptions from body and query."""
    options: Object = {}
    if call.request.body.strip():
        kind = call.request.headers.get("content-type", "")
        options = request_body.read(call.request.body, kind, from_protobuf)
        if options.get("kind", "DeleteOptions") != "DeleteOptions":
            what = f'{options["kind"]} in version "{options.get("apiVersion", "")}"'
            raise status_errors.bad_request(
                f"{what} cannot be handled as a DeleteOptions: unknown conversion"
            )
    if "propagationPolicy" in call.query:
        options["propagationPolicy"] = call.query["propagationPolicy"]
    if "gracePeriodSeconds" in call.query:
        options["gracePeriodSeconds"] = call.number("gracePeriodSeconds")
    if "orphanDependents" in call.query:
        options["orphanDependents"] = call.flag("orphanDependents")
    for name in options.get("dryRun") or ():
        call.query = {**call.query, "dryRun": name}
    _check(options)
    return options


def _check(options: Object) -> None:
    policy = options.get("propagationPolicy")
    if policy is not None and policy not in ("Orphan", "Background", "Foreground"):
        text = (
            f'Unsupported value: "{policy}": supported values: "Foreground", "Background",'
            ' "Orphan", "nil"'
        )
        cause = status_errors.Cause("FieldValueNotSupported", text, "propagationPolicy")
        raise status_errors.invalid("DeleteOptions", "meta.k8s.io", "", [cause])
    if policy is not None and options.get("orphanDependents") is not None:
        text = (
            f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be'
            " both set"
        )
        cause = status_errors.Cause("FieldValueInvalid", text, "propagationPolicy")
        raise status_errors.invalid("DeleteOptions", "meta.k8s.io", "", [cause])
