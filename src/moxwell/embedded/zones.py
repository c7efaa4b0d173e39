"""
The state of each zone by its nodes, and how fast nodes may be evicted. Pure.

States, thresholds and rates are those of kube-controller-manager's node lifecycle controller, with
one exception: a zone in which more than two nodes are not ready, and no other is, gets the rate of
a partially disrupted zone, because its network is a likelier cause than all of its nodes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Json = Mapping[str, Any]
REGION_LABEL = "topology.kubernetes.io/region"
ZONE_LABEL = "topology.kubernetes.io/zone"
RATE = 0.1  # nodes per second
SECONDARY_RATE = 0.01  # in a disrupted zone of a large cluster
LARGE_ZONE = 50  # nodes; smaller ones are not evicted while they are disrupted
UNHEALTHY_SHARE = 0.55
FEW = 2  # nodes that are not ready disrupt no zone


class ZoneState(StrEnum):
    """The states of a zone, named as in kube-controller-manager."""

    NORMAL = "Normal"
    PARTIAL_DISRUPTION = "PartialDisruption"
    FULL_DISRUPTION = "FullDisruption"


@dataclass(frozen=True, slots=True)
class ZoneNodes:
    """The number of nodes of a zone, and how many of them are not ready."""

    total: int = 0
    not_ready: int = 0


def zone_of(node: Json) -> str:
    """Region and zone of a node; empty without the labels."""
    labels = node["metadata"].get("labels") or {}
    names = (labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, ""))
    return "/".join(names) if any(names) else ""


def ready_status(node: Json) -> str:
    """The status of the Ready condition; empty if the kubelet has never reported it."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "")


def count_zones(nodes: Iterable[Json], not_ready: Callable[[Json], bool]) -> dict[str, ZoneNodes]:
    """The nodes of each zone."""
    total: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    for node in nodes:
        zone = zone_of(node)
        total[zone] += 1
        missing[zone] += not_ready(node)
    return {zone: ZoneNodes(count, missing[zone]) for zone, count in total.items()}


def zone_state(nodes: ZoneNodes) -> ZoneState:
    """The state of one zone."""
    if nodes.total and nodes.not_ready == nodes.total:
        return ZoneState.FULL_DISRUPTION
    if nodes.not_ready > FEW and nodes.not_ready / nodes.total >= UNHEALTHY_SHARE:
        return ZoneState.PARTIAL_DISRUPTION
    return ZoneState.NORMAL


def all_disrupted(zones: Mapping[str, ZoneNodes]) -> bool:
    """Whether no node of any zone is ready: then the fault is here or in the network."""
    return bool(zones) and all(
        zone_state(nodes) is ZoneState.FULL_DISRUPTION for nodes in zones.values()
    )


def eviction_rate(zone: str, zones: Mapping[str, ZoneNodes]) -> float:
    """How many nodes of the zone may be evicted per second."""
    nodes = zones.get(zone, ZoneNodes())
    if all_disrupted(zones):
        return 0.0
    if zone_state(nodes) is ZoneState.NORMAL or nodes.not_ready <= FEW:
        return RATE
    return SECONDARY_RATE if nodes.total > LARGE_ZONE else 0.0
