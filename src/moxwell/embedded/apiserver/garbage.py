"""
The garbage collector: deletes dependents of deleted owners, and processes foreground and orphan
deletion.

Reads committed records and stages deletions and owner reference changes, one object at a time.
Decisions follow from stored objects alone, so they are repeated after a crash.
"""

from typing import Any

from moxwell.api import requests
from moxwell.embedded.apiserver import request_info
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.deleter import FOREGROUND, ORPHAN, Deleter
from moxwell.embedded.apiserver.object_cache import ObjectRecord
from moxwell.embedded.apiserver.request_info import ApiCall
from moxwell.embedded.apiserver.resources import ServedResource

Object = dict[str, Any]


def internal_call(
    resource: ServedResource, record: ObjectRecord, method: str = "DELETE"
) -> ApiCall:
    """Build a call on behalf of the server."""
    headers = {"user-agent": "kube-controller-manager"}
    return ApiCall(
        request=requests.Request(method=method, path="", headers=headers),
        resource=resource,
        verb="delete",
        namespace=record.namespace,
        name=record.name,
        subresource="",
        user=request_info.ADMIN,
        query={},
    )


class GarbageCollector:
    """Processes one object at a time."""

    def __init__(self, core: ServerContext, deleter: Deleter) -> None:
        self._core, self._deleter = core, deleter

    def sync(self, group_resource: str, key: str) -> None:
        """Process an object as owner and as dependent."""
        record = self._core.cache.find_staged(group_resource, key)
        resource = self._core.registry.hub(group_resource)
        if record is None or resource is None:
            return
        obj = record.object()
        if obj["metadata"].get("deletionTimestamp"):
            self._finalize(resource, record, obj)
        elif record.owners:
            self._sync_dependent(resource, record, obj)

    # as an owner

    def _finalize(self, resource: ServedResource, record: ObjectRecord, obj: Object) -> None:
        finalizers = obj["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            for dependant in self._core.cache.owned_by(record.uid):
                self._remove_owner_references(dependant, {record.uid})
            self._remove_finalizer(resource, record, obj, ORPHAN)
        elif FOREGROUND in finalizers and not self._has_blocking_dependents(record.uid):
            self._remove_finalizer(resource, record, obj, FOREGROUND)
        elif FOREGROUND in finalizers:
            for dependant in self._core.cache.owned_by(record.uid):
                self.sync(dependant.group_resource, dependant.key)

    def _has_blocking_dependents(self, uid: str) -> bool:
        return any(
            ref.get("uid") == uid and ref.get("blockOwnerDeletion")
            for dependant in self._core.cache.owned_by(uid)
            if (now := self._core.cache.find_staged(dependant.group_resource, dependant.key))
            is not None
            for ref in now.object()["metadata"].get("ownerReferences") or ()
        )

    def _remove_finalizer(
        self, resource: ServedResource, record: ObjectRecord, obj: Object, finalizer: str
    ) -> None:
        meta = obj["metadata"]
        remaining = [name for name in meta["finalizers"] if name != finalizer]
        if remaining:
            meta["finalizers"] = remaining
        else:
            meta.pop("finalizers")
        self.write(resource, record, obj)

    def write(self, resource: ServedResource, record: ObjectRecord, obj: Object) -> None:
        """Store a changed object, or delete it if its last finalizer is gone."""
        meta = obj["metadata"]
        done = meta.get("deletionTimestamp") and not meta.get("finalizers")
        if done and self._core.can_delete_now(resource, obj):
            self._core.committer.drop(resource.group_resource, obj, record)
        else:
            self._core.put(resource, obj, record)

    # as a dependent

    def _sync_dependent(self, resource: ServedResource, record: ObjectRecord, obj: Object) -> None:
        refs = obj["metadata"]["ownerReferences"]
        owner_states: dict[str, set[str]] = {"solid": set(), "waiting": set(), "dangling": set()}
        for ref in refs:
            owner_states[self._owner_state(ref, record.namespace)].add(ref["uid"])
        solid, waiting, dangling = owner_states.values()
        if solid:
            if dangling or waiting:
                self._remove_owner_references(record, dangling | waiting)
            return
        policy = "Background"
        if waiting and any(self._core.cache.owned_by(record.uid)):
            policy = "Foreground"
        if dangling or waiting:
            options = {"preconditions": {"uid": record.uid}, "propagationPolicy": policy}
            self._deleter.remove(internal_call(resource, record), record, options)

    def _owner_state(self, ref: Object, namespace: str) -> str:
        """Return whether an owner exists, waits for its dependents, or is gone."""
        group = ref.get("apiVersion", "").rpartition("/")[0]
        resources = [
            f for f in self._core.registry if f.kind == ref.get("kind") and f.group == group
        ]
        if not resources:
            return "solid"  # unknown kind: keep the dependent
        key = f"{namespace}/{ref.get('name')}" if resources[0].namespaced else str(ref.get("name"))
        owner = self._core.cache.find_staged(resources[0].group_resource, key)
        if owner is None or owner.uid != ref.get("uid"):
            unknown = self._core.cache.is_unknown(resources[0].group_resource, key)
            return "solid" if unknown else "dangling"
        if ref.get("blockOwnerDeletion") and FOREGROUND.encode() in owner.body:
            meta = owner.object()["metadata"]
            if meta.get("deletionTimestamp") and FOREGROUND in (meta.get("finalizers") or ()):
                return "waiting"
        return "solid"

    def _remove_owner_references(self, record: ObjectRecord, uids: set[str]) -> None:
        """Remove the owner references with these uids."""
        now = self._core.cache.find_staged(record.group_resource, record.key)
        resource = self._core.registry.hub(record.group_resource)
        if now is None or resource is None:
            return
        obj = now.object()
        meta = obj["metadata"]
        remaining = [r for r in meta.get("ownerReferences") or () if r["uid"] not in uids]
        if remaining:
            meta["ownerReferences"] = remaining
        else:
            meta.pop("ownerReferences", None)
        self._core.put(resource, obj, now)
