"""
PVC and PV protection finalizers, and the not-ready taint of new nodes.

Removes the finalizers and taints that :mod:`moxwell.embedded.apiserver.admission_defaults` adds,
when their reason ends.
"""

from typing import Any

from moxwell.embedded.apiserver.admission_defaults import NOT_READY, PROTECTED
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.garbage import GarbageCollector
from moxwell.embedded.apiserver.object_cache import ObjectRecord

Object = dict[str, Any]


class ProtectionController:
    """Processes one object at a time."""

    def __init__(self, core: ServerContext, garbage: GarbageCollector) -> None:
        self._core, self._garbage = core, garbage

    def sync(self, group_resource: str, key: str) -> None:
        """Remove the protection finalizer of a deleted claim or volume that is not in use."""
        record, resource = (
            self._core.cache.find_staged(group_resource, key),
            self._core.registry.hub(group_resource),
        )
        if record is None or resource is None:
            return
        obj = record.object()
        meta = obj["metadata"]
        check_escalation = PROTECTED[resource.kind]
        if not meta.get("deletionTimestamp") or check_escalation not in (
            meta.get("finalizers") or ()
        ):
            return
        used = (
            self._claimed(record, obj) if resource.kind == "PersistentVolumeClaim" else _bound(obj)
        )
        if used:
            return
        left = [name for name in meta["finalizers"] if name != check_escalation]
        if left:
            meta["finalizers"] = left
        else:
            meta.pop("finalizers")
        self._garbage.write(resource, record, obj)

    def _claimed(self, claim: ObjectRecord, obj: Object) -> bool:
        if self._core.cache.find_unreadable("pods", f"{claim.namespace}/") is not None:
            return True
        owners = {o["uid"] for o in obj["metadata"].get("ownerReferences") or ()}
        for record in self._core.cache.scan_staged("pods", f"{claim.namespace}/"):
            pod = record.object()
            if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                continue
            for volume in (pod.get("spec") or {}).get("volumes") or ():
                own = pod["metadata"]["uid"] in owners or "ephemeral" not in volume
                if own and claim.name == _named(volume, record.name):
                    return True
        return False

    def sync_node(self, group_resource: str, key: str) -> None:
        """Remove the not-ready taint of a ready node."""
        record, resource = (
            self._core.cache.find_staged(group_resource, key),
            self._core.registry.hub(group_resource),
        )
        if record is None or resource is None or NOT_READY["key"].encode() not in record.body:
            return
        node = record.object()
        conditions = (node.get("status") or {}).get("conditions") or ()
        if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
            return
        taints = (node.get("spec") or {}).get("taints") or []
        left = [t for t in taints if t.get("key") != NOT_READY["key"]]
        if left == taints:
            return
        node["spec"] = {k: v for k, v in node["spec"].items() if k != "taints"}
        if left:
            node["spec"]["taints"] = left
        self._core.put(resource, node, record)


def _bound(volume: Object) -> bool:
    return bool((volume.get("status") or {}).get("phase") == "Bound")


def _named(volume: Object, pod: str) -> str:
    """Return the claim name of a Pod's volume, persistent or ephemeral; empty for other volumes."""
    if "ephemeral" in volume:
        return f"{pod}-{volume['name']}"
    return str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")
