"""
The embedded Cluster API controllers on the embedded API server, from creation to deletion.

A fake infrastructure provider reports "provisioned" and creates the Node, as a guest would.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from moxwell.api import registry
from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import InClusterIPPool, IPAddress, IPAddressClaim
from moxwell.api.kinds import Resource
from moxwell.app.embedded_api import open_store
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.clusterapi import setup
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.manager import assemble
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Controller, Reconciler
from moxwell.runtime.tenant_clients import SECRETS, TenantClients
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.reconcile import SETTINGS

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
KUBECONFIG = """
clusters: [{name: t, cluster: {server: "https://tenant"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: t, user: u}}]
current-context: c
"""
INFRA = "infrastructure.cluster.x-k8s.io"


@dataclass(frozen=True)
class JoinNode:
    """Set the provider ID and create the node, as the guest of a machine does."""

    name: str
    namespace: str
    provider: str


class FakeMachines(Reconciler[ProxmoxMachine, bool, JoinNode | Done, Any]):
    """An infrastructure provider whose machines are provisioned at once; sees its node."""

    kind = ProxmoxMachine
    finalizer = "test/fake"

    def __init__(self, kube: Kube, tenant: Kube) -> None:
        self._kube, self._tenant = kube, tenant

    async def see(self, machine: ProxmoxMachine, reader: Reader) -> bool:
        return await self._tenant.find(NODES, machine.name) is not None

    def plan(self, machine: ProxmoxMachine, seen: bool) -> JoinNode | Done:
        provider = f"proxmox://test/{machine.name}"
        if machine.deleting or (seen and machine.spec.provider_id == provider):
            return Done()
        return JoinNode(machine.name, machine.namespace, provider)

    async def act(self, move: JoinNode | Done) -> None:
        if isinstance(move, Done):
            return
        change = {"spec": {"providerID": move.provider}}
        await self._kube.merge(ProxmoxMachine, move.name, change, move.namespace)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": move.name}}
        await self._tenant.create(node | {"spec": {"providerID": move.provider}}, NODES)
        status = {"status": {"conditions": [ready]}}
        await self._tenant.merge(NODES, move.name, status, subresource="status")

    def describe(self, machine: ProxmoxMachine, seen: bool, move: JoinNode | Done) -> Any:
        return {"initialization": {"provisioned": True}}


class FakeClusters(Reconciler[ProxmoxCluster, None, Done, Any]):
    """An infrastructure provider whose clusters are provisioned at once."""

    kind = ProxmoxCluster

    async def see(self, cluster: ProxmoxCluster, reader: Reader) -> None:
        return None

    def plan(self, cluster: ProxmoxCluster, seen: None) -> Done:
        return Done()

    async def act(self, move: Done) -> None:
        return None

    def describe(self, cluster: ProxmoxCluster, seen: None, move: Done) -> Any:
        return {"initialization": {"provisioned": True}}


@dataclass
class World:
    kube: Kube
    tenant: Kube
    clock: LoopClock
    manager: Any

    async def until(self, check: Any, seconds: float = 900) -> Any:
        """Wait in virtual time until ``check`` returns a true value."""
        for _ in range(int(seconds)):
            if found := await check():
                return found
            await self.clock.sleep(1)
        raise AssertionError("the check did not become true in time")


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    clock = LoopClock()
    store, other = await open_store(clock), EmbeddedApiServer(clock=clock)
    await other.start()
    runtime = assemble(store, clock, SETTINGS)
    kube, tenant = runtime.kube, Kube(other)
    tenants = TenantClients(kube, lambda access: other, clock)
    for controller in setup.controllers(
        kube,
        runtime.manager.caches,
        clock,
        tenants,
        resources=[k.resource for k in registry.KINDS if k.declared.storage],
        infrastructure=(ProxmoxCluster, ProxmoxMachine),
        control_planes=(KamajiControlPlane,),
    ):
        runtime.manager.add(controller)
    runtime.manager.add(Controller(name="fake.machine", reconciler=FakeMachines(kube, tenant)))
    runtime.manager.add(Controller(name="fake.cluster", reconciler=FakeClusters()))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(runtime.manager.run())
        yield World(kube, tenant, clock, runtime.manager)
        running.cancel()
    await store.stop()
    await other.stop()


def template(kind: str, group: str, name: str) -> dict[str, str]:
    return {"apiGroup": group, "kind": kind, "name": name}


async def make_cluster(w: World, replicas: int = 2) -> None:
    namespace = {"namespace": "default"}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "c1-kubeconfig", **namespace},
        "data": {"value": base64.b64encode(KUBECONFIG.encode()).decode()},
    }
    await w.kube.create(secret, SECRETS)
    network = {"networkDevices": [{"name": "net0", "bridge": "vmbr0"}]}
    machine = {"sourceNode": "pve1", "templateID": 9000, "network": network}
    for name in ("t1", "t2"):
        cores = 2 if name == "t1" else 4
        spec = {"template": {"spec": {**machine, "numCores": cores}}}
        meta = {"name": name, **namespace}
        body = {"apiVersion": f"{INFRA}/v1alpha2", "kind": "ProxmoxMachineTemplate"}
        resource = Resource(INFRA, "v1alpha2", "proxmoxmachinetemplates", "ProxmoxMachineTemplate")
        await w.kube.create(body | {"metadata": meta, "spec": spec}, resource)
    infra = {
        "controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443},
        "ipv4Config": {"addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "gateway": "10.0.0.254"},
        "dnsServers": ["10.0.0.254"],
    }
    body = {"apiVersion": f"{INFRA}/v1alpha2", "kind": "ProxmoxCluster"}
    resource = Resource(INFRA, "v1alpha2", "proxmoxclusters", "ProxmoxCluster")
    await w.kube.create(body | {"metadata": {"name": "c1", **namespace}, "spec": infra}, resource)
    cluster: dict[str, Any] = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": "c1", **namespace},
        "spec": {"infrastructureRef": template("ProxmoxCluster", INFRA, "c1")},
    }
    await w.kube.create(cluster, Cluster.resource)
    template_spec = {
        "clusterName": "c1",
        "bootstrap": {"dataSecretName": "boot"},
        "infrastructureRef": template("ProxmoxMachineTemplate", INFRA, "t1"),
        "version": "v1.34.1",
    }
    group: dict[str, Any] = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": {"name": "md", **namespace},
        "spec": {
            "clusterName": "c1",
            "replicas": replicas,
            "selector": {},
            "template": {"spec": template_spec},
        },
    }
    await w.kube.create(group, MachineDeployment.resource)


async def running(w: World, count: int, template_name: str) -> Any:
    """The machines, if there are ``count``, all running and created from the template."""
    machines = (await w.kube.list(Machine, "default")).items
    infra = (await w.kube.list(ProxmoxMachine, "default")).items
    named = {m.metadata.annotations.get("cluster.x-k8s.io/cloned-from-name") for m in infra}
    good = all(m.status.phase == "Running" for m in machines)
    return len(machines) == count and good and named == {template_name} and machines


def test_a_machine_deployment_scales_rolls_and_is_deleted_with_its_cluster() -> None:
    async def story() -> None:
        async with world() as w:
            await make_cluster(w)
            await w.until(lambda: running(w, 2, "t1"))
            cluster = await w.kube.get(Cluster, "c1", "default")
            assert cluster.spec.control_plane_endpoint.host == "10.0.0.1"
            assert cluster.status.phase == "Provisioned"

            change: dict[str, Any] = {"spec": {"replicas": 3}}
            await w.kube.merge(MachineDeployment, "md", change, "default")
            before = {m.name for m in await w.until(lambda: running(w, 3, "t1"))}

            ref = {"infrastructureRef": {"name": "t2"}}
            change = {"spec": {"template": {"spec": ref}}}
            await w.kube.merge(MachineDeployment, "md", change, "default")
            after = {m.name for m in await w.until(lambda: running(w, 3, "t2"))}
            assert not before & after

            nodes = {n["metadata"]["name"] for n in (await w.tenant.list(NODES)).items}
            assert nodes == after
            await w.kube.delete(Cluster, "c1", "default")
            await w.until(lambda: _gone(w))

    async def _gone(w: World) -> bool:
        left = [
            *(await w.kube.list(Cluster, "default")).items,
            *(await w.kube.list(MachineSet, "default")).items,
            *(await w.kube.list(Machine, "default")).items,
            *(await w.kube.list(ProxmoxMachine, "default")).items,
        ]
        return not left

    run_virtual(story())


def test_claims_get_different_addresses_and_release_them() -> None:
    async def story() -> None:
        async with world() as w:
            pool = {
                "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2",
                "kind": "InClusterIPPool",
                "metadata": {"name": "p", "namespace": "default"},
                "spec": {"addresses": ["10.0.0.1-10.0.0.3"], "prefix": 24, "gateway": "10.0.0.1"},
            }
            await w.kube.create(pool, InClusterIPPool.resource)
            for name in ("a", "b", "c"):
                await w.kube.create(claim(name), IPAddressClaim.resource)

            async def given() -> Any:
                found = (await w.kube.list(IPAddress, "default")).items
                return len(found) == 2 and {a.spec.address for a in found}

            assert await w.until(given) == {"10.0.0.2", "10.0.0.3"}
            waiting = [
                c
                for c in (await w.kube.list(IPAddressClaim, "default")).items
                if not c.status.address_ref.name
            ]
            reasons = {c.type: c.reason for c in waiting[0].status.conditions}
            assert reasons == {"Ready": "PoolExhausted", "Paused": "NotPaused"}

            served = {a.name for a in (await w.kube.list(IPAddress, "default")).items}
            await w.kube.delete(IPAddressClaim, sorted(served)[0], "default")

            async def reallocated() -> Any:
                found = await w.kube.get(IPAddressClaim, waiting[0].name, "default")
                return found.status.address_ref.name

            assert await w.until(reallocated) == waiting[0].name

    run_virtual(story())


def claim(name: str) -> dict[str, Any]:
    ref = {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}
    return {
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2",
        "kind": "IPAddressClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"poolRef": ref},
    }
