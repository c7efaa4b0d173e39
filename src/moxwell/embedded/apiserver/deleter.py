"""
Handles DELETE: propagation policy, preconditions, grace periods, collections.

An object with finalizers only gets a deletion timestamp; it is removed when a later write removes
the last finalizer. ``Foreground`` and ``Orphan`` are finalizers that the garbage collector
processes.
"""

from typing import Any

from moxwell.embedded.apiserver import request_body, status_errors, typed_bodies
from moxwell.embedded.apiserver.builtin.go_types import GoTypes
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.object_cache import ObjectRecord
from moxwell.embedded.apiserver.reader import matcher
from moxwell.embedded.apiserver.request_info import ApiCall
from moxwell.embedded.apiserver.writer import ResourceWriter, WriteResult, admit

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
)  # DELETE responds with the object for these


class Deleter:
    """Deletes objects."""

    def __init__(self, core: ServerContext, writer: ResourceWriter) -> None:
        self._core, self._writer = core, writer
        writer.removed = self.delete_finalized

    def delete(self, call: ApiCall, options: Object) -> tuple[int, Object]:
        """Delete one object; returns the object while it exists, else a success Status."""
        record = self._writer.current_record(call)
        return self.remove(call, record, options)

    def remove(self, call: ApiCall, record: ObjectRecord, options: Object) -> tuple[int, Object]:
        core, resource = self._core, call.resource
        self._preconditions(call, record, options)
        old = core.decode(resource, record)
        review = core.review(call, None, old)
        self._writer.restrict(review)
        admit(core, call, review)
        if resource.kind == "Namespace" and not resource.group:
            self._protect(record)
        new = self._with_deletion_metadata(call, old, options)
        meta = new["metadata"]
        if meta.get("finalizers") or not core.can_delete_now(resource, new):
            return 200, self._delay(call, record, old, new)
        if resource.kind in SHOWN and not resource.custom:
            shown = new if resource.kind == "Pod" else old
            if not call.dry_run:
                made = self._drop(call, shown, record)
                shown["metadata"]["resourceVersion"] = str(made.revision)
            return 200, shown
        if not call.dry_run:
            self._drop(call, old, record)
        return 200, self._success(call, record)

    def _protect(self, record: ObjectRecord) -> None:
        if record.name in ("default", "kube-system", "kube-public"):
            raise status_errors.forbidden(
                "namespaces", "", record.name, "this namespace may not be deleted"
            )

    def _preconditions(self, call: ApiCall, record: ObjectRecord, options: Object) -> None:
        resource, wanted = call.resource, options.get("preconditions") or {}
        uid, version = wanted.get("uid"), wanted.get("resourceVersion")
        if uid is not None and uid != record.uid:
            why = (
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
            )
            raise status_errors.conflict(
                resource.plural, resource.group, record.name, why, kind=resource.kind
            )
        if version is not None and version != str(record.revision):
            why = (
                f"Precondition failed: ResourceVersion in precondition: {version}, "
                f"ResourceVersion in object meta: {record.revision}"
            )
            raise status_errors.conflict(
                resource.plural, resource.group, record.name, why, kind=resource.kind
            )

    def _with_deletion_metadata(self, call: ApiCall, old: Object, options: Object) -> Object:
        """Add the deletion timestamp and finalizers."""
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
            if call.resource.kind == "CustomResourceDefinition":
                return self._terminating({**old, "metadata": meta})
        elif call.resource.kind == "Pod" and options.get("gracePeriodSeconds") == 0:
            meta["deletionGracePeriodSeconds"] = 0
        return {**old, "metadata": meta}

    def _terminating(self, crd: Object) -> Object:
        """Set the Terminating condition of a CRD."""
        meta, status = crd["metadata"], crd.get("status") or {}
        meta["finalizers"] = [*(meta.get("finalizers") or []), CLEANUP]
        text = "CustomResource deletion is in progress"
        made = {"type": "Terminating", "status": "True", "lastTransitionTime": self._core.now()}
        made |= {"reason": "InstanceDeletionInProgress", "message": text}
        others = [c for c in status.get("conditions") or () if c["type"] != "Terminating"]
        return {**crd, "status": {**status, "conditions": [*others, made]}}

    def _grace(self, call: ApiCall, old: Object, options: Object) -> int:
        """Compute the grace period; only a Pod on a node has one."""
        spec, status = old.get("spec") or {}, old.get("status") or {}
        if call.resource.kind != "Pod" or call.resource.group or not spec.get("nodeName"):
            return 0
        if status.get("phase") in ("Failed", "Succeeded"):
            return 0
        asked = options.get("gracePeriodSeconds")
        found: int = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
        return max(found, 0)

    def _delay(self, call: ApiCall, record: ObjectRecord, old: Object, new: Object) -> Object:
        core, resource = self._core, call.resource
        if resource.kind == "Namespace" and not resource.group:
            new["status"] = {**(new.get("status") or {}), "phase": "Terminating"}
        before = old["metadata"]
        if before == new["metadata"] or call.dry_run:
            return new
        made = core.put(
            resource, resource.to_hub({**new, "metadata": dict(new["metadata"])}), record
        )
        new["metadata"]["resourceVersion"] = str(made.revision)
        return new

    def _drop(self, call: ApiCall, obj: Object, record: ObjectRecord) -> ObjectRecord:
        resource = call.resource
        hub = resource.to_hub({**obj, "metadata": dict(obj["metadata"])})
        return self._core.committer.drop(resource.group_resource, hub, record)

    def delete_finalized(self, call: ApiCall, obj: Object, record: ObjectRecord) -> WriteResult:
        """Remove an object whose last finalizer is gone."""
        if call.dry_run:
            return WriteResult(200, obj, None)
        self._drop(call, obj, record)
        obj["metadata"]["resourceVersion"] = str(record.revision)
        return WriteResult(200, obj, None)

    def _success(self, call: ApiCall, record: ObjectRecord) -> Object:
        resource = call.resource
        details = {
            "name": record.name,
            "group": resource.group,
            "kind": resource.plural,
            "uid": record.uid,
        }
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {k: v for k, v in details.items() if v},
        }

    def delete_collection(self, call: ApiCall, options: Object) -> list[ObjectRecord]:
        """Delete all matching objects; returns their last state."""
        matches = matcher(call)
        prefix = f"{call.namespace}/" if call.namespace and call.resource.namespaced else ""
        found = [
            r
            for r in self._core.cache.scan_staged(call.resource.group_resource, prefix)
            if matches(r)
        ]
        for record in found:
            self.remove(call, record, options)
        return found


