"""
Metrics of nodes under Karpenter's names, computed from the caches when they are asked for.

A node that is gone has no samples, and nothing has to be forgotten.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from moxwell.api.meta import parse_time
from moxwell.clock import Clock
from moxwell.controllers.karpenter.state.objects import ScaledCluster
from moxwell.controllers.karpenter.state.pools import label_rules
from moxwell.errors import MoxwellError
from moxwell.scheduling.packing.pod_parsing import pod_requests
from moxwell.scheduling.resource_lists import MILLI, PODS, ResourceList, less, offered, total
from moxwell.scheduling.well_known_labels import NODE_POOL

Json = Mapping[str, Any]
OWN_LABELS = ("node_name", "phase", "managed")
RESOURCE = "resource_type"
GAUGES = {
    "allocatable": "Node allocatable are the resources allocatable by nodes.",
    "total_pod_requests": "Resources requested by pods bound to nodes, with DaemonSet pods.",
    "total_pod_limits": "Resources in the limits of pods bound to nodes, with DaemonSet pods.",
    "total_daemon_requests": "Resources requested by DaemonSet pods bound to nodes.",
    "total_daemon_limits": "Resources in the limits of DaemonSet pods bound to nodes.",
    "system_overhead": "The difference between a node's capacity and what is allocatable.",
}


def metric_label(key: str) -> str:
    """A label or resource as the name or value of a metric's label."""
    return key.rpartition("/")[2].lower().replace("-", "_")


def resource_label(name: str) -> str:
    """A resource as the value of a metric's label."""
    return name.lower().replace("-", "_")


class NodeMetrics(Collector):
    """Resources and age of nodes, and the utilization of the cluster; one object per registry."""

    def __init__(self, cluster: ScaledCluster, clock: Clock, registry: CollectorRegistry) -> None:
        self._cluster, self._clock = cluster, clock
        self._well_known = {metric_label(k): k for k in sorted(label_rules().well_known)}
        registry.register(self)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()  # registering must not read the caches

    def collect(self) -> Iterable[GaugeMetricFamily]:
        names = (*self._well_known, *OWN_LABELS)
        found = {
            name: GaugeMetricFamily(f"karpenter_nodes_{name}", text, labels=(*names, RESOURCE))
            for name, text in GAUGES.items()
        }
        text = "Node age in seconds"
        age = GaugeMetricFamily("karpenter_nodes_current_lifetime_seconds", text, labels=names)
        pods = _pods_by_node(self._cluster.pods.list())
        every = []
        for node in self._cluster.nodes.list():
            labels = self._labels(node)
            lists = node_resources(node, pods.get(str(node["metadata"]["name"]), ()))
            every.append(lists)
            for name, amounts in lists.items():
                for resource, amount in amounts.items():
                    found[name].add_metric([*labels, resource_label(resource)], amount / MILLI)
            if created := node["metadata"].get("creationTimestamp"):
                seconds = (self._clock.now() - parse_time(created)).total_seconds()
                age.add_metric(labels, seconds)
        return (*found.values(), age, _utilization(every))

    def _labels(self, node: Json) -> list[str]:
        meta = node["metadata"]
        labels = meta.get("labels") or {}
        known = [str(labels.get(key, "")) for key in self._well_known.values()]
        phase = str((node.get("status") or {}).get("phase", ""))
        return [*known, str(meta["name"]), phase, "true" if NODE_POOL in labels else "false"]


def node_resources(node: Json, pods: Iterable[Json]) -> dict[str, dict[str, int]]:
    """The amounts of each gauge for a node, in thousandths."""
    status = node.get("status") or {}
    allocatable, every = offered(status.get("allocatable")), tuple(pods)
    daemons = tuple(p for p in every if _is_daemon(p))
    return {
        "allocatable": allocatable,
        "total_pod_requests": _sum(every, _requests),
        "total_pod_limits": _sum(every, _limits),
        "total_daemon_requests": _sum(daemons, _requests),
        "total_daemon_limits": _sum(daemons, _limits),
        "system_overhead": less(offered(status.get("capacity")), allocatable),
    }


def utilization(every: Iterable[Mapping[str, ResourceList]]) -> dict[str, float]:
    """Percent of what all nodes offer that pods request, by resource."""
    lists = tuple(every)
    there = total(found["allocatable"] for found in lists)
    used = total(found["total_pod_requests"] for found in lists)
    return {name: 100 * used.get(name, 0) / amount for name, amount in there.items() if amount}


def _utilization(every: Iterable[Mapping[str, ResourceList]]) -> GaugeMetricFamily:
    found = GaugeMetricFamily(
        "karpenter_cluster_utilization_percent",
        "Utilization of allocatable resources by pod requests",
        labels=(RESOURCE,),
    )
    for name, percent in utilization(every).items():
        found.add_metric([resource_label(name)], percent)
    return found


def _pods_by_node(pods: Iterable[Json]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            found.setdefault(str(node), []).append(pod)
    return found


def _is_daemon(pod: Json) -> bool:
    return any(o.get("kind") == "DaemonSet" for o in pod["metadata"].get("ownerReferences") or ())


def _sum(pods: Iterable[Json], amounts: Any) -> dict[str, int]:
    found = tuple(pods)
    return total([*map(amounts, found), {PODS: len(found) * MILLI}]) if found else {}


def _requests(pod: Json) -> dict[str, int]:
    """The requests of a pod; none if they cannot be read."""
    try:
        return {name: amount for name, amount in pod_requests(pod).items() if name != PODS}
    except MoxwellError:
        return {}


def _limits(pod: Json) -> dict[str, int]:
    """The limits of a pod, added as its requests are."""
    spec = pod.get("spec") or {}
    limits = {"spec": dict(spec), "metadata": pod["metadata"]}
    for kind in ("containers", "initContainers"):
        limits["spec"][kind] = [
            dict(c) | {"resources": {"requests": (c.get("resources") or {}).get("limits") or {}}}
            for c in spec.get(kind) or ()
        ]
    level = spec.get("resources") or {}
    limits["spec"]["resources"] = {"requests": level.get("limits") or {}}
    return _requests(limits)
