"""
PrepareForCreate and PrepareForUpdate of built-in kinds: resets and sets fields before validation.

Functions get the new object, the old one (None on create) and the subresource.
"""

from collections.abc import Callable, Mapping
from typing import Any

from moxwell.embedded.apiserver.builtin import pod_defaults

Object = dict[str, Any]
Prepare = Callable[[Object, Object | None, str], None]


def _drop_status(new: Object, old: Object | None, subresource: str) -> None:
    """Drop the status of a new object."""
    if old is None and "status" in new:
        new["status"] = {}


def _namespace(new: Object, old: Object | None, subresource: str) -> None:
    spec = new.setdefault("spec", {})
    if old is None:
        new["status"] = {"phase": "Active"}
        finalizers = spec.get("finalizers") or []
        if "kubernetes" not in finalizers:
            spec["finalizers"] = [*finalizers, "kubernetes"]
    elif subresource != "finalize":
        if (old.get("spec") or {}).get("finalizers"):
            spec["finalizers"] = old["spec"]["finalizers"]
        else:
            spec.pop("finalizers", None)


def _pod(new: Object, old: Object | None, subresource: str) -> None:
    if old is None:
        pod_defaults.admit_pod(new)
        new["status"] = {"phase": "Pending", "qosClass": qos(new.get("spec") or {})}
    elif subresource == "" and "status" in old:
        new["status"] = old["status"]


def qos(spec: Object) -> str:
    """Compute the QoS class from requests and limits."""
    any_set, guaranteed = False, True
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        watched = [k for k in ("cpu", "memory") if k in limits or k in requests]
        any_set = any_set or bool(watched)
        for name in ("cpu", "memory"):
            if name not in limits or requests.get(name, limits[name]) != limits[name]:
                guaranteed = False
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _volume(phase: str) -> Prepare:
    def prepare(new: Object, old: Object | None, subresource: str) -> None:
        if old is None:
            new["status"] = {"phase": phase}

    return prepare


def _definition(new: Object, old: Object | None, subresource: str) -> None:
    spec = new.get("spec") or {}
    if old is None:
        new["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}}
        new["status"]["storedVersions"] = []
    if subresource == "status":
        return
    stored = [v["name"] for v in spec.get("versions") or () if v.get("storage")]
    status = new.setdefault("status", {})
    have = status.get("storedVersions") or []
    status["storedVersions"] = have + [name for name in stored if name not in have]


def _workload(new: Object, old: Object | None, subresource: str) -> None:
    _drop_status(new, old, subresource)


def _stateful(new: Object, old: Object | None, subresource: str) -> None:
    if old is None:
        new["status"] = {"replicas": 0, "availableReplicas": 0}


def _daemon(new: Object, old: Object | None, subresource: str) -> None:
    key = "deprecated.daemonset.template.generation"
    if old is None:
        names = (
            "currentNumberScheduled",
            "desiredNumberScheduled",
            "numberMisscheduled",
            "numberReady",
        )
        new["status"] = dict.fromkeys(names, 0)
        new["metadata"].setdefault("annotations", {})[key] = "1"
    elif subresource == "":
        before = int((old["metadata"].get("annotations") or {}).get(key, "1"))
        same = (new.get("spec") or {}).get("template") == (old.get("spec") or {}).get("template")
        new["metadata"].setdefault("annotations", {})[key] = str(before + (not same))


def _service(new: Object, old: Object | None, subresource: str) -> None:
    if old is None:
        new["status"] = {"loadBalancer": {}}
    for entry in ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
        if entry.get("ip"):
            entry.setdefault("ipMode", "VIP")
    spec = new.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return
    before = (old or {}).get("spec") or {}
    for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if name in before and not spec.get(name):
            spec[name] = before[name]


def _budget(new: Object, old: Object | None, subresource: str) -> None:
    if old is None:
        zero = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        new["status"] = dict.fromkeys(zero, 0)


def _attachment(new: Object, old: Object | None, subresource: str) -> None:
    if old is None:
        new["status"] = {"attached": False}


PREPARE_FUNCTIONS: Mapping[str, Prepare] = {
    "Namespace": _namespace,
    "Pod": _pod,
    "PersistentVolume": _volume("Pending"),
    "PersistentVolumeClaim": _volume("Pending"),
    "CustomResourceDefinition": _definition,
    "Deployment": _workload,
    "StatefulSet": _stateful,
    "ReplicationController": _workload,
    "ReplicaSet": _workload,
    "DaemonSet": _daemon,
    "Job": _workload,
    "CronJob": _workload,
    "Ingress": _workload,
    "Service": _service,
    "PodDisruptionBudget": _budget,
    "VolumeAttachment": _attachment,
}
