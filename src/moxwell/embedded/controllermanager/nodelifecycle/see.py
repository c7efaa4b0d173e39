"""
Observes the heartbeats of nodes.

A heartbeat is the renew time of the node's Lease and the heartbeat time of its Ready condition.
Both are the node's clock; only whether they changed since the last observation is used.
"""

from collections.abc import Mapping
from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.nodelifecycle.plan import (
    OBSERVE_SECONDS,
    Eviction,
    ObservedNode,
    status_of,
)
from moxwell.embedded.controllermanager.resources import LEASES
from moxwell.embedded.observed_durations import ObservedDurations
from moxwell.embedded.token_buckets import TokenBuckets
from moxwell.embedded.zones import (
    ZoneNodes,
    all_disrupted,
    count_zones,
    eviction_rate,
    ready_status,
    zone_of,
)
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache

Json = Mapping[str, Any]
LEASE_NAMESPACE = "kube-node-lease"
LONGEST_GAP = 1.5 * OBSERVE_SECONDS


class NodeObserver:
    """What the decision about a node needs; the silence of each kubelet is kept in memory."""

    def __init__(self, clock: Clock, nodes: Cache[Any], buckets: TokenBuckets) -> None:
        self._clock, self._nodes, self._buckets = clock, nodes, buckets
        self._silence = ObservedDurations(clock, LONGEST_GAP)

    async def observe(self, node: Json, reader: Reader) -> ObservedNode:
        """Read the Lease of a node, and the states of the zones if the node is not ready."""
        meta = node["metadata"]
        lease = await reader.find(LEASES, meta["name"], LEASE_NAMESPACE)
        key = (meta["name"], meta.get("uid", ""))
        silent = self._silence.observe(key, heartbeat(node, lease))
        zone, rate, eviction = zone_of(node), 0.0, Eviction.ALLOWED
        if status_of(node, silent) not in {"True", ""}:
            zones = count_zones(self._nodes.list(), lambda n: ready_status(n) != "True")
            rate = eviction_rate(zone, zones)
            eviction = self._eviction(zone, rate, zones)
        conditions = tuple((node.get("status") or {}).get("conditions") or ())
        return ObservedNode(self._clock.now(), silent, conditions, eviction, zone, rate)

    def _eviction(self, zone: str, rate: float, zones: Mapping[str, ZoneNodes]) -> Eviction:
        if all_disrupted(zones):
            return Eviction.CANCELLED
        allowed = self._buckets.available(zone, rate)
        return Eviction.ALLOWED if allowed else Eviction.DELAYED


def heartbeat(node: Json, lease: Json | None) -> tuple[str, str]:
    """Values that change whenever the kubelet reports."""
    renewed = ((lease or {}).get("spec") or {}).get("renewTime")
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready: Json = next((c for c in conditions if c["type"] == "Ready"), {})
    return str(renewed or ""), str(ready.get("lastHeartbeatTime") or "")
