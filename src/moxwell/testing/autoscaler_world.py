"""
The autoscaler with machines in memory: embedded API server, scheduler and controller manager.

It runs on virtual time. The controllers of Kubernetes run beside the autoscaler and survive its
restarts; the environment plays the kubelets.
"""

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.kinds import Resource
from moxwell.controllers.karpenter.setup import AutoscalerSettings, add_autoscaler
from moxwell.embedded.controlplanes.tenant_api import hosted_controllers
from moxwell.kube.errors import NotFound
from moxwell.pki.folder import CertificateAuthority
from moxwell.runtime.manager import Manager, assemble
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.node_claims import (
    PODS,
    ClaimWorld,
    pool_object,
    start_claim_world,
)
from moxwell.testing.reconcile import SETTINGS

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
LEASE_SPACE = "kube-node-lease"
Json = dict[str, Any]


def deployment(name: str, replicas: int, cpu: str = "1", memory: str = "1Gi", **pod: Any) -> Json:
    """A Deployment whose pods request CPU and memory."""
    labels = {"app": name}
    requests = {"requests": {"cpu": cpu, "memory": memory}}
    container = {"name": "main", "image": "pause", "resources": requests}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 5} | pod
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


async def scale(world: ClaimWorld, name: str, replicas: int) -> None:
    """Change the number of replicas of a Deployment."""
    change = {"spec": {"replicas": replicas}}
    await world.kube.merge(DEPLOYMENTS, name, change, "default")


async def bound_pods(world: ClaimWorld) -> list[Json]:
    """The pods that have a node."""
    pods = (await world.kube.list(PODS)).items
    return [p for p in pods if p["spec"].get("nodeName")]


async def claims(world: ClaimWorld) -> tuple[NodeClaim, ...]:
    """All node claims."""
    return tuple((await world.kube.list(NodeClaim)).items)


async def nodes(world: ClaimWorld) -> list[Json]:
    """All nodes."""
    return list((await world.kube.list(NODES)).items)


async def renew_leases(world: ClaimWorld) -> None:
    """Renew the leases of nodes whose machines run, every ten seconds, as kubelets do."""
    while True:
        await world.clock.sleep(10.0)
        now = world.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        running = {m.claim for m in await world.provider.instances()}
        for node in await nodes(world):
            name = node["metadata"]["name"]
            if name in running:
                await _renew(world, name, now)


async def _renew(world: ClaimWorld, name: str, now: str) -> None:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
    try:
        await world.kube.merge(LEASES, name, {"spec": spec}, LEASE_SPACE)
    except NotFound:
        meta = {"name": name, "namespace": LEASE_SPACE}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
        await world.kube.create(body | {"spec": spec}, LEASES)


async def run_pods(world: ClaimWorld) -> None:
    """Let bound pods run, once a second, as kubelets do."""
    while True:
        await world.clock.sleep(1.0)
        since = world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [
            {"type": t, "status": "True", "lastTransitionTime": since}
            for t in ("PodScheduled", "Ready")
        ]
        status = {"phase": "Running", "startTime": since, "conditions": conditions}
        for pod in await bound_pods(world):
            if (pod.get("status") or {}).get("phase") == "Running":
                continue
            meta = pod["metadata"]
            try:
                await world.kube.merge_status(
                    PODS, meta["name"], {"status": status}, meta["namespace"]
                )
            except NotFound:
                continue


def autoscaler_program(
    world: ClaimWorld, wires: EffectCounter, settings: AutoscalerSettings | None = None
) -> Manager:
    """One run of the autoscaler."""
    runtime = assemble(wires.kube(world.store), world.clock, SETTINGS, rng=random.Random(1))
    add_autoscaler(runtime, world.clock, world.provider, settings)
    runtime.manager.add_loop("test.kubelets", world.kubelets)
    runtime.manager.add_loop("test.pods", lambda: run_pods(world))
    runtime.manager.add_loop("test.leases", lambda: renew_leases(world))
    return runtime.manager


async def start_kubernetes(world: ClaimWorld) -> asyncio.Task[None]:
    """Run the controller manager and the scheduler of the scaled cluster."""
    with tempfile.TemporaryDirectory() as folder:
        authority = CertificateAuthority(Path(folder), world.clock.now)
        manager = hosted_controllers(world.store, authority, world.clock)
    return asyncio.create_task(manager.run())


@asynccontextmanager
async def autoscaler_world(
    settings: AutoscalerSettings | None = None, **pool: Any
) -> AsyncIterator[ClaimWorld]:
    """A running cluster with one node pool."""
    world = await start_claim_world()
    kubernetes = await start_kubernetes(world)
    manager = autoscaler_program(world, EffectCounter(), settings)
    life = asyncio.create_task(manager.run())
    try:
        await world.kube.create(pool_object(**pool), NodePool.resource)
        yield world
    finally:
        manager.stop()
        await life
        kubernetes.cancel()
        await asyncio.gather(kubernetes, return_exceptions=True)
        await world.store.stop()
