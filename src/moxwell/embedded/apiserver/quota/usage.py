"""
The quota evaluators: usage of one object, and whether a quota's scopes match it. Pure.

Usage has every resource name a quota can use: ``pods``, ``cpu`` and ``requests.cpu``,
``count/deployments.apps``, ``requests.storage`` and the same per storage class. A terminated Pod
counts only in ``count/pods``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from moxwell.api.quantity import Quantity
from moxwell.embedded.apiserver.quota import resource_list
from moxwell.embedded.apiserver.quota.resource_list import ONE, ResourceList

Object = dict[str, Any]
ALIASES = frozenset({
    "pods", "services", "persistentvolumeclaims", "configmaps", "secrets",
    "replicationcontrollers", "resourcequotas",
})  # fmt: skip
COMPUTE = ("cpu", "memory", "ephemeral-storage")
REQUIRED = frozenset(
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"]
)
PER_CLASS = ".storageclass.storage.k8s.io/"
ENDED = ("Succeeded", "Failed")


def usage_of(group_resource: str, obj: Object) -> ResourceList:
    """Return the usage of an object of a group resource (``plural`` or ``plural.group``)."""
    found: ResourceList = {f"count/{group_resource}": ONE}
    if group_resource == "pods":
        return found | ({} if has_ended(obj) else pod(obj))
    if group_resource in ALIASES:
        found[group_resource] = ONE
    if group_resource == "services":
        found |= service(obj.get("spec") or {})
    if group_resource == "persistentvolumeclaims":
        found |= claim(obj.get("spec") or {})
    return found


def group_resource_of(resource: str) -> str:
    """Return the group resource whose objects use this resource."""
    if resource.startswith("count/"):
        return resource[6:]
    if resource.startswith("services."):
        return "services"
    if resource == "requests.storage" or PER_CLASS in resource:
        return "persistentvolumeclaims"
    return resource if resource in ALIASES else "pods"


def has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ENDED


# pods


def pod(obj: Object) -> ResourceList:
    spec = obj.get("spec") or {}
    return {"pods": ONE} | named(sums(spec, "requests"), sums(spec, "limits"))


def sums(spec: Object, which: str) -> ResourceList:
    """Sum the containers' resources; of init containers the maximum counts."""
    asked = [_resources(c, which) for c in spec.get("containers") or ()]
    found = resource_list.sum_of(asked)
    beside: ResourceList = {}
    greediest: ResourceList = {}
    for container in spec.get("initContainers") or ():
        wanted = _resources(container, which)
        if container.get("restartPolicy") == "Always":  # a sidecar container, which keeps running
            found, beside = resource_list.add(found, wanted), resource_list.add(beside, wanted)
            wanted = beside
        else:
            wanted = resource_list.add(wanted, beside)
        greediest = resource_list.maximum(greediest, wanted)
    found = resource_list.maximum(found, greediest)
    overhead = resource_list.parse(spec.get("overhead"))
    if which == "limits":
        overhead = {n: v for n, v in overhead.items() if n in found}
    return resource_list.add(found, overhead)


def _resources(container: Object, which: str) -> ResourceList:
    return resource_list.parse((container.get("resources") or {}).get(which))


def named(requests: ResourceList, limits: ResourceList) -> ResourceList:
    """Map to the resource names of quotas."""
    found: ResourceList = {}
    for name, value in requests.items():
        if name in COMPUTE or name.startswith("hugepages-"):
            found[name] = value
        if name in COMPUTE or "/" in name or name.startswith("hugepages-"):
            found[f"requests.{name}"] = value
    for name, value in limits.items():
        if name in COMPUTE:
            found[f"limits.{name}"] = value
    return found


def missing(hard: Iterable[str], obj: Object) -> str:
    """Return the requests and limits that containers must specify but do not; empty if none."""
    required = REQUIRED & set(hard)
    lacking: dict[str, set[str]] = {}
    spec = obj.get("spec") or {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        stated = named(_resources(container, "requests"), _resources(container, "limits"))
        for name in required - set(stated):
            lacking.setdefault(name, set()).add(container.get("name", ""))
    parts = [f"{name} for: {','.join(sorted(who))}" for name, who in sorted(lacking.items())]
    return f"must specify {'; '.join(parts)}" if parts else ""


# services and claims


def service(spec: Object) -> ResourceList:
    ports = spec.get("ports") or ()
    count = len(ports)
    if spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        count = sum(bool(port.get("nodePort")) for port in ports)
    held = count if spec.get("type") in ("NodePort", "LoadBalancer") else 0
    balanced = spec.get("type") == "LoadBalancer"
    return {
        "services.nodeports": Quantity.of(held),
        "services.loadbalancers": Quantity.of(int(balanced)),
    }


def claim(spec: Object) -> ResourceList:
    found: ResourceList = {}
    kind = spec.get("storageClassName")
    if kind:
        found[f"{kind}{PER_CLASS}persistentvolumeclaims"] = ONE
    asked = resource_list.parse((spec.get("resources") or {}).get("requests")).get("storage")
    if asked is not None:
        found["requests.storage"] = asked
        if kind:
            found[f"{kind}{PER_CLASS}requests.storage"] = asked
    return found


# scopes


def in_scope(spec: Object, group_resource: str, obj: Object) -> bool:
    """Report whether a quota's scopes match; scopes select Pods and exclude other objects."""
    wanted = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    wanted += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    if not wanted:
        return True
    return group_resource == "pods" and all(_matches(one, obj) for one in wanted)


def _matches(wanted: Mapping[str, Any], pod: Object) -> bool:
    spec = pod.get("spec") or {}
    ends = spec.get("activeDeadlineSeconds") is not None
    best_effort = (pod.get("status") or {}).get("qosClass") == "BestEffort"
    match wanted["scopeName"]:
        case "Terminating":
            return ends
        case "NotTerminating":
            return not ends
        case "BestEffort":
            return best_effort
        case "NotBestEffort":
            return not best_effort
        case "PriorityClass":
            return _chosen(wanted, spec.get("priorityClassName") or "")
    return False


def _chosen(wanted: Mapping[str, Any], name: str) -> bool:
    match wanted.get("operator"):
        case "In":
            return name in (wanted.get("values") or ())
        case "NotIn":
            return name not in (wanted.get("values") or ())
        case "DoesNotExist":
            return not name
    return bool(name)
