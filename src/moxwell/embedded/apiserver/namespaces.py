"""
Namespaces on their way out, and what every namespace has: emptied, then finalized; given a
service account.

Also definitions on their way in and out: conditions of a CRD, and the emptying of a deleted one.
"""

from typing import Any

from moxwell.embedded.apiserver.core import Core
from moxwell.embedded.apiserver.crd import definitions
from moxwell.embedded.apiserver.deleter import CLEANUP, Remover
from moxwell.embedded.apiserver.garbage import Garbage, internal_call
from moxwell.embedded.apiserver.object_cache import Record
from moxwell.embedded.apiserver.resources import Face
from moxwell.embedded.apiserver.status_errors import Refused

Object = dict[str, Any]
ROOT_CA = "kube-root-ca.crt"
ABOUT_CA = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal"
    " endpoints such as the internal service IP or kubernetes.default.svc. No other usage is"
    " guaranteed across distributions of Kubernetes clusters."
)
_CALM = (
    ("DeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "DeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "DeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
)


def condition(kind: str, status: str, reason: str, message: str, now: str) -> Object:
    made = {"type": kind, "status": status, "lastTransitionTime": now, "reason": reason}
    return {**made, "message": message}


class Namespaces:
    """Looks after one namespace (or definition) at a time."""

    def __init__(self, core: Core, remover: Remover, garbage: Garbage, root_ca: str) -> None:
        self._core, self._remover, self._garbage, self._root_ca = core, remover, garbage, root_ca

    def look(self, name: str) -> None:
        record = self._core.state.find_staged("namespaces", name)
        face = self._core.registry.hub("namespaces")
        if record is None or face is None:
            return
        obj = record.object()
        if obj["metadata"].get("deletionTimestamp"):
            self._empty(face, record, obj)
        else:
            self._furnish(name)

    def _furnish(self, namespace: str) -> None:
        """Every namespace has a service account (and the CA's certificate, if there is one)."""
        self._make("serviceaccounts", namespace, {"metadata": {"name": "default"}})
        if self._root_ca:
            meta = {"name": ROOT_CA, "annotations": {"kubernetes.io/description": ABOUT_CA}}
            self._make(
                "configmaps", namespace, {"metadata": meta, "data": {"ca.crt": self._root_ca}}
            )

    def _make(self, store: str, namespace: str, obj: Object) -> None:
        key = f"{namespace}/{obj['metadata']['name']}"
        face = self._core.registry.hub(store)
        if face is None or self._core.state.find_staged(store, key) is not None:
            return
        self._core.create(face, {**obj, "metadata": {**obj["metadata"], "namespace": namespace}})

    # -- out

    def _empty(self, face: Face, record: Record, obj: Object) -> None:
        left, held = self._sweep(record.name)
        if not left:
            spec = obj.get("spec") or {}
            kept = [name for name in spec.get("finalizers") or () if name != "kubernetes"]
            obj["spec"] = {**spec, "finalizers": kept} if kept else {}
            if kept or obj["metadata"].get("finalizers"):
                self._garbage.write(face, record, obj)
            else:
                self._core.commits.drop(face.store, obj, record)
            return
        conditions = self._conditions(left, held)
        before = (obj.get("status") or {}).get("conditions") or []
        if [{**c, "lastTransitionTime": 0} for c in before] != [
            {**c, "lastTransitionTime": 0} for c in conditions
        ]:
            obj["status"] = {**(obj.get("status") or {}), "conditions": conditions}
            self._core.put(face, obj, record)

    def _sweep(self, namespace: str) -> tuple[dict[str, int], dict[str, int]]:
        """Delete everything; what is left by resource, and what holds it by finalizer."""
        left: dict[str, int] = {}
        held: dict[str, int] = {}
        for face in self._core.registry.hubs():
            if not face.namespaced or "delete" not in face.verbs:
                continue
            for record in self._core.state.scan_staged(face.store, f"{namespace}/"):
                self._remover.remove(
                    internal_call(face, record), record, {"propagationPolicy": "Background"}
                )
                now = self._core.state.find_staged(face.store, record.key)
                if now is not None:
                    name = f"{face.plural}.{face.group}"
                    left[name] = left.get(name, 0) + 1
                    for finalizer in now.object()["metadata"].get("finalizers") or ():
                        held[finalizer] = held.get(finalizer, 0) + 1
        return left, held

    def _conditions(self, left: dict[str, int], held: dict[str, int]) -> list[Object]:
        now = self._core.now()
        remaining = ", ".join(
            f"{name} has {n} resource instances" for name, n in sorted(left.items())
        )
        holding = ", ".join(f"{name} in {n} resource instances" for name, n in sorted(held.items()))
        made = [(kind, "False", reason, text) for kind, reason, text in _CALM]
        text = f"Some resources are remaining: {remaining}"
        made.append(("ContentRemaining", "True", "SomeResourcesRemain", text))
        if holding:
            text = f"Some content in the namespace has finalizers remaining: {holding}"
            made.append(("FinalizersRemaining", "True", "SomeFinalizersRemain", text))
        else:
            text = "All content-preserving finalizers finished"
            made.append(("FinalizersRemaining", "False", "ContentHasNoFinalizers", text))
        return [condition(f"Namespace{k}", s, r, m, now) for k, s, r, m in made]

    # -- definitions

    def look_definition(self, name: str) -> None:
        record = self._core.state.find_staged(definitions.STORE, name)
        face = self._core.registry.hub(definitions.STORE)
        if record is None or face is None:
            return
        obj = record.object()
        if obj["metadata"].get("deletionTimestamp"):
            self._undefine(face, record, obj)
        elif not _is_established(obj):
            self._establish(face, record, obj)

    def _establish(self, face: Face, record: Record, obj: Object) -> None:
        now, status = self._core.now(), obj.get("status") or {}
        taken = definitions.taken(obj, self._core)
        if taken:
            reason, name = taken
            self._refuse(face, record, obj, reason, name)
            return
        accepted = condition("NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
        text = "the initial names have been accepted"
        served = condition("Established", "True", "InitialNamesAccepted", text, now)
        names = {k: v for k, v in obj["spec"]["names"].items() if v}
        obj["status"] = {**status, "conditions": [accepted, served], "acceptedNames": names}
        self._core.put(face, obj, record)

    def _refuse(self, face: Face, record: Record, obj: Object, reason: str, name: str) -> None:
        now, status = self._core.now(), obj.get("status") or {}
        text = f'"{name}" is already in use'
        made = [condition("NamesAccepted", "False", reason, text, now)]
        made.append(
            condition("Established", "False", "NotAccepted", "not all names are accepted", now)
        )
        before = status.get("conditions") or []
        if [(c["type"], c["reason"]) for c in before] != [(c["type"], c["reason"]) for c in made]:
            obj["status"] = {**status, "conditions": made}
            self._core.put(face, obj, record)

    def _undefine(self, face: Face, record: Record, obj: Object) -> None:
        kind = self._core.registry.hub(record.name)
        finalizers = obj["metadata"].get("finalizers") or []
        if CLEANUP not in finalizers:
            return
        if kind is not None:
            for found in self._core.state.scan_staged(record.name):
                self._remove_quietly(kind, found)
            if self._core.state.scan_staged(record.name):
                return
        left = [name for name in finalizers if name != CLEANUP]
        if left:
            obj["metadata"]["finalizers"] = left
        else:
            obj["metadata"].pop("finalizers")
        self._garbage.write(face, record, obj)

    def _remove_quietly(self, face: Face, record: Record) -> None:
        try:
            self._remover.remove(internal_call(face, record), record, {})
        except Refused:
            return  # an admission rule holds it: asked again when it changes


def _is_established(obj: Object) -> bool:
    status = obj.get("status") or {}
    names = {k: v for k, v in obj["spec"]["names"].items() if v}
    return status.get("acceptedNames") == names and any(
        c.get("type") == "Established" and c.get("status") == "True"
        for c in status.get("conditions") or ()
    )
