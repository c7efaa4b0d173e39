"""
The controllers of node claims with machines in memory and an embedded API server, on virtual time.

The environment plays the kubelet: a launched machine joins as a node, and a pod that is being
deleted ends.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.api.core.pods import Pod
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.kinds import Resource
from moxwell.controllers.karpenter.claim.setup import ClaimControllers, ClaimSettings, add_claims
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.kube.client import Kube
from moxwell.kube.errors import NotFound, WriteConflict
from moxwell.runtime.manager import Manager, Runtime, assemble
from moxwell.testing.cached_worlds import open_store
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.loop import LoopClock
from moxwell.testing.machine_provider import MemoryMachineProvider, join_nodes
from moxwell.testing.reconcile import SETTINGS

EVENTS = Resource("", "v1", "events", "Event")
PODS = Resource("", "v1", "pods", "Pod")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)
CLASS = {"group": "karpenter.proxmox.sinextra.dev", "kind": "ProxmoxNodeClass", "name": "default"}
PATIENCE_SECONDS = 1800
Extend = Callable[[Runtime, "ClaimWorld", ClaimControllers], object]


def claim_object(name: str = "c-1", pool: str = "default", **spec: Any) -> dict[str, Any]:
    """A node claim as the provisioner makes it."""
    meta = spec.pop("metadata", {})
    labels = {"karpenter.sh/nodepool": pool} | meta.pop("labels", {})
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": labels} | meta,
        "spec": {"requirements": [], "nodeClassRef": CLASS} | spec,
    }


def pool_object(name: str = "default", **spec: Any) -> dict[str, Any]:
    """A node pool."""
    template = {"spec": {"requirements": [], "nodeClassRef": CLASS} | spec.pop("template", {})}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name} | spec.pop("metadata", {}),
        "spec": {"template": template} | spec,
    }


def pod_object(name: str, node: str = "", **spec: Any) -> dict[str, Any]:
    """A running pod on a node."""
    meta = {"name": name, "namespace": "default"} | spec.pop("metadata", {})
    containers = [{"name": "main", "image": "pause"}]
    body = {"containers": containers, "terminationGracePeriodSeconds": 30} | spec
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": body | ({"nodeName": node} if node else {}),
    }


@dataclass
class ClaimWorld:
    """What survives a restart of the controllers: the API and the machines."""

    clock: LoopClock
    store: EmbeddedApiServer
    provider: MemoryMachineProvider = field(default_factory=MemoryMachineProvider)
    joining: bool = True  # False: no machine joins
    ending: bool = True  # False: pods that are being deleted stay

    @property
    def kube(self) -> Kube:
        return Kube(self.store)

    async def kubelets(self) -> None:
        """Join nodes and end pods, once a second."""
        while True:
            await self.clock.sleep(1.0)
            if self.joining:
                await join_nodes(self.kube, self.provider)
            if self.ending:
                await self._end_pods()

    async def _end_pods(self) -> None:
        for pod in (await self.kube.list(Pod)).items:
            if pod.metadata.deletion_timestamp is not None:
                meta = pod.metadata
                try:
                    await self.kube.delete(Pod, meta.name, meta.namespace, uid=meta.uid, grace=0)
                except (NotFound, WriteConflict):
                    continue

    async def add_claim(self, name: str = "c-1", **spec: Any) -> None:
        await self.kube.create(claim_object(name, **spec), NodeClaim.resource)

    async def add_pool(self, name: str = "default", **spec: Any) -> None:
        await self.kube.create(pool_object(name, **spec), NodePool.resource)

    async def add_pod(self, name: str, node: str, **spec: Any) -> None:
        """A running and ready pod on a node."""
        made = await self.kube.create(pod_object(name, node, **spec), PODS)
        since = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [
            {"type": t, "status": "True", "lastTransitionTime": since}
            for t in ("PodScheduled", "Ready")
        ]
        status = {"phase": "Running", "startTime": since, "conditions": conditions}
        namespace = made["metadata"]["namespace"]
        await self.kube.merge_status(PODS, name, {"status": status}, namespace)

    async def set_ready(self, node: str, status: str) -> None:
        since = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": status, "lastTransitionTime": since}
        await self.kube.merge_status(Node, node, {"status": {"conditions": [ready]}})

    async def claim(self, name: str = "c-1") -> NodeClaim:
        return await self.kube.get(NodeClaim, name)

    async def condition(self, type_: str, name: str = "c-1") -> tuple[str, str]:
        """Status and reason of a condition of a node claim; empty without it."""
        claim = await self.kube.find(NodeClaim, name)
        found = claim.status.conditions if claim is not None else ()
        return next(((c.status, c.reason) for c in found if c.type == type_), ("", ""))

    async def is_ready(self, name: str = "c-1") -> bool:
        return (await self.condition("Ready", name))[0] == "True"

    async def gone(self, kind: Any, name: str, namespace: str = "") -> bool:
        return await self.kube.find(kind, name, namespace) is None

    async def until(
        self, check: Callable[[], Awaitable[Any]], seconds: int = PATIENCE_SECONDS
    ) -> Any:
        """Wait for a condition."""
        for _ in range(seconds):
            if found := await check():
                return found
            await self.clock.sleep(1)
        raise AssertionError(f"the condition was not met within {seconds} seconds")

    async def until_condition(
        self, type_: str, status: str, reason: str = "", name: str = "c-1"
    ) -> None:
        async def holds() -> bool:
            found = await self.condition(type_, name)
            return found[0] == status and reason in ("", found[1])

        await self.until(holds)

    async def until_gone(
        self, kind: Any, name: str, namespace: str = "", *, seconds: int = PATIENCE_SECONDS
    ) -> None:
        await self.until(lambda: self.gone(kind, name, namespace), seconds)

    async def has_event(self, reason: str, text: str = "") -> bool:
        rows = (await self.kube.list(EVENTS)).items
        return any(e["reason"] == reason and text in e.get("message", "") for e in rows)


async def start_claim_world() -> ClaimWorld:
    """The world without controllers."""
    clock = LoopClock()
    store = open_store(clock)
    await store.start()
    return ClaimWorld(clock, store)


def claim_program(
    world: ClaimWorld,
    wires: EffectCounter,
    settings: ClaimSettings | None = None,
    extend: Extend = lambda runtime, world, claims: None,
) -> Manager:
    """One run of the controllers; the world's kubelets run beside them."""
    runtime = assemble(wires.kube(world.store), world.clock, SETTINGS, rng=random.Random(1))
    claims = add_claims(runtime, world.clock, world.provider, settings)
    extend(runtime, world, claims)
    runtime.manager.add_loop("test.kubelets", world.kubelets)
    return runtime.manager


@asynccontextmanager
async def claim_world(
    settings: ClaimSettings | None = None, extend: Extend = lambda runtime, world, claims: None
) -> AsyncIterator[ClaimWorld]:
    """A running world."""
    world = await start_claim_world()
    manager = claim_program(world, EffectCounter(), settings, extend)
    life = asyncio.create_task(manager.run())
    try:
        yield world
    finally:
        manager.stop()
        await life
        await world.store.stop()
