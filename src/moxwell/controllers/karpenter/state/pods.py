"""Pods of the scaled cluster as the decisions see them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moxwell.errors import MoxwellError
from moxwell.scheduling.packing.cluster import DaemonPod
from moxwell.scheduling.packing.pod_parsing import pod_shape, selector_of
from moxwell.scheduling.packing.pod_validation import NOT_ON_KARPENTER_NODES, pod_refusal
from moxwell.scheduling.packing.pod_volumes import (
    PodVolumes,
    StorageObjects,
    claim_keys,
    pod_volumes,
)
from moxwell.scheduling.packing.pods import PodDemand, PodShape, pairs
from moxwell.scheduling.packing.rescheduling import DisruptionLimit
from moxwell.scheduling.well_known_labels import LabelRules

Json = Mapping[str, Any]
_UNREADABLE = "the pod cannot be read"


@dataclass(frozen=True, slots=True)
class ParsedPod:
    """A pod, and why the autoscaler ignores it; ``quiet`` if it asked for that itself."""

    pod: PodDemand
    refusal: str = ""
    quiet: bool = False


class PodParser:
    """Parses pods, remembers them by resource version and lets equal shapes be one object."""

    def __init__(self, rules: LabelRules) -> None:
        self._rules = rules
        self._parsed: dict[str, tuple[str, ParsedPod]] = {}
        self._shapes: dict[PodShape, PodShape] = {}

    def parse(self, pods: Iterable[Json], storage: StorageObjects) -> tuple[ParsedPod, ...]:
        """All pods of a cluster; forgets the others."""
        known, self._parsed = self._parsed, {}
        found = []
        for pod in pods:
            uid, version = pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]
            before = known.get(uid)
            if before is None or before[0] != version or any(True for _ in claim_keys(pod)):
                before = (version, self._one(pod, storage))
            self._parsed[uid] = before
            found.append(before[1])
        shapes = {p.pod.shape for p in found}
        self._shapes = {s: s for s in self._shapes if s in shapes}
        return tuple(found)

    def _one(self, pod: Json, storage: StorageObjects) -> ParsedPod:
        try:
            return parse_pod(pod, storage, self._rules, self._shapes)
        except (MoxwellError, KeyError, TypeError, ValueError) as error:
            unread = demand_of(pod, PodShape(namespace=namespace_of(pod)))
            return ParsedPod(unread, f"{_UNREADABLE}: {error}")


def parse_pod(
    pod: Json, storage: StorageObjects, rules: LabelRules, shapes: dict[PodShape, PodShape]
) -> ParsedPod:
    """One pod; ``shapes`` holds the shapes of others."""
    volumes = pod_volumes(pod, storage)
    bound = bool((pod.get("spec") or {}).get("nodeName"))
    shape = pod_shape(pod, namespace_of(pod), volumes.topologies, volumes.attachments)
    shape = shapes.setdefault(shape, shape)
    refusal = "" if bound else _refusal(pod, volumes, rules)
    return ParsedPod(demand_of(pod, shape), refusal, refusal.startswith(NOT_ON_KARPENTER_NODES))


def _refusal(pod: Json, volumes: PodVolumes, rules: LabelRules) -> str:
    return "; ".join(r for r in (pod_refusal(pod, rules), volumes.refusal) if r)


def demand_of(pod: Json, shape: PodShape) -> PodDemand:
    """A pod with its shape."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    return PodDemand(
        uid=meta["uid"],
        name=meta["name"],
        shape=shape,
        created=seconds_of(meta.get("creationTimestamp")) or 0.0,
        node_name=spec.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        owner=owner_of(meta),
        annotations=pairs(meta.get("annotations")),
        priority=spec.get("priority"),
        started=seconds_of(status.get("startTime")),
        terminating=bool(meta.get("deletionTimestamp")),
        ready=_is_ready(status),
    )


def is_provisionable(pod: Json) -> bool:
    """Whether kube-scheduler found no node for a pod that needs one."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if spec.get("nodeName") or status.get("nominatedNodeName"):
        return False
    if pod["metadata"].get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed"):
        return False
    unschedulable = any(
        c.get("type") == "PodScheduled" and c.get("reason") == "Unschedulable"
        for c in status.get("conditions") or ()
    )
    return unschedulable and owner_of(pod["metadata"]) not in ("DaemonSet", "Node")


def daemon_pod(daemon_set: Json) -> DaemonPod:
    """The pod of a DaemonSet."""
    template = (daemon_set.get("spec") or {}).get("template") or {}
    return DaemonPod(daemon_set["metadata"]["name"], daemon_shape(template))


def daemon_shape(template: Json) -> PodShape:
    """A pod template of a DaemonSet; as in Karpenter, limits stand in for absent requests."""
    spec = dict(template.get("spec") or {})
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [_limited(c) for c in spec[kind]]
    return pod_shape({"spec": spec})


def _limited(container: Json) -> Json:
    resources = container.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}


def disruption_limit(budget: Json) -> DisruptionLimit:
    """A PodDisruptionBudget."""
    spec, meta = budget.get("spec") or {}, budget["metadata"]
    return DisruptionLimit(
        meta.get("namespace") or "default",
        meta["name"],
        selector_of(spec.get("selector")),
        (budget.get("status") or {}).get("disruptionsAllowed", 0),
        spec.get("maxUnavailable") in (0, "0%") or spec.get("minAvailable") == "100%",
        spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow",
    )


def namespace_of(obj: Json) -> str:
    """The namespace of an object."""
    return obj["metadata"].get("namespace") or "default"


def owner_of(meta: Json) -> str:
    """The kind of the owner that matters: a DaemonSet, a Node, a StatefulSet, or any other."""
    kinds = [o.get("kind", "") for o in meta.get("ownerReferences") or ()]
    for known in ("DaemonSet", "Node", "StatefulSet"):
        if known in kinds:
            return known
    return kinds[0] if kinds else ""


def _is_ready(status: Json) -> bool:
    conditions = status.get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def seconds_of(text: str | None) -> float | None:
    """Seconds since 1970 of a timestamp; None if there is none."""
    return datetime.fromisoformat(text).timestamp() if text else None
