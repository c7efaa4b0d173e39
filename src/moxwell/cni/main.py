"""Runs the network of one node until cancelled."""

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.cni.plan import PodNetwork, plan_network
from moxwell.cni.system import NodeSystem, OtherCni
from moxwell.errors import Retryable
from moxwell.kube.client import Kube
from moxwell.runtime.caches import Caches
from moxwell.runtime.metrics import Metrics
from moxwell.runtime.settings import ManagerSettings

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
CHECK_SECONDS = 60.0  # somebody may change routes and rules
PAUSE_SECONDS = 1.0  # nodes often change together
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CniOptions:
    """The node, the pod CIDRs of the cluster and the folder of CNI configurations."""

    node: str
    cluster: str
    folder: Path


async def run_cni(options: CniOptions, kube: Kube, clock: Clock) -> None:
    """Follow all nodes and make the network of this one."""
    settings = ManagerSettings(elect=False, identity=options.node)
    caches = Caches(kube, clock, settings, Metrics(CollectorRegistry()), random.Random())
    nodes, changed = caches.of(NODES), asyncio.Event()
    nodes.subscribe(lambda *_: changed.set())
    system = NodeSystem(options.folder, options.cluster)
    async with asyncio.TaskGroup() as group:
        group.create_task(caches.run())
        await caches.wait_synced()
        made: PodNetwork | None = None
        while True:
            changed.clear()
            wanted = plan_network(options.node, nodes.list(), options.cluster)
            made = await _make(system, wanted, made)
            await _wait(changed, clock)


async def _make(
    system: NodeSystem, wanted: PodNetwork | None, made: PodNetwork | None
) -> PodNetwork | None:
    """What was made last; a failure is logged and tried again."""
    if wanted is None:
        log.info("this node has no pod CIDR yet")
        return made
    try:
        await system.make(wanted)
    except (Retryable, OtherCni, OSError) as error:
        log.warning("the network of this node is not made", error=str(error))
        return made
    if wanted != made:
        log.info(
            "the network of this node is made", pods=wanted.networks, routes=len(wanted.routes)
        )
    return wanted


async def _wait(changed: asyncio.Event, clock: Clock) -> None:
    """Until nodes change, a minute at most."""
    timer: asyncio.Task[Any] = asyncio.create_task(clock.sleep(CHECK_SECONDS))
    change: asyncio.Task[Any] = asyncio.create_task(changed.wait())
    try:
        await asyncio.wait({timer, change}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        change.cancel()
    await clock.sleep(PAUSE_SECONDS)
