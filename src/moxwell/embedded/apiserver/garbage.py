"""
Garbage: objects whose owners are gone, and owners that wait for what they own (or let it go).

Looks at committed records, stages deletions and changed owner references. Runs on the
collector's task, one object at a time; every decision can be made again after a crash, as it
follows from what is stored.
"""

from typing import Any

from moxwell.api import requests
from moxwell.embedded.apiserver import request_info
from moxwell.embedded.apiserver.core import Core
from moxwell.embedded.apiserver.deleter import FOREGROUND, ORPHAN, Remover
from moxwell.embedded.apiserver.object_cache import Record
from moxwell.embedded.apiserver.request_info import Call
from moxwell.embedded.apiserver.resources import Face

Object = dict[str, Any]


def internal_call(face: Face, record: Record, method: str = "DELETE") -> Call:
    """A call of the store's own."""
    headers = {"user-agent": "kube-controller-manager"}
    return Call(
        request=requests.Request(method=method, path="", headers=headers),
        face=face,
        verb="delete",
        namespace=record.namespace,
        name=record.name,
        sub="",
        user=request_info.ADMIN,
        query={},
    )


class Garbage:
    """Works off one object at a time."""

    def __init__(self, core: Core, remover: Remover) -> None:
        self._core, self._remover = core, remover

    def look(self, store: str, key: str) -> None:
        """Do whatever this object's owners or dependants call for."""
        record = self._core.state.find_staged(store, key)
        face = self._core.registry.hub(store)
        if record is None or face is None:
            return
        obj = record.object()
        if obj["metadata"].get("deletionTimestamp"):
            self._finalize(face, record, obj)
        elif record.owners:
            self._judge(face, record, obj)

    # -- as an owner

    def _finalize(self, face: Face, record: Record, obj: Object) -> None:
        finalizers = obj["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            for dependant in self._core.state.owned_by(record.uid):
                self._release(dependant, {record.uid})
            self._strike(face, record, obj, ORPHAN)
        elif FOREGROUND in finalizers and not self._blocking(record.uid):
            self._strike(face, record, obj, FOREGROUND)
        elif FOREGROUND in finalizers:
            for dependant in self._core.state.owned_by(record.uid):
                self.look(dependant.store, dependant.key)

    def _blocking(self, uid: str) -> bool:
        return any(
            ref.get("uid") == uid and ref.get("blockOwnerDeletion")
            for dependant in self._core.state.owned_by(uid)
            if (now := self._core.state.find_staged(dependant.store, dependant.key)) is not None
            for ref in now.object()["metadata"].get("ownerReferences") or ()
        )

    def _strike(self, face: Face, record: Record, obj: Object, finalizer: str) -> None:
        meta = obj["metadata"]
        left = [name for name in meta["finalizers"] if name != finalizer]
        if left:
            meta["finalizers"] = left
        else:
            meta.pop("finalizers")
        self.write(face, record, obj)

    def write(self, face: Face, record: Record, obj: Object) -> None:
        """Store a changed object, or let it go if nothing holds it any more."""
        meta = obj["metadata"]
        done = meta.get("deletionTimestamp") and not meta.get("finalizers")
        if done and self._core.may_vanish(face, obj):
            self._core.commits.drop(face.store, obj, record)
        else:
            self._core.put(face, obj, record)

    # -- as a dependant

    def _judge(self, face: Face, record: Record, obj: Object) -> None:
        refs = obj["metadata"]["ownerReferences"]
        fates: dict[str, set[str]] = {"solid": set(), "waiting": set(), "dangling": set()}
        for ref in refs:
            fates[self._fate(ref, record.namespace)].add(ref["uid"])
        solid, waiting, dangling = fates.values()
        if solid:
            if dangling or waiting:
                self._release(record, dangling | waiting)
            return
        policy = "Background"
        if waiting and any(self._core.state.owned_by(record.uid)):
            policy = "Foreground"
        if dangling or waiting:
            options = {"preconditions": {"uid": record.uid}, "propagationPolicy": policy}
            self._remover.remove(internal_call(face, record), record, options)

    def _fate(self, ref: Object, namespace: str) -> str:
        """Whether an owner is there to stay, waits for its dependants to go, or is gone."""
        group = ref.get("apiVersion", "").rpartition("/")[0]
        faces = [f for f in self._core.registry if f.kind == ref.get("kind") and f.group == group]
        if not faces:
            return "solid"  # nobody here knows that kind: not ours to judge
        key = f"{namespace}/{ref.get('name')}" if faces[0].namespaced else str(ref.get("name"))
        owner = self._core.state.find_staged(faces[0].store, key)
        if owner is None or owner.uid != ref.get("uid"):
            return "dangling"
        if ref.get("blockOwnerDeletion") and FOREGROUND.encode() in owner.body:
            meta = owner.object()["metadata"]
            if meta.get("deletionTimestamp") and FOREGROUND in (meta.get("finalizers") or ()):
                return "waiting"
        return "solid"

    def _release(self, record: Record, uids: set[str]) -> None:
        """Take references to these owners away."""
        now = self._core.state.find_staged(record.store, record.key)
        face = self._core.registry.hub(record.store)
        if now is None or face is None:
            return
        obj = now.object()
        meta = obj["metadata"]
        left = [r for r in meta.get("ownerReferences") or () if r["uid"] not in uids]
        if left:
            meta["ownerReferences"] = left
        else:
            meta.pop("ownerReferences", None)
        self._core.put(face, obj, now)
