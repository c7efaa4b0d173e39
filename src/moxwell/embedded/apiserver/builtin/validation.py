"""
Validation of built-in kinds, for the fields that users often get wrong.

Functions get the new object, the old one (None on create) and the subresource. kube-apiserver
validates more; ``docs/embedded-api.md`` lists what is covered.
"""

import re
from collections.abc import Callable, Mapping

from moxwell.embedded.apiserver.builtin import label_selectors, pod_validation, storage_validation
from moxwell.embedded.apiserver.builtin.field_errors import (
    Object,
    forbidden,
    immutable,
    invalid,
    required,
    unsupported,
)
from moxwell.embedded.apiserver.crd import structural
from moxwell.embedded.apiserver.status_errors import ErrorCause

Check = Callable[[Object, Object | None, str], list[ErrorCause]]
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g."
    " 'key.name',  or"
    " 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
MAX_DATA = 1024 * 1024


def _keys(obj: Object, fields: tuple[str, ...]) -> list[ErrorCause]:
    found = []
    for field in fields:
        for key in obj.get(field) or {}:
            if not _KEY.fullmatch(key):
                found.append(invalid(f"{field}[{key}]", key, _KEY_TEXT))
    size = sum(len(v) for f in fields for v in (obj.get(f) or {}).values())
    if size > MAX_DATA:
        found.append(
            ErrorCause("FieldValueTooLong", f"Too long: may not be more than {MAX_DATA} bytes", "")
        )
    return found


def _frozen(new: Object, old: Object, fields: tuple[str, ...]) -> list[ErrorCause]:
    if not old.get("immutable"):
        return []
    text = "field is immutable when `immutable` is set"
    found = [] if new.get("immutable") else [forbidden("immutable", text)]
    return found + [forbidden(f, text) for f in fields if new.get(f) != old.get(f)]


