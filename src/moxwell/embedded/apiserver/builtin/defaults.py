"""Defaulting functions of built-in kinds, by kind; they modify the object."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from moxwell.embedded.apiserver.builtin import pod_defaults

Object = dict[str, Any]
Default = Callable[[Object], None]
_RBAC = "rbac.authorization.k8s.io"


def _put(obj: Object, **given: Any) -> None:
    for key, value in given.items():
        obj.setdefault(key, value)


def _spec(obj: Object) -> Object:
    found: Object = obj.setdefault("spec", {})
    return found


def _template(obj: Object) -> None:
    pod_defaults.default_template(_spec(obj).setdefault("template", {}))


def _namespace(obj: Object) -> None:
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def _secret(obj: Object) -> None:
    """Move ``stringData``, which is write-only, into ``data``."""
    plain = obj.pop("stringData", None)
    if plain:
        coded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **coded}
    _put(obj, type="Opaque")


def _service(obj: Object) -> None:
    spec = _spec(obj)
    _put(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        _put(config, timeoutSeconds=10800)
    for port in spec.get("ports") or ():
        _put(port, protocol="TCP")
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _put(spec, externalTrafficPolicy="Cluster")
    if spec["type"] != "ExternalName":
        _put(spec, internalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        _put(spec, allocateLoadBalancerNodePorts=True)


def _deployment(obj: Object) -> None:
    spec = _spec(obj)
    _put(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = spec.setdefault("strategy", {})
    _put(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _put(strategy.setdefault("rollingUpdate", {}), maxUnavailable="25%", maxSurge="25%")
    _template(obj)


def _stateful(obj: Object) -> None:
    spec = _spec(obj)
    _put(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    _put(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _put(strategy.setdefault("rollingUpdate", {}), partition=0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    _put(retention, whenDeleted="Retain", whenScaled="Retain")
    for claim in spec.get("volumeClaimTemplates") or ():
        _put(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        _claim(claim)
        claim["status"] = {"phase": "Pending"}
    _template(obj)


def _daemon(obj: Object) -> None:
    spec = _spec(obj)
    _put(spec, revisionHistoryLimit=10)
    strategy = spec.setdefault("updateStrategy", {})
    _put(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _put(strategy.setdefault("rollingUpdate", {}), maxUnavailable=1, maxSurge=0)
    _template(obj)


def _replicas(obj: Object) -> None:
    _put(_spec(obj), replicas=1)
    _template(obj)


def _controller(obj: Object) -> None:
    _replicas(obj)
    labels = ((obj["spec"].get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        _put(obj["spec"], selector=dict(labels))
        _put(obj["metadata"], labels=dict(labels))


def _job_spec(spec: Object) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    _put(spec, parallelism=1, backoffLimit=6, completionMode="NonIndexed", suspend=False)
    policy = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    _put(spec, podReplacementPolicy=policy, manualSelector=False)
    if not spec["manualSelector"]:
        del spec["manualSelector"]
    pod_defaults.default_template(spec.setdefault("template", {}))


def _job(obj: Object) -> None:
    _job_spec(_spec(obj))


def _cron(obj: Object) -> None:
    spec = _spec(obj)
    _put(spec, concurrencyPolicy="Allow", suspend=False)
    _put(spec, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    pod_defaults.default_template(
        spec.setdefault("jobTemplate", {}).setdefault("spec", {}).setdefault("template", {})
    )


def _claim(obj: Object) -> None:
    _put(_spec(obj), volumeMode="Filesystem")


def _volume(obj: Object) -> None:
    spec = _spec(obj)
    _put(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    if "hostPath" in spec:
        _put(spec["hostPath"], type="")


def _class(obj: Object) -> None:
    _put(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _driver(obj: Object) -> None:
    spec = _spec(obj)
    _put(spec, attachRequired=True, podInfoOnMount=False, storageCapacity=False)
    _put(spec, fsGroupPolicy="ReadWriteOnceWithFSType", requiresRepublish=False, seLinuxMount=False)
    _put(spec, volumeLifecycleModes=["Persistent"])


def _priority(obj: Object) -> None:
    _put(obj, preemptionPolicy="PreemptLowerPriority")


def _endpoints(obj: Object) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            _put(port, protocol="TCP")


def _slice(obj: Object) -> None:
    for port in obj.get("ports") or ():
        _put(port, name="", protocol="TCP")


def _network(obj: Object) -> None:
    spec = _spec(obj)
    for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
        for port in rule.get("ports") or ():
            _put(port, protocol="TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _binding(obj: Object) -> None:
    ref = obj.setdefault("roleRef", {})
    if not ref.get("apiGroup"):
        ref["apiGroup"] = _RBAC
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _RBAC


def _autoscaler(obj: Object) -> None:
    spec = _spec(obj)
    _put(spec, minReplicas=1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


def _definition(obj: Object) -> None:
    spec = _spec(obj)
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    for key, value in (("singular", kind.lower()), ("listKind", f"{kind}List")):
        if not names.get(key) and kind:
            names[key] = value
    _put(spec, conversion={"strategy": "None"})


def _limit_range(obj: Object) -> None:
    for item in _spec(obj).get("limits") or ():
        if item.get("type") == "Container":
            least, most = item.get("min") or {}, item.get("max") or {}
            limits = {**most, **(item.get("default") or {})}
            requests = {**least, **limits, **(item.get("defaultRequest") or {})}
            item.update({k: v for k, v in (("default", limits), ("defaultRequest", requests)) if v})


def _node(obj: Object) -> None:
    status = obj.get("status") or {}
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


DEFAULTS: Mapping[str, Default] = {
    "Namespace": _namespace,
    "Secret": _secret,
    "Service": _service,
    "Pod": pod_defaults.default_pod,
    "PodTemplate": lambda obj: pod_defaults.default_template(obj.setdefault("template", {})),
    "Deployment": _deployment,
    "StatefulSet": _stateful,
    "DaemonSet": _daemon,
    "ReplicaSet": _replicas,
    "ReplicationController": _controller,
    "Job": _job,
    "CronJob": _cron,
    "PersistentVolumeClaim": _claim,
    "PersistentVolume": _volume,
    "StorageClass": _class,
    "CSIDriver": _driver,
    "PriorityClass": _priority,
    "Endpoints": _endpoints,
    "EndpointSlice": _slice,
    "NetworkPolicy": _network,
    "RoleBinding": _binding,
    "ClusterRoleBinding": _binding,
    "HorizontalPodAutoscaler": _autoscaler,
    "CustomResourceDefinition": _definition,
    "Node": _node,
    "LimitRange": _limit_range,
}
