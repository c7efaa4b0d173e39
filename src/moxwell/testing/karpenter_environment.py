"""
An environment for stories of the autoscaler's provider: simulated regions, Cluster API, lab guests.

One API is the management cluster and the cluster that is scaled, and guests join it as nodes. It
runs on virtual time and without sockets.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from moxwell.api import registry
from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.requests import Handler
from moxwell.clock import Clock
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.setup import add_infra
from moxwell.controllers.karpenter.claim.setup import add_claims
from moxwell.controllers.karpenter.proxmox.catalogue import CatalogueSettings
from moxwell.controllers.karpenter.proxmox.provider import ProxmoxProvider
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults
from moxwell.controllers.karpenter.proxmox.setup import add_provider, management_side
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.clusterapi import setup
from moxwell.kube.client import Kube
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Manager, Runtime, assemble
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.scheduling.numa.sources import NodeSettings
from moxwell.testing import machine_stories
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.embedded_environment import EmbeddedEnvironment, create_environment
from moxwell.testing.machine_provider import ProviderUnderTest
from moxwell.testing.machine_stories import StoryEnvironment
from moxwell.testing.pve import SimTransport
from moxwell.testing.two_regions import SETTINGS, TOKEN, TOKEN_SECRET, WORLD, configs

CLUSTER = Key("default", "c")
MANIFEST = """
apiVersion: karpenter.proxmox.sinextra.dev/v1alpha1
kind: ProxmoxUnmanagedTemplate
metadata: {name: ubuntu}
spec: {tags: [k8s-v1.34.1]}
---
apiVersion: karpenter.proxmox.sinextra.dev/v1alpha1
kind: ProxmoxNodeClass
metadata: {name: default}
spec:
  instanceTemplateRef: {kind: ProxmoxUnmanagedTemplate, name: ubuntu}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]
      nodeClassRef:
        {group: karpenter.proxmox.sinextra.dev, kind: ProxmoxNodeClass, name: default}
"""
JOIN_TEMPLATE = """#cloud-config
write_files:
  - path: /run/kubeadm/kubeadm-join-config.yaml
    content: |
      apiVersion: kubeadm.k8s.io/v1beta4
      kind: JoinConfiguration
      discovery:
        bootstrapToken:
          apiServerEndpoint: 127.0.0.1:6443
          token: {{ .Kubernetes.BootstrapToken }}
          unsafeSkipCAVerification: true
      nodeRegistration:
        name: {{ .Metadata.Hostname }}
        kubeletExtraArgs:
          - {name: provider-id, value: {{ .Metadata.ProviderID | quote }}}
          - {name: node-labels, value: "rack={{ .Values.rack }}"}
runcmd:
  - kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml
"""


@dataclass
class ProviderProgram:
    """One run of the program under test."""

    manager: Manager
    provider: ProxmoxProvider
    regions: Regions


@dataclass
class KarpenterEnvironment:
    """What a story of the provider uses."""

    stage: StoryEnvironment
    program: ProviderProgram
    environment: EmbeddedEnvironment
    transports: dict[str, SimTransport]

    @property
    def store(self) -> EmbeddedApiServer:
        return self.environment.store

    @property
    def kube(self) -> Kube:
        return self.stage.kube

    @property
    def provider(self) -> ProxmoxProvider:
        return self.program.provider

    async def claim(
        self, name: str, requests: dict[str, str] | None = None, node_class: str = "default"
    ) -> NodeClaim:
        """Create a node claim of the default pool; every instance type is allowed."""
        body = node_claim(name, requests or {"cpu": "1", "memory": "1Gi"})
        body["spec"]["nodeClassRef"]["name"] = node_class
        await self.kube.create(body, NodeClaim.resource)
        return await self.kube.get(NodeClaim, name)

    async def pool(self) -> NodePool:
        return await self.kube.get(NodePool, "default")

    async def node_class(self, name: str = "default") -> ProxmoxNodeClass:
        return await self.kube.get(ProxmoxNodeClass, name)

    def sent(self) -> dict[str, int]:
        """How many requests each region has got so far."""
        return {name: len(each.sent) for name, each in self.transports.items()}

    def requests_since(self, start: dict[str, int]) -> list[tuple[str, str]]:
        """The requests sent to all regions since ``sent`` was called."""
        return [r for name, each in self.transports.items() for r in each.sent[start[name] :]]

    async def under_test(self) -> ProviderUnderTest:
        """The provider as the common checks need it."""
        return ProviderUnderTest(self.provider, await self.pool(), self.claim, self.settle)

    @asynccontextmanager
    async def restarted(self, **options: Any) -> AsyncIterator["KarpenterEnvironment"]:
        """The same cluster and regions with a new run of the program; the old one is stopped."""
        self.program.manager.stop()
        program = create_program(self.environment, self.transports, **options)
        running = asyncio.create_task(program.manager.run())
        try:
            await asyncio.sleep(30)
            yield replace(self, program=program)
        finally:
            program.manager.stop()
            with suppress(asyncio.CancelledError):
                await running

    async def settle(self) -> None:
        """Let launches and terminations finish."""
        await asyncio.sleep(300)


def node_claim(name: str, requests: dict[str, str], **more: Any) -> dict[str, Any]:
    """The manifest of a node claim of the default pool."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "default", "team": "a"}},
        "spec": {
            "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
            "resources": {"requests": requests},
            "nodeClassRef": {
                "group": "karpenter.proxmox.sinextra.dev",
                "kind": "ProxmoxNodeClass",
                "name": "default",
            },
            **more,
        },
    }


