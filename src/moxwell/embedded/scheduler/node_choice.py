"""
Which node a pod is bound to. Pure.

The reasons why nodes do not fit are those of kube-scheduler, with the number of nodes of each.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moxwell.api.quantity import Quantity
from moxwell.api.selectors import Requirement

Json = Mapping[str, Any]
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The chosen node, or why none fits."""

    node: str = ""
    why: str = ""


def no_constraints(_: Json) -> str:
    """The volume constraints of a pod without volumes."""
    return ""


def choose_node(
    pod: Json,
    nodes: Sequence[Json],
    bound: Sequence[Json],
    volumes: Callable[[Json], str] = no_constraints,
) -> NodeChoice:
    """The fitting node with the fewest pods of the same owner, then of its zone, then by load."""
    reasons = {n["metadata"]["name"]: _obstacle(pod, n, bound) or volumes(n) for n in nodes}
    fitting = [n for n in nodes if not reasons[n["metadata"]["name"]]]
    if not fitting:
        return NodeChoice(why=_sentence(len(nodes), reasons.values()))
    siblings = _siblings(pod, bound)
    zones = _per_zone(siblings, nodes)

    def rank(node: Json) -> tuple[int, int, float, str]:
        name = node["metadata"]["name"]
        zone = node["metadata"].get("labels", {}).get(ZONE, "")
        return (siblings[name], zones[zone], _load(node, bound), name)

    return NodeChoice(node=min(fitting, key=rank)["metadata"]["name"])


def _obstacle(pod: Json, node: Json, bound: Sequence[Json]) -> str:
    """Why a node does not fit; empty if it does."""
    if node["spec"].get("unschedulable"):
        return "node(s) were unschedulable"
    if taint := _untolerated(pod, node):
        return f"node(s) had untolerated taint {{{taint}}}"
    if not _selected(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return _shortage(pod, node, bound)


def _untolerated(pod: Json, node: Json) -> str:
    tolerations = pod["spec"].get("tolerations") or ()
    for taint in node["spec"].get("taints") or ():
        hard = taint["effect"] in {"NoSchedule", "NoExecute"}
        if hard and not any(tolerates(t, taint) for t in tolerations):
            return f"{taint['key']}: {taint.get('value', '')}"
    return ""


def tolerates(toleration: Json, taint: Json) -> bool:
    """Whether a toleration covers a taint."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    key = toleration.get("key")
    if toleration.get("operator") == "Exists":
        return not key or bool(key == taint["key"])
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(key == taint["key"]) and same_value


def _selected(pod: Json, node: Json) -> bool:
    labels = node["metadata"].get("labels") or {}
    selector = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity")) or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    return not terms or any(_matches(term, labels) for term in terms)


def _matches(term: Json, labels: Mapping[str, str]) -> bool:
    return all(
        Requirement(e["key"], e["operator"], tuple(e.get("values") or ())).matches(labels)
        for e in term.get("matchExpressions") or ()
    )


def requests(pod: Json) -> Counter[str]:
    """The resource requests of a pod: all containers, or the largest init container."""
    total: Counter[str] = Counter(pods=Quantity.parse(1).nano)
    for container in pod["spec"].get("containers") or ():
        for name, amount in _container_requests(container).items():
            total[name] += amount
    for container in pod["spec"].get("initContainers") or ():
        for name, amount in _container_requests(container).items():
            total[name] = max(total[name], amount)
    return total


def _container_requests(container: Json) -> dict[str, Any]:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: Quantity.parse(str(text)).nano for name, text in amounts.items()}


def _used(node: Json, bound: Iterable[Json]) -> Counter[str]:
    name = node["metadata"]["name"]
    used: Counter[str] = Counter()
    for pod in bound:
        if pod["spec"].get("nodeName") == name:
            used.update(requests(pod))
    return used


def _allocatable(node: Json) -> dict[str, Any]:
    amounts = (node.get("status") or {}).get("allocatable") or {}
    return {name: Quantity.parse(str(text)).nano for name, text in amounts.items()}


def _shortage(pod: Json, node: Json, bound: Iterable[Json]) -> str:
    allocatable, used = _allocatable(node), _used(node, bound)
    for name, amount in requests(pod).items():
        if amount > allocatable.get(name, 0) - used[name]:
            return "Too many pods" if name == "pods" else f"Insufficient {name}"
    return ""


def _load(node: Json, bound: Iterable[Json]) -> float:
    allocatable, used = _allocatable(node), _used(node, bound)
    shares = [
        float(used[n] / allocatable[n]) for n in ("cpu", "memory", "pods") if allocatable.get(n)
    ]
    return max(shares, default=0.0)


def _siblings(pod: Json, bound: Iterable[Json]) -> Counter[str]:
    owner = _owner(pod)
    same = [p for p in bound if owner and _owner(p) == owner]
    return Counter(p["spec"]["nodeName"] for p in same)


def _owner(pod: Json) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((o["uid"] for o in owners if o.get("controller")), "")


def _per_zone(siblings: Mapping[str, int], nodes: Iterable[Json]) -> Counter[str]:
    zones: Counter[str] = Counter()
    for node in nodes:
        zone = node["metadata"].get("labels", {}).get(ZONE, "")
        zones[zone] += siblings.get(node["metadata"]["name"], 0)
    return zones


def _sentence(total: int, reasons: Iterable[str]) -> str:
    counted = sorted(Counter(reasons).items())
    listed = ", ".join(f"{count} {reason}" for reason, count in counted)
    return f"0/{total} nodes are available: {listed}." if total else "no nodes available"
