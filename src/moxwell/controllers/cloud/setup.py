"""Assembles the cloud controllers for one cluster."""

from collections.abc import Collection
from dataclasses import dataclass

from moxwell.api.core.nodes import Node
from moxwell.clock import Clock
from moxwell.controllers.cloud.features import Features, LoadBalancerFeatures
from moxwell.controllers.cloud.guest_lookup import GuestLookup
from moxwell.controllers.cloud.lifecycle import controller as lifecycles
from moxwell.controllers.cloud.loops import LOOPS, CloudIntervals
from moxwell.controllers.cloud.metrics import CloudMetrics
from moxwell.controllers.cloud.node import controller as nodes
from moxwell.controllers.cloud.node.see import CloudNodeObserver
from moxwell.controllers.cloud.service import controller as services
from moxwell.controllers.cloud.service.ipam import StaticPool, VnetPool
from moxwell.controllers.cloud.service.see import CloudServiceObserver
from moxwell.pve.regions import Regions
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller


@dataclass(frozen=True, slots=True)
class CloudControllers:
    """What ``add_cloud`` created."""

    lookup: GuestLookup


def add_cloud(
    runtime: Runtime,
    clock: Clock,
    regions: Regions,
    features: Features,
    *,
    loops: Collection[str] = LOOPS,
    intervals: CloudIntervals | None = None,
) -> CloudControllers:
    """Add the cloud controllers to the runtime of a cluster; ``loops`` selects them by name."""
    manager, kube, given = runtime.manager, runtime.kube, intervals or CloudIntervals()
    lookup = GuestLookup(regions, clock)
    cache = manager.caches.of(Node, nodes.INDEXES)
    node = nodes.CloudNodeReconciler(
        kube,
        CloudNodeObserver(lookup, features, clock),
        features,
        cache,
        clock=clock,
        metrics=CloudMetrics(runtime.metrics.registry),
        refresh_seconds=given.refresh_seconds,
    )
    lifecycle = lifecycles.NodeLifecycleReconciler(
        kube, lookup, monitor_seconds=given.monitor_seconds
    )
    running = [n for n in (nodes.NAME, lifecycles.NAME) if n in loops]
    for name, reconciler in ((nodes.NAME, node), (lifecycles.NAME, lifecycle)):
        if name in loops:
            manager.add(Controller(name=name, reconciler=reconciler, per_shard=given.concurrency))
    if services.NAME in loops and features.load_balancer.mode == "ipam":
        _add_services(runtime, regions, features.load_balancer, cache)

    def wake(key: Key) -> None:
        for name in running:
            manager.wake(name, key)

    manager.on_exit(node.subscribe(regions, wake))  # the regions outlive a tenant's runtime
    manager.on_exit(lookup.close)
    return CloudControllers(lookup)


def _add_services(
    runtime: Runtime, regions: Regions, settings: LoadBalancerFeatures, cache: Cache[Node]
) -> None:
    pool = VnetPool(regions, settings) if settings.vnet else StaticPool(settings)
    observer = CloudServiceObserver(pool, settings, cache)
    service = services.CloudServiceReconciler(runtime.kube, regions, observer, settings)
    runtime.manager.add(
        Controller(name=services.NAME, reconciler=service, needs=service.is_managed, per_shard=1)
    )
