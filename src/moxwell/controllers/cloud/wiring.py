"""The cloud controllers put together: the one function that ``app`` and tests call."""

from dataclasses import dataclass

from moxwell.api.core.nodes import Node
from moxwell.clock import Clock
from moxwell.controllers.cloud.balancer import controller as balancers
from moxwell.controllers.cloud.lifecycle import controller as lifecycles
from moxwell.controllers.cloud.lookup import Lookup
from moxwell.controllers.cloud.node import controller as nodes
from moxwell.controllers.cloud.node.see import Eyes
from moxwell.controllers.cloud.settings import Features
from moxwell.pve.regions import Regions
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller


@dataclass(frozen=True, slots=True)
class Cloud:
    """What was put together."""

    lookup: Lookup


def add_cloud(runtime: Runtime, clock: Clock, regions: Regions, features: Features) -> Cloud:
    """Add the cloud controllers to the runtime of the cluster whose nodes they look after."""
    manager, kube = runtime.manager, runtime.kube
    lookup = Lookup(regions)
    cache = manager.caches.of(Node)
    node = nodes.CloudNodes(kube, Eyes(lookup, features, clock), features, cache)
    manager.add(Controller(name=nodes.NAME, reconciler=node))
    lifecycle = lifecycles.CloudLifecycle(kube, lookup)
    manager.add(Controller(name=lifecycles.NAME, reconciler=lifecycle))
    if features.balancer.mode == "ipam":
        balancer = balancers.CloudBalancer(kube, regions, features.balancer)
        manager.add(Controller(name=balancers.NAME, reconciler=balancer))

    def wake(key: Key) -> None:
        manager.wake(nodes.NAME, key)
        manager.wake(lifecycles.NAME, key)

    node.listen(regions, wake)
    return Cloud(lookup)