def create_program(
    environment: EmbeddedEnvironment,
    transports: dict[str, SimTransport],
    counter: EffectCounter | None = None,
    *,
    trusted: bool = False,
    defaults: Callable[[], MachineDefaults] = MachineDefaults,
    settings: CatalogueSettings | None = None,
    hosts: NodeSettings | None = None,
    claims: bool = False,
) -> ProviderProgram:
    """
    Infrastructure controllers, embedded Cluster API and the provider.

    ``claims``: also the controllers of node claims; without them a story calls the provider.
    """
    effects, clock = counter or EffectCounter(), environment.clock
    handler = effects.kube(environment.store)
    runtime = assemble(handler, clock, SETTINGS)
    known = configs(*environment.engine.runtimes)
    regions = Regions(known, clock, connect=lambda c: effects.pve(transports[c.region]))
    reservations, regional = Reservations(), RegionRegistry(regions, known)
    add_infra(runtime, clock, regions, reservations, registry=regional)
    add_cluster_api(runtime, clock, handler)
    runtime.manager.add_loop("pve", regions.run)
    side = management_side(runtime, clock, regions, regional, reservations, hosts)
    provider = add_provider(
        side, runtime, CLUSTER, defaults=defaults, settings=settings, trusted=trusted
    )
    if claims:
        add_claims(runtime, clock, provider)
    return ProviderProgram(runtime.manager, provider, regions)


def add_cluster_api(runtime: Runtime, clock: Clock, handler: Handler) -> None:
    """Add the embedded Cluster API, whose tenants are reached by the same handler."""
    for controller in setup.controllers(
        runtime.kube,
        runtime.manager.caches,
        clock,
        TenantClients(runtime.kube, lambda access: handler, clock),
        resources=[k.resource for k in registry.KINDS if k.declared.storage],
        infrastructure=(ProxmoxCluster, ProxmoxMachine),
        control_planes=(KamajiControlPlane,),
    ):
        runtime.manager.add(controller)


@asynccontextmanager
async def karpenter_environment(
    manifest: str = MANIFEST, world: str = WORLD, **options: Any
) -> AsyncIterator[KarpenterEnvironment]:
    """A new environment with a cluster, its node class and the program running."""
    created = await create_environment(world)
    token = f"{TOKEN}={TOKEN_SECRET}"
    transports = {
        name: SimTransport(created.engine, name, token=token) for name in created.engine.runtimes
    }
    await machine_stories.begin(created.stage, replicas=0)
    await created.stage.apply(manifest)
    program = create_program(created, transports, **options)
    running = asyncio.create_task(program.manager.run())
    try:
        await asyncio.sleep(30)
        yield KarpenterEnvironment(created.stage, program, created, transports)
    finally:
        program.manager.stop()
        with suppress(asyncio.CancelledError):
            await running
        await created.close()
