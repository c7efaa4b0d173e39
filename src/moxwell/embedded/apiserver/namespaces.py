"""
The namespace controller and the lifecycle of CRDs.

Deletes the content of terminating namespaces, creates the default service account and CA config
map, sets CRD conditions and deletes the objects of a deleted CRD.
"""

from typing import Any

from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.crd import definitions
from moxwell.embedded.apiserver.deleter import CLEANUP, Deleter
from moxwell.embedded.apiserver.garbage import GarbageCollector, internal_call
from moxwell.embedded.apiserver.object_cache import ObjectRecord
from moxwell.embedded.apiserver.resources import ServedResource
from moxwell.embedded.apiserver.status_errors import StatusError

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


class NamespaceController:
    """Processes one namespace or CRD at a time."""

    def __init__(
        self, core: ServerContext, deleter: Deleter, garbage: GarbageCollector, root_ca: str
    ) -> None:
        self._core, self._deleter, self._garbage, self._root_ca = core, deleter, garbage, root_ca

    def sync(self, name: str) -> None:
        record = self._core.cache.find_staged("namespaces", name)
        resource = self._core.registry.hub("namespaces")
        if record is None or resource is None:
            return
        obj = record.object()
        if obj["metadata"].get("deletionTimestamp"):
            self._delete_content(resource, record, obj)
        else:
            self._create_defaults(name)

    def _create_defaults(self, namespace: str) -> None:
        """Create the default service account and, if there is a CA, its config map."""
        self._create_if_missing("serviceaccounts", namespace, {"metadata": {"name": "default"}})
        if self._root_ca:
            meta = {"name": ROOT_CA, "annotations": {"kubernetes.io/description": ABOUT_CA}}
            self._create_if_missing(
                "configmaps", namespace, {"metadata": meta, "data": {"ca.crt": self._root_ca}}
            )

    def _create_if_missing(self, group_resource: str, namespace: str, obj: Object) -> None:
        key = f"{namespace}/{obj['metadata']['name']}"
        resource = self._core.registry.hub(group_resource)
        if resource is None or self._core.cache.find_staged(group_resource, key) is not None:
            return
        self._core.create(
            resource, {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
        )

    # deletion

    def _delete_content(self, resource: ServedResource, record: ObjectRecord, obj: Object) -> None:
        remaining, finalizer_counts = self._delete_objects(record.name)
        if not remaining:
            spec = obj.get("spec") or {}
            kept = [name for name in spec.get("finalizers") or () if name != "kubernetes"]
            obj["spec"] = {**spec, "finalizers": kept} if kept else {}
            if kept or obj["metadata"].get("finalizers"):
                self._garbage.write(resource, record, obj)
            else:
                self._core.committer.drop(resource.group_resource, obj, record)
            return
        conditions = self._conditions(remaining, finalizer_counts)
        before = (obj.get("status") or {}).get("conditions") or []
        if [{**c, "lastTransitionTime": 0} for c in before] != [
            {**c, "lastTransitionTime": 0} for c in conditions
        ]:
            obj["status"] = {**(obj.get("status") or {}), "conditions": conditions}
            self._core.put(resource, obj, record)

    def _delete_objects(self, namespace: str) -> tuple[dict[str, int], dict[str, int]]:
        """
        Delete all objects; returns the number of remaining objects by resource and by finalizer.
        """
        remaining: dict[str, int] = {}
        finalizer_counts: dict[str, int] = {}
        for resource in self._core.registry.hubs():
            if not resource.namespaced or "delete" not in resource.verbs:
                continue
            for record in self._core.cache.scan_staged(resource.group_resource, f"{namespace}/"):
                self._deleter.remove(
                    internal_call(resource, record), record, {"propagationPolicy": "Background"}
                )
                now = self._core.cache.find_staged(resource.group_resource, record.key)
                if now is not None:
                    name = f"{resource.plural}.{resource.group}"
                    remaining[name] = remaining.get(name, 0) + 1
                    for finalizer in now.object()["metadata"].get("finalizers") or ():
                        finalizer_counts[finalizer] = finalizer_counts.get(finalizer, 0) + 1
        return remaining, finalizer_counts

    def _conditions(
        self, remaining: dict[str, int], finalizer_counts: dict[str, int]
    ) -> list[Object]:
        now = self._core.now()
        remaining_text = ", ".join(
            f"{name} has {n} resource instances" for name, n in sorted(remaining.items())
        )
        holding = ", ".join(
            f"{name} in {n} resource instances" for name, n in sorted(finalizer_counts.items())
        )
        made = [(kind, "False", reason, text) for kind, reason, text in _CALM]
        text = f"Some resources are remaining: {remaining_text}"
        made.append(("ContentRemaining", "True", "SomeResourcesRemain", text))
        if holding:
            text = f"Some content in the namespace has finalizers remaining: {holding}"
            made.append(("FinalizersRemaining", "True", "SomeFinalizersRemain", text))
        else:
            text = "All content-preserving finalizers finished"
            made.append(("FinalizersRemaining", "False", "ContentHasNoFinalizers", text))
        return [condition(f"Namespace{k}", s, r, m, now) for k, s, r, m in made]

    # CRDs

    def sync_crd(self, name: str) -> None:
        record = self._core.cache.find_staged(definitions.STORE, name)
        resource = self._core.registry.hub(definitions.STORE)
        if record is None or resource is None:
            return
        obj = record.object()
        if obj["metadata"].get("deletionTimestamp"):
            self._delete_instances(resource, record, obj)
        elif not _is_established(obj):
            self._establish(resource, record, obj)

    def _establish(self, resource: ServedResource, record: ObjectRecord, obj: Object) -> None:
        now, status = self._core.now(), obj.get("status") or {}
        taken = definitions.name_conflict(obj, self._core)
        if taken:
            reason, name = taken
            self._reject_names(resource, record, obj, reason, name)
            return
        accepted = condition("NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
        text = "the initial names have been accepted"
        served = condition("Established", "True", "InitialNamesAccepted", text, now)
        names = {k: v for k, v in obj["spec"]["names"].items() if v}
        obj["status"] = {**status, "conditions": [accepted, served], "acceptedNames": names}
        self._core.put(resource, obj, record)

    def _reject_names(
        self, resource: ServedResource, record: ObjectRecord, obj: Object, reason: str, name: str
    ) -> None:
        now, status = self._core.now(), obj.get("status") or {}
        text = f'"{name}" is already in use'
        made = [condition("NamesAccepted", "False", reason, text, now)]
        made.append(
            condition("Established", "False", "NotAccepted", "not all names are accepted", now)
        )
        before = status.get("conditions") or []
        if [(c["type"], c["reason"]) for c in before] != [(c["type"], c["reason"]) for c in made]:
            obj["status"] = {**status, "conditions": made}
            self._core.put(resource, obj, record)

    def _delete_instances(
        self, resource: ServedResource, record: ObjectRecord, obj: Object
    ) -> None:
        kind = self._core.registry.hub(record.name)
        finalizers = obj["metadata"].get("finalizers") or []
        if CLEANUP not in finalizers:
            return
        if kind is not None:
            for found in self._core.cache.scan_staged(record.name):
                self._remove_quietly(kind, found)
            if self._core.cache.scan_staged(record.name):
                return
        remaining = [name for name in finalizers if name != CLEANUP]
        if remaining:
            obj["metadata"]["finalizers"] = remaining
        else:
            obj["metadata"].pop("finalizers")
        self._garbage.write(resource, record, obj)

    def _remove_quietly(self, resource: ServedResource, record: ObjectRecord) -> None:
        try:
            self._deleter.remove(internal_call(resource, record), record, {})
        except StatusError:
            return  # rejected by admission; the next change retries


def _is_established(obj: Object) -> bool:
    status = obj.get("status") or {}
    names = {k: v for k, v in obj["spec"]["names"].items() if v}
    return status.get("acceptedNames") == names and any(
        c.get("type") == "Established" and c.get("status") == "True"
        for c in status.get("conditions") or ()
    )