def _configmap(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    fields = ("data", "binaryData")
    found = _keys(new, fields)
    return found if old is None else _frozen(new, old, fields) + found


_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def _secret(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    found: list[ErrorCause] = []
    if old is not None:
        found += immutable("type", new.get("type"), old.get("type"))
        found += _frozen(new, old, ("data",))
    found += _keys(new, ("data",))
    for key in _SECRET_KEYS.get(new.get("type", ""), ()):
        if key not in (new.get("data") or {}):
            found.append(required(f"data[{key}]"))
    return found


def _lease(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    spec = new.get("spec") or {}
    found = []
    if "leaseDurationSeconds" in spec and spec["leaseDurationSeconds"] <= 0:
        value = spec["leaseDurationSeconds"]
        found.append(invalid("spec.leaseDurationSeconds", value, "must be greater than 0"))
    if spec.get("leaseTransitions", 0) < 0:
        text = "must be greater than or equal to 0"
        found.append(invalid("spec.leaseTransitions", spec["leaseTransitions"], text))
    return found


def _workload(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    """Validate a workload: its selector, its template and its replicas."""
    if subresource == "status":
        return []
    spec, selector = new.get("spec") or {}, (new.get("spec") or {}).get("selector")
    found: list[ErrorCause] = []
    if spec.get("replicas", 0) < 0:
        text = "must be greater than or equal to 0"
        found.append(invalid("spec.replicas", spec["replicas"], text))
    if selector is None:
        found.append(required("spec.selector"))
    else:
        found += label_selectors.causes(selector, "spec.selector")
        if label_selectors.is_empty(selector):
            text = "empty selector is invalid for deployment"
            found.append(invalid("spec.selector", selector, text.replace("deployment", _word(new))))
    template = spec.get("template") or {}
    given = spec.get("volumeClaimTemplates") or ()  # of a StatefulSet
    claims = frozenset((c.get("metadata") or {}).get("name", "") for c in given)
    found += pod_validation.template_causes(
        template, selector, "spec.template", new["kind"], claims
    )
    if old is not None:
        found += immutable("spec.selector", selector, (old.get("spec") or {}).get("selector"))
    return found


def _word(obj: Object) -> str:
    kind = obj["kind"]
    return (
        "daemonset"
        if kind == "DaemonSet"
        else "statefulset"
        if kind == "StatefulSet"
        else "deployment"
    )


_STATEFUL = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip


def _stateful(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    found = _workload(new, None, subresource)
    if old is not None and subresource == "":
        a, b = (
            {k: v for k, v in (o.get("spec") or {}).items() if k not in _STATEFUL}
            for o in (new, old)
        )
        if a != b:
            text = (
                "updates to statefulset spec for fields other than 'replicas', 'ordinals',"
                " 'template',"
                " 'updateStrategy', 'revisionHistoryLimit',"
                " 'persistentVolumeClaimRetentionPolicy' and"
                " 'minReadySeconds' are forbidden"
            )
            found.append(forbidden("spec", text))
    return found


def _service(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    if subresource == "status":
        return []
    spec, found = new.get("spec") or {}, []
    ports = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        found.append(required("spec.ports"))
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        if not port.get("name") and len(ports) > 1:
            found.append(required(f"{at}.name"))
        if not 1 <= port.get("port", 0) <= 65535:
            text = "must be between 1 and 65535, inclusive"
            found.append(invalid(f"{at}.port", port.get("port", 0), text))
    kinds = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
    if spec.get("type") not in kinds:
        found.append(unsupported("spec.type", spec.get("type"), kinds))
    if old is not None:
        found += _service_update(spec, old.get("spec") or {})
    return found


def _service_update(new: Object, old: Object) -> list[ErrorCause]:
    found: list[ErrorCause] = []
    internal = "ExternalName" not in (old.get("type"), new.get("type"))
    if internal and old.get("clusterIP") and new.get("clusterIP") != old["clusterIP"]:
        text = "may not change once set"
        found.append(invalid("spec.clusterIPs[0]", new.get("clusterIPs"), text))
    balanced = "LoadBalancer"
    if old.get("type") == new.get("type") == balanced:
        before, after = old.get("loadBalancerClass"), new.get("loadBalancerClass")
        if before != after:
            found.append(invalid("spec.loadBalancerClass", after, "may not change once set"))
    return found


def _budget(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    spec = new.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        value = {
            "MinAvailable": spec["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        text = "minAvailable and maxUnavailable cannot be both set"
        return [invalid("spec", value, text)]
    return label_selectors.causes(spec.get("selector"), "spec.selector")


def _event(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    if new["apiVersion"] == "events.k8s.io/v1":
        return _new_event(new) if old is None else []
    place = (new.get("involvedObject") or {}).get("namespace") or "default"
    here = new["metadata"].get("namespace")
    if place != here and (new.get("involvedObject") or {}).get("namespace"):
        return [invalid("involvedObject.namespace", place, "does not match event.namespace")]
    return []


def _new_event(new: Object) -> list[ErrorCause]:
    found = []
    if not new.get("eventTime"):
        found.append(required("eventTime"))
        if new.get("type") not in ("Normal", "Warning"):
            found.append(
                invalid("type", new.get("type", ""), f"has invalid value: {new.get('type', '')}")
            )
        return found
    for field in ("reportingController", "reportingInstance", "action", "reason"):
        if not new.get(field):
            found.append(required(field))
    if new.get("type") not in ("Normal", "Warning"):
        found.append(
            invalid("type", new.get("type", ""), f"has invalid value: {new.get('type', '')}")
        )
    return found


def _node(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    if old is None or subresource == "status":
        return []
    before = (old.get("spec") or {}).get("providerID")
    if before and (new.get("spec") or {}).get("providerID") != before:
        text = 'node updates may not change providerID except from "" to valid'
        return [forbidden("spec.providerID", text)]
    return []


def _role(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    found = []
    aggregation = new.get("aggregationRule")
    if aggregation is not None and not aggregation.get("clusterRoleSelectors"):
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        found.append(required("aggregationRule.clusterRoleSelectors", text))
    for index, rule in enumerate(new.get("rules") or ()):
        at = f"rules[{index}]"
        if not rule.get("verbs"):
            found.append(required(f"{at}.verbs", "verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            if new["kind"] == "Role":
                text = "namespaced rules cannot apply to non-resource URLs"
                found.append(invalid(f"{at}.nonResourceURLs", rule["nonResourceURLs"], text))
            continue
        if not rule.get("apiGroups"):
            found.append(
                required(f"{at}.apiGroups", "resource rules must supply at least one api group")
            )
        if not rule.get("resources"):
            found.append(
                required(f"{at}.resources", "resource rules must supply at least one resource")
            )
    return found


def _binding(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    ref, found = new.get("roleRef") or {}, []
    if ref.get("kind") not in ("Role", "ClusterRole"):
        found.append(unsupported("roleRef.kind", ref.get("kind", ""), ("ClusterRole", "Role")))
    if not ref.get("name"):
        found.append(required("roleRef.name"))
    for index, subject in enumerate(new.get("subjects") or ()):
        if not subject.get("name"):
            found.append(required(f"subjects[{index}].name"))
        if subject.get("kind") == "ServiceAccount" and not subject.get("namespace"):
            found.append(required(f"subjects[{index}].namespace"))
    if old is not None and ref != old.get("roleRef"):
        value = {"APIGroup": ref.get("apiGroup"), "Kind": ref.get("kind"), "Name": ref.get("name")}
        found.append(invalid("roleRef", value, "cannot change roleRef"))
    return found


def _priority(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    name = new["metadata"].get("name", "")
    if old is None:
        known = ("system-node-critical", "system-cluster-critical")
        if name.startswith("system-") and name not in known:
            text = (
                "priority class names with 'system-' prefix are reserved for system use only."
                " error:"
                f" {name} is not a known system priority class"
            )
            return [forbidden("metadata.name", text)]
        if new.get("value", 0) > 1000000000 and name not in known:
            text = "maximum allowed value of a user defined priority is 1000000000"
            return [forbidden("value", text)]
        return []
    if new.get("value", 0) != old.get("value", 0):
        return [forbidden("value", "may not be changed in an update.")]
    return []


def _slice(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    kinds = ("FQDN", "IPv4", "IPv6")
    if old is not None:
        return immutable("addressType", new.get("addressType"), old.get("addressType"))
    if not new.get("addressType"):
        return [required("addressType")]
    if new["addressType"] not in kinds:
        return [unsupported("addressType", new["addressType"], kinds)]
    return []


CHECKS: Mapping[str, Check] = {
    "ConfigMap": _configmap,
    "Secret": _secret,
    "Lease": _lease,
    "Pod": pod_validation.check,
    "Deployment": _workload,
    "ReplicaSet": _workload,
    "DaemonSet": _workload,
    "StatefulSet": _stateful,
    "Service": _service,
    "PodDisruptionBudget": _budget,
    "Event": _event,
    "Node": _node,
    "Role": _role,
    "ClusterRole": _role,
    "RoleBinding": _binding,
    "ClusterRoleBinding": _binding,
    "PriorityClass": _priority,
    "EndpointSlice": _slice,
    "CustomResourceDefinition": structural.check,
    **storage_validation.CHECKS,
}
