"""ClusterResourceSets on embedded API servers: manifests for clusters of which one is silent."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from moxwell.api.capi.addons import ClusterResourceSet, ClusterResourceSetBinding
from moxwell.api.capi.core import Cluster
from moxwell.api.requests import Request, Response
from moxwell.app.embedded_api import open_store
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.clusterapi.clusterresourceset.controller import ClusterResourceSetController
from moxwell.embedded.controllermanager.resources import CONFIG_MAPS, SECRETS
from moxwell.errors import Unreachable
from moxwell.kube.client import Kube
from moxwell.runtime.manager import assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.reconcile import SETTINGS

Json = dict[str, Any]
KUBECONFIG = """
clusters: [{name: t, cluster: {server: "https://SERVER"}}]
contexts: [{name: c, context: {cluster: t}}]
current-context: c
"""
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nets.cni.example}
spec:
  group: cni.example
  scope: Namespaced
  names: {plural: nets, kind: Net}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""
MANIFESTS = f"""
apiVersion: cni.example/v1
kind: Net
metadata: {{name: pods, namespace: kube-system}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: cni, namespace: kube-system}}
data: {{mode: vxlan}}
---{CRD}"""


class SilentServer:
    """The API of a cluster that does not answer."""

    async def handle(self, request: Request) -> Response:
        raise Unreachable("no route to host")


@dataclass
class Scene:
    kube: Kube
    tenants: dict[str, Kube]

    async def create(self, kind: str, name: str, resource: Any = None, **body: Any) -> None:
        meta = {"name": name, "namespace": "default", **body.pop("metadata", {})}
        obj = {"kind": kind, "apiVersion": resource.api_version, "metadata": meta, **body}
        await self.kube.create(obj, resource)

    async def cluster(self, name: str) -> None:
        text = base64.b64encode(KUBECONFIG.replace("SERVER", name).encode()).decode()
        await self.create("Secret", f"{name}-kubeconfig", SECRETS, data={"value": text})
        labels = {"labels": {"cni": "calico"}}
        await self.create("Cluster", name, Cluster.resource, metadata=labels, spec={})

    async def resource_set(self, strategy: str, *names: str) -> None:
        refs = [{"kind": "ConfigMap", "name": name} for name in names]
        selector = {"matchLabels": {"cni": "calico"}}
        spec = {"strategy": strategy, "clusterSelector": selector, "resources": refs}
        await self.create("ClusterResourceSet", "cni", ClusterResourceSet.resource, spec=spec)

    async def condition(self) -> tuple[str, str]:
        found = await self.kube.get(ClusterResourceSet, "cni", "default")
        (condition,) = found.status.conditions
        return condition.status, condition.message

    async def mode(self, cluster: str) -> str | None:
        found = await self.tenants[cluster].find(CONFIG_MAPS, "cni", "kube-system")
        return found["data"]["mode"] if found else None


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    clock = LoopClock()
    servers = {name: EmbeddedApiServer(clock=clock) for name in ("one", "two")}
    async with servers["one"], servers["two"]:
        store = await open_store(clock)
        runtime = assemble(store, clock, SETTINGS)
        handlers: dict[str, Any] = {**servers, "silent": SilentServer()}
        tenants = TenantClients(
            runtime.kube, lambda access: handlers[access.server.removeprefix("https://")], clock
        )
        sets = runtime.manager.caches.of(ClusterResourceSet)
        reconciler = ClusterResourceSetController(runtime.kube, tenants, clock, sets)
        runtime.manager.add(
            Controller(
                name="embedded.clusterresourceset",
                reconciler=reconciler,
                condition="ResourcesApplied",
            )
        )
        running = asyncio.create_task(runtime.manager.run())
        try:
            yield Scene(runtime.kube, {name: Kube(server) for name, server in servers.items()})
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.stop()


def test_manifests_are_applied_again_when_they_change() -> None:
    async def story() -> None:
        async with scene() as s:
            await s.cluster("one")
            await s.create("ConfigMap", "cni", CONFIG_MAPS, data={"cni.yaml": MANIFESTS})
            await s.resource_set("Reconcile", "cni")
            await asyncio.sleep(20)
            assert (await s.condition(), await s.mode("one")) == (("True", ""), "vxlan")
            await s.cluster("two")
            await asyncio.sleep(20)
            assert await s.mode("two") == "vxlan"
            change = {"data": {"cni.yaml": MANIFESTS.replace("vxlan", "bgp")}}
            await s.kube.merge(CONFIG_MAPS, "cni", change, "default")
            await asyncio.sleep(60)
            assert [await s.mode(name) for name in s.tenants] == ["bgp", "bgp"]
            await s.kube.delete(ClusterResourceSet, "cni", "default")
            await asyncio.sleep(20)
            assert await s.kube.find(ClusterResourceSetBinding, "one", "default") is None
            assert await s.kube.find(CONFIG_MAPS, "cni", "default") is None  # it was owned
            assert await s.mode("one") == "bgp"

    run_virtual(story())


def test_what_is_applied_once_is_left_alone() -> None:
    async def story() -> None:
        async with scene() as s:
            await s.cluster("one")
            own = {"kind": "ConfigMap", "apiVersion": "v1", "data": {"mode": "mine"}}
            meta = {"name": "cni", "namespace": "kube-system"}
            await s.tenants["one"].create(own | {"metadata": meta}, CONFIG_MAPS)
            await s.create("ConfigMap", "cni", CONFIG_MAPS, data={"cni.yaml": MANIFESTS})
            await s.resource_set("ApplyOnce", "cni")
            await asyncio.sleep(20)
            assert (await s.condition(), await s.mode("one")) == (("True", ""), "mine")
            await s.tenants["one"].delete(CONFIG_MAPS, "cni", "kube-system")
            await asyncio.sleep(3600)
            assert await s.mode("one") is None

    run_virtual(story())


def test_a_silent_cluster_and_a_missing_resource_hold_back_nothing_else() -> None:
    async def story() -> None:
        async with scene() as s:
            await s.cluster("silent")
            await s.cluster("two")
            await s.create("ConfigMap", "cni", CONFIG_MAPS, data={"cni.yaml": MANIFESTS})
            await s.resource_set("ApplyOnce", "missing", "cni")
            await asyncio.sleep(60)
            status, message = await s.condition()
            assert (status, await s.mode("two")) == ("False", "vxlan")
            assert "ConfigMap cni to cluster silent: no route to host" in message
            found = await s.kube.get(ClusterResourceSetBinding, "silent", "default")
            assert not found.spec.bindings[0].resources[0].applied
            await s.kube.delete(Cluster, "silent", "default")
            await asyncio.sleep(600)
            assert "ConfigMap missing does not exist" in (await s.condition())[1]

    run_virtual(story())
