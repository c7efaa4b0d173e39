"""
What a new Service is given: a cluster address, node ports. A new claim: the default storage class.

Taken from what is free among the staged objects, so two creations in one commit never get the same.
"""

import ipaddress
import random
from typing import Any

from moxwell.store.calls import Call
from moxwell.store.core import Core

Object = dict[str, Any]
ADDRESSES = ipaddress.IPv4Network("10.96.0.0/12")
PORTS = range(30000, 32768)
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


class Services:
    """Gives out addresses and ports."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def fill(self, call: Call, obj: Object) -> None:
        """Called for every new object."""
        if call.face.group:
            return
        if call.face.kind == "Service":
            self._service(obj.get("spec") or {})
        elif call.face.kind == "PersistentVolumeClaim":
            self._claim(obj.get("spec") or {})

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
        return [r.object().get("spec") or {} for r in self._core.state.scan_staged("services")]

    def _address(self) -> str:
        taken = {spec.get("clusterIP") for spec in self._specs()}
        while True:
            number = random.randrange(2, ADDRESSES.num_addresses - 1)  # noqa: S311
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
                port["nodePort"] = random.choice(free)  # noqa: S311
                taken.add(port["nodePort"])

    def _claim(self, spec: Object) -> None:
        if spec.get("storageClassName") is not None or spec.get("volumeName"):
            return
        classes = self._core.state.scan_staged("storageclasses.storage.k8s.io")
        chosen = [
            r
            for r in classes
            if DEFAULT_CLASS.encode() in r.body
            and (r.object()["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
        ]
        if chosen:
            spec["storageClassName"] = max(chosen, key=lambda r: r.revision).name
