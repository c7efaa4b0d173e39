"""``karpenter.garbage``: deletes machines, node claims and nodes without a counterpart."""

from collections.abc import Coroutine
from typing import Any

import structlog

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.clock import Clock
from moxwell.controllers.karpenter.claim_metrics import ClaimMetrics
from moxwell.controllers.karpenter.garbage.plan import KarpenterInventory, Leftovers, leftovers
from moxwell.controllers.karpenter.provider import MachineProvider, NodeInstance
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.writes import Delete

NAME = "karpenter.garbage"
INTERVAL_SECONDS = 120.0

log = structlog.get_logger(__name__)


class GarbageCollection:
    """
    A background loop.

    The node claims are listed from the API and not from a cache, because a missing one costs a
    machine; the provider lists only machines that it made for this cluster.
    """

    def __init__(
        self,
        kube: Kube,
        provider: MachineProvider,
        clock: Clock,
        metrics: ClaimMetrics,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._kube, self._provider, self._clock = kube, provider, clock
        self._metrics, self._interval = metrics, interval_seconds

    async def run(self) -> None:
        """Collect until cancelled."""
        while True:
            await self._clock.sleep(self._interval)
            await self.collect()

    async def collect(self) -> Leftovers:
        """Delete what has no counterpart now; one failure does not stop the others."""
        found = leftovers(await self._inventory())
        for instance in found.instances:
            await self._attempt(self._terminate(instance), instance.claim)
        for claim in found.claims:
            await self._attempt(self._delete_claim(claim), claim.metadata.name)
        for node in found.nodes:
            await self._attempt(self._delete_node(node), node.metadata.name)
        return found

    async def _inventory(self) -> KarpenterInventory:
        instances = await self._provider.instances()
        claims = await self._kube.list(NodeClaim)
        nodes = await self._kube.list(Node)
        unread = bool(claims.unreadable or nodes.unreadable)
        return KarpenterInventory(instances, claims.items, nodes.items, unread)

    async def _attempt(self, end: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await end
        except MoxwellError as error:
            log.warning("not collected", name=name, reason=error.reason, error=str(error))

    async def _terminate(self, instance: NodeInstance) -> None:
        log.info("machine without node claim", claim=instance.claim, uid=instance.uid)
        await self._provider.terminate(instance.claim, instance.uid)

    async def _delete_claim(self, claim: NodeClaim) -> None:
        await Delete(NodeClaim, claim.metadata.name, uid=claim.metadata.uid).perform(self._kube)
        log.info("node claim without machine", claim=claim.metadata.name)
        self._metrics.claim_disrupted("garbage_collected", claim.metadata.labels)

    async def _delete_node(self, node: Node) -> None:
        await Delete(Node, node.metadata.name, uid=node.metadata.uid).perform(self._kube)
        log.info("node without machine", node=node.metadata.name)
