"""The EndpointSlices that a Service needs, and the writes that lead there. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from moxwell.embedded.controllermanager.resources import ENDPOINT_SLICES
from moxwell.embedded.controllermanager.workloads import is_ready, owner_reference
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Merge, Writes

Json = dict[str, Any]
Ports = tuple[tuple[str, int, str], ...]  # name, number, protocol
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
CONTROLLER = "endpointslice-controller.k8s.io"
HEADLESS = "service.kubernetes.io/headless"
MOST_ENDPOINTS = 100  # of a slice


@dataclass(frozen=True, slots=True)
class ServicePods:
    """The pods that a Service selects, its slices, and the zones of nodes."""

    pods: tuple[Json, ...] = ()
    slices: tuple[Json, ...] = ()
    zones: Mapping[str, str] = field(default_factory=dict)


def next_move(service: Json, seen: ServicePods) -> WriteMove:
    """Create, change and delete slices until they are those that the Service needs."""
    wanted = {made["metadata"]["name"]: made for made in slices(service, seen)}
    writes: list[Any] = []
    for found in seen.slices:
        made = wanted.pop(found["metadata"]["name"], None)
        if made is None:
            writes.append(_delete(found))
        elif change := _change(found, made):
            meta = found["metadata"]
            writes.append(Merge(ENDPOINT_SLICES, meta["name"], change, meta["namespace"]))
    writes += [Create(made, ENDPOINT_SLICES) for made in wanted.values()]
    return Writes(tuple(writes)) if writes else Done()


def _delete(found: Json) -> Delete:
    meta = found["metadata"]
    return Delete(ENDPOINT_SLICES, meta["name"], meta["namespace"], meta["uid"])


def _change(found: Json, made: Json) -> Json:
    same = all((found.get(k) or []) == made[k] for k in ("endpoints", "ports"))
    return {} if same else {"endpoints": made["endpoints"], "ports": made["ports"]}


def slices(service: Json, seen: ServicePods) -> Iterator[Json]:
    """The slices of a Service: one per address family, set of ports and hundred endpoints."""
    spec = service["spec"]
    if not spec.get("selector") or spec.get("type") == "ExternalName":
        return
    for family in spec.get("ipFamilies") or ["IPv4"]:
        groups: dict[Ports, list[Json]] = {}
        for pod in sorted(seen.pods, key=lambda p: str(p["metadata"]["name"])):
            if made := _endpoint(service, pod, family, seen.zones):
                groups.setdefault(_ports(service, pod), []).append(made)
        number = 0
        for ports, endpoints in sorted(groups.items()) or [((), [])]:
            for start in range(0, max(1, len(endpoints)), MOST_ENDPOINTS):
                chunk = endpoints[start : start + MOST_ENDPOINTS]
                yield _slice(service, family, number, ports, chunk)
                number += 1


def _slice(service: Json, family: str, number: int, ports: Ports, endpoints: list[Json]) -> Json:
    meta = service["metadata"]
    labels = {SERVICE_NAME: meta["name"], MANAGED_BY: CONTROLLER}
    if service["spec"].get("clusterIP") == "None":
        labels[HEADLESS] = ""
    return {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": {
            "name": f"{meta['name']}-{family.lower()}-{number}",
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [
                owner_reference({**service, "apiVersion": "v1", "kind": "Service"})
            ],
        },
        "addressType": family,
        "endpoints": endpoints,
        "ports": [{"name": n, "port": p, "protocol": protocol} for n, p, protocol in ports],
    }


def _endpoint(service: Json, pod: Json, family: str, zones: Mapping[str, str]) -> Json | None:
    """A pod as an endpoint; None if it has no address of the family or has ended."""
    status, meta = pod.get("status") or {}, pod["metadata"]
    addresses = [i["ip"] for i in status.get("podIPs") or () if _family(i["ip"]) == family]
    if not addresses or status.get("phase") in ("Succeeded", "Failed"):
        return None
    terminating, serving = "deletionTimestamp" in meta, is_ready(pod)
    published = bool(service["spec"].get("publishNotReadyAddresses"))
    node = pod["spec"].get("nodeName", "")
    made: Json = {
        "addresses": addresses[:1],
        "conditions": {
            "ready": published or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "nodeName": node,
        "targetRef": {
            "kind": "Pod",
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
        },
    }
    return made | ({"zone": zones[node]} if zones.get(node) else {})


def _family(address: str) -> str:
    return f"IPv{ip_address(address).version}"


def _ports(service: Json, pod: Json) -> Ports:
    """The ports of a Service on a pod; a named target port that the pod lacks is left out."""
    found = []
    for port in service["spec"].get("ports") or ():
        target, protocol = port.get("targetPort", port["port"]), port.get("protocol", "TCP")
        number = target if isinstance(target, int) else _named(pod, target, protocol)
        if number:
            found.append((port.get("name", ""), number, protocol))
    return tuple(sorted(found))


def _named(pod: Json, name: str, protocol: str) -> int:
    for container in pod["spec"].get("containers", ()):
        for port in container.get("ports") or ():
            if port.get("name") == name and port.get("protocol", "TCP") == protocol:
                return int(port["containerPort"])
    return 0
