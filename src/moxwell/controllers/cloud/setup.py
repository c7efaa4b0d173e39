"""The cloud controllers put together: the one function that ``app`` and tests call."""

from collections.abc import Collection
from dataclasses import dataclass

from moxwell.api.core.nodes import Node
from moxwell.clock import Clock
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.guest_lookup import Lookup
from moxwell.controllers.cloud.lifecycle import controller as lifecycles
from moxwell.controllers.cloud.metrics import CloudMetrics
from moxwell.controllers.cloud.node import controller as nodes
from moxwell.controllers.cloud.node.see import Eyes
from moxwell.controllers.cloud.service import controller as balancers
from moxwell.controllers.cloud.service.ipam import Pool, VnetIpam
from moxwell.pve.regions import Regions
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller

LOOPS = (nodes.NAME, lifecycles.NAME, balancers.NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often, and how many at a time; the numbers of the flags people know."""

    refresh_seconds: float = nodes.REFRESH_SECONDS  # --node-status-update-frequency
    monitor_seconds: float = lifecycles.MONITOR_SECONDS  # --node-monitor-period
    at_a_time: int | None = None  # --concurrent-node-syncs


@dataclass(frozen=True, slots=True)
class Cloud:
    """What was put together."""

    lookup: Lookup


def add_cloud(
    runtime: Runtime,
    clock: Clock,
    regions: Regions,
    features: Features,
    *,
    loops: Collection[str] = LOOPS,
    pace: Pace | None = None,
) -> Cloud:
    """Add the cloud controllers to the runtime of the cluster whose nodes they look after."""
    manager, kube, pace = runtime.manager, runtime.kube, pace or Pace()
    lookup = Lookup(regions, clock)
    cache = manager.caches.of(Node, nodes.INDEXES)
    metrics = CloudMetrics(runtime.metrics.registry)
    eyes = Eyes(lookup, features, clock)
    node = nodes.CloudNodes(
        kube, eyes, features, cache, clock=clock, metrics=metrics,
        refresh_seconds=pace.refresh_seconds,
    )  # fmt: skip
    lifecycle = lifecycles.CloudLifecycle(kube, lookup, monitor_seconds=pace.monitor_seconds)
    running = [n for n in (nodes.NAME, lifecycles.NAME) if n in loops]
    for name, reconciler in ((nodes.NAME, node), (lifecycles.NAME, lifecycle)):
        if name in loops:
            manager.add(Controller(name=name, reconciler=reconciler, per_share=pace.at_a_time))
    if balancers.NAME in loops and features.balancer.mode == "ipam":
        ipam = VnetIpam(regions, features.balancer) if features.balancer.vnet else None
        balancer = balancers.CloudBalancer(
            kube, ipam or Pool(features.balancer), features.balancer, cache
        )
        manager.add(Controller(name=balancers.NAME, reconciler=balancer, needs=balancer.concerns))

    def wake(key: Key) -> None:
        for name in running:
            manager.wake(name, key)

    manager.afterwards(node.listen(regions, wake))  # regions outlive a tenant
    manager.afterwards(lookup.close)
    return Cloud(lookup)
