"""
Defaults for new objects that depend on other objects: cluster IPs, node ports, default classes,
priorities.

Implements the visible part of kube-apiserver's admission plugins. Free addresses and ports are
computed from staged objects, so two creations in one commit never get the same.
"""

import ipaddress
import random
from typing import Any

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.request_info import ApiCall

Object = dict[str, Any]
ADDRESSES = ipaddress.IPv4Network("10.96.0.0/12")
PORTS = range(30000, 32768)
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
PROTECTED = {
    "PersistentVolumeClaim": "kubernetes.io/pvc-protection",
    "PersistentVolume": "kubernetes.io/pv-protection",
}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class AdmissionDefaults:
    """Sets admission defaults and rejects references to missing objects."""

    def __init__(self, core: ServerContext) -> None:
        self._core = core

    def add_defaults(self, call: ApiCall, obj: Object) -> None:
        """Set the defaults of a new object."""
        kind = call.resource.kind
        if kind == "CustomResourceDefinition":
            self._check_conversion(call, obj)
        if call.resource.group or "spec" not in obj:
            return
        spec = obj["spec"]
        if kind in PROTECTED:
            finalizers = obj["metadata"].setdefault("finalizers", [])
            if PROTECTED[kind] not in finalizers:
                finalizers.append(PROTECTED[kind])
        if kind == "Service":
            self._service(spec)
        elif kind == "PersistentVolumeClaim":
            self._claim(spec)
        elif kind == "Pod":
            self._pod(call, obj, spec)
        elif kind == "Node":
            taints = spec.setdefault("taints", [])
            if not any(t.get("key") == NOT_READY["key"] for t in taints):
                taints.append(dict(NOT_READY))

    def _check_conversion(self, call: ApiCall, obj: Object) -> None:
        """Reject conversion webhooks; conversion runs in-process only."""
        strategy = ((obj.get("spec") or {}).get("conversion") or {}).get("strategy")
        versions = (obj.get("spec") or {}).get("versions") or ()
        name = obj["metadata"].get("name", "")
        if strategy == "Webhook" and len(versions) > 1 and name not in self._core.hooks.converters:
            text = "Forbidden: the embedded API calls no conversion webhooks"
            cause = status_errors.ErrorCause(
                "FieldValueForbidden", text, "spec.conversion.strategy"
            )
            raise status_errors.invalid(call.resource.kind, call.resource.group, name, [cause])

    def _pod(self, call: ApiCall, obj: Object, spec: Object) -> None:
        name, account = obj["metadata"].get("name", ""), spec.get("serviceAccountName", "default")
        key = f"{call.namespace}/{account}"
        if account != "default" and self._core.cache.find_staged("serviceaccounts", key) is None:
            why = f'error looking up service account {key}: serviceaccount "{account}" not found'
            raise status_errors.forbidden("pods", "", name, why)
        wanted = spec.get("priorityClassName")
        if not wanted:
            return
        record = self._core.cache.find_staged("priorityclasses.scheduling.k8s.io", wanted)
        if record is None:
            raise status_errors.forbidden(
                "pods", "", name, f"no PriorityClass with name {wanted} was found"
            )
        found = record.object()
        spec["priority"] = found.get("value", 0)
        spec["preemptionPolicy"] = found.get("preemptionPolicy", "PreemptLowerPriority")

    def _service(self, spec: Object) -> None:
        if spec.get("type") == "ExternalName":
            return
        if not spec.get("clusterIP"):
            spec["clusterIP"] = self._address()
        spec["clusterIPs"] = spec.get("clusterIPs") or [spec["clusterIP"]]
        spec.setdefault("ipFamilies", ["IPv6" if ":" in spec["clusterIP"] else "IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if spec.get("type") in ("NodePort", "LoadBalancer"):
            self._node_ports(spec)

    def _specs(self) -> list[Object]:
        return [r.object().get("spec") or {} for r in self._core.cache.scan_staged("services")]

    def _address(self) -> str:
        taken = {spec.get("clusterIP") for spec in self._specs()}
        while True:
            number = random.randrange(2, ADDRESSES.num_addresses - 1)
            found = str(ADDRESSES[number])
            if found not in taken:
                return found

    def _node_ports(self, spec: Object) -> None:
        if spec.get("allocateLoadBalancerNodePorts") is False:
            return
        taken = {p.get("nodePort") for s in self._specs() for p in s.get("ports") or ()}
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                free = [n for n in PORTS if n not in taken]
                port["nodePort"] = random.choice(free)
                taken.add(port["nodePort"])

    def _claim(self, spec: Object) -> None:
        if spec.get("storageClassName") is not None or spec.get("volumeName"):
            return
        classes = self._core.cache.scan_staged("storageclasses.storage.k8s.io")
        chosen = [
            r
            for r in classes
            if DEFAULT_CLASS.encode() in r.body
            and (r.object()["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
        ]
        if chosen:
            spec["storageClassName"] = max(chosen, key=lambda r: r.revision).name