def _finalizers(have: list[str], options: Object) -> list[str]:
    """Return the finalizers with those of the propagation policy."""
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    kept = [name for name in have if name not in (ORPHAN, FOREGROUND)]
    if policy == "Orphan" or orphan is True:
        return [*kept, ORPHAN]
    if policy == "Foreground":
        return [*kept, FOREGROUND]
    if policy == "Background" or orphan is False:
        return kept
    return have


def decode_delete_options(
    call: ApiCall, from_protobuf: request_body.FromProtobuf, types: GoTypes
) -> Object:
    """Decode DeleteOptions from body and query."""
    options: Object = {}
    if call.request.body.strip():
        kind = call.request.headers.get("content-type", "")
        given = request_body.decode_body(call.request.body, kind, from_protobuf)
        options = typed_bodies.decode_delete_options(types, given)
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
        cause = status_errors.ErrorCause("FieldValueNotSupported", text, "propagationPolicy")
        raise status_errors.invalid("DeleteOptions", "meta.k8s.io", "", [cause])
    if policy is not None and options.get("orphanDependents") is not None:
        text = (
            f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be'
            " both set"
        )
        cause = status_errors.ErrorCause("FieldValueInvalid", text, "propagationPolicy")
        raise status_errors.invalid("DeleteOptions", "meta.k8s.io", "", [cause])
