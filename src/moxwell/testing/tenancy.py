"""
Tenant clusters on virtual time: two simulated regions, the embedded API server and all controllers.

It is lab mode without sockets: hosted control planes are API servers in memory, and guests join
them as nodes.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from moxwell.api import registry
from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.core import Machine
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Resource
from moxwell.app import defaults
from moxwell.app.admission import Validators
from moxwell.app.embedded_api import AdmissionRules
from moxwell.controllers.infra.known_regions import KnownRegions
from moxwell.controllers.tenancy.cluster.controller import TenantClusterReconciler
from moxwell.controllers.tenancy.cluster.preflight import ClusterPreflight
from moxwell.controllers.tenancy.tenant.controller import TenantReconciler
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.clusterapi import setup
from moxwell.embedded.clusterapi.controlplane.controller import KamajiControlPlaneController
from moxwell.embedded.clusterapi.references import ReferenceResolver
from moxwell.embedded.clusterapi.tenantcontrolplane.controller import (
    TenantControlPlaneController,
)
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    HostedControlPlane,
    HostedControlPlaneSpec,
)
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.errors import Conflict
from moxwell.kube.client import Kube
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.pki.folder import CertificateAuthority
from moxwell.plan.manifest_plan import ManifestPlanner
from moxwell.plan.placement import PlacementPreview
from moxwell.preflight.service import Preflight
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.testing.loop import LoopClock
from moxwell.testing.two_regions import WORLD, Program, TwoRegions, program, start_two_regions

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SPACE = "tenant-demo"
NEWER = "v1.35.0"
YEAR = timedelta(days=365)


def _with_newer_templates(world: str) -> str:
    """Two regions with templates of two Kubernetes versions each."""
    blocks = world.split("      - vmid: 9000")
    out = blocks[0]
    for block in blocks[1:]:
        newer = block.replace("9000", "9001").replace("v1.34.1", NEWER).split("      - vmid")[0]
        newer = newer.split("  - name: south")[0]
        out += f"      - vmid: 9001{newer}      - vmid: 9000{block}"
    return out


class MemoryControlPlanes:
    """Hosted control planes that are API servers in memory."""

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self.stores: dict[str, EmbeddedApiServer] = {}  # also those that sleep
        self.awake: set[str] = set()
        self.versions: dict[str, str] = {}
        self.issued: dict[str, tuple[str, str]] = {}  # rotation, token
        with tempfile.TemporaryDirectory() as folder:
            self._ca = CertificateAuthority(Path(folder), clock.now).certificate.decode()

    async def ensure(self, spec: HostedControlPlaneSpec) -> HostedControlPlane:
        host = f"{spec.key.name}.{spec.key.namespace}"
        if host not in self.stores:
            self.stores[host] = EmbeddedApiServer(clock=self._clock, version=spec.version)
            await self.stores[host].start()
        self.awake.add(host)
        self.versions[host] = spec.version
        known = self.issued.get(host)
        if known is None or known[0] != spec.rotation:
            self.issued[host] = (spec.rotation, f"token-{self._clock.monotonic()}")
        text = _kubeconfig(host, self.issued[host][1])
        return HostedControlPlane(
            host=host,
            port=6443,
            version=spec.version,
            ready=True,
            ca=self._ca,
            ca_key="key",
            admin_kubeconfig=text,
            expires=self._clock.now() + YEAR,
        )

    async def sleep(self, key: Key) -> None:
        self.awake.discard(f"{key.name}.{key.namespace}")

    async def destroy(self, key: Key) -> None:
        await self.sleep(key)
        store = self.stores.pop(f"{key.name}.{key.namespace}", None)
        if store is not None:
            await store.stop()

    def dial(self, access: ApiAccess) -> Any:
        """The API server of a kubeconfig."""
        return self.stores[access.server.removeprefix("https://").partition(":")[0]]


def _kubeconfig(host: str, token: str) -> str:
    return f"""
clusters: [{{name: t, cluster: {{server: "https://{host}:6443"}}}}]
users: [{{name: u, user: {{token: {token}}}}}]
contexts: [{{name: c, context: {{cluster: t, user: u}}}}]
current-context: c
"""


@dataclass
class TenantWorld:
    """Everything that a test of tenant clusters uses."""

    two_regions: TwoRegions
    program: Program
    control_planes: MemoryControlPlanes
    tenants: TenantClients
    planner: ManifestPlanner

    @property
    def kube(self) -> Kube:
        return self.two_regions.kube

    async def put(self, tree: dict[str, Any]) -> None:
        """Apply a manifest as ``moxwell apply`` does."""
        kinds = {(s.resource.api_version, s.resource.kind): s for s in await self.kube.discover()}
        resource = kinds[tree["apiVersion"], tree["kind"]].resource
        await self.kube.apply(tree, resource, manager="moxwell-cli", force=True)

    async def until(self, what: Callable[[], Awaitable[Any]], seconds: float = 600) -> Any:
        """Wait in virtual time until a condition is true."""
        end = self.two_regions.clock.monotonic() + seconds
        while not (found := await what()):
            if self.two_regions.clock.monotonic() > end:
                raise AssertionError(f"the condition was not met: {await self.state()}")
            await asyncio.sleep(1)
        return found

    async def state(self) -> list[str]:
        """The conditions that are not true, for a failing test."""
        rows = []
        kinds: tuple[Any, ...] = (Kubernetes, Machine, ProxmoxMachine)
        for kind in kinds:
            for obj in (await self.kube.list(kind)).items:
                bad = [c for c in obj.status.conditions if c.status != "True"]
                rows += [f"{kind.__name__} {obj.name}: {c.type} {c.message}" for c in bad]
        return rows

    async def ready(self, name: str, nodes: int) -> Any:
        """The cluster once it is up to date with so many nodes; else None."""
        app = await self.kube.find(Kubernetes, name, SPACE)
        if app is None or app.status.observed_generation < app.metadata.generation:
            return None
        true = {c.type for c in app.status.conditions if c.status == "True"}
        machines = await self.machines(name)
        up = len(machines) == nodes and all(m.status.phase == "Running" for m in machines)
        return app if up and {"Ready", "UpToDate", "NodesReady"} <= true else None

    async def machines(self, name: str) -> list[Machine]:
        page = await self.kube.list(Machine, SPACE, labels={CLUSTER_NAME: name})
        return list(page.items)

    async def guests(self, name: str) -> list[ProxmoxMachine]:
        page = await self.kube.list(ProxmoxMachine, SPACE, labels={CLUSTER_NAME: name})
        return list(page.items)

    async def join_guests(self) -> None:
        """Register the nodes of guests that have finished their bootstrap."""
        while True:
            await asyncio.sleep(2)
            for guest in (await self.kube.list(ProxmoxMachine)).items:
                await self._join_one(guest)

    async def _join_one(self, guest: ProxmoxMachine) -> None:
        spec, cluster = guest.spec, guest.metadata.labels.get(CLUSTER_NAME, "")
        at = (spec.region or "", spec.virtual_machine_id or 0)
        if guest.deleting or not spec.provider_id or not self.two_regions.guest_os.joined(*at):
            return
        if f"{cluster}.{guest.namespace}" not in self.control_planes.awake:
            return
        tenant = await self.tenants.find(Key(guest.namespace, cluster))
        if tenant is None or await tenant.find(NODES, guest.name) is not None:
            return
        meta = {"name": guest.name}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        try:
            await tenant.create(body | {"spec": {"providerID": spec.provider_id}}, NODES)
        except Conflict:
            return
        await tenant.merge_status(NODES, guest.name, {"status": {"conditions": [ready]}})


def app(name: str, **spec: Any) -> dict[str, Any]:
    """A ``Kubernetes`` manifest."""
    return {
        "apiVersion": "apps.cozystack.io/v1alpha1",
        "kind": "Kubernetes",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": spec,
    }


def _compose(
    two_regions: TwoRegions, program: Program, planes: MemoryControlPlanes, rules: AdmissionRules
) -> tuple[TenantClients, ManifestPlanner]:
    kube, manager = program.runtime.kube, program.manager
    tenants = TenantClients(kube, planes.dial, two_regions.clock)
    resources = [k.resource for k in registry.KINDS if k.declared.storage]
    _add_cluster_api(two_regions, program, tenants, resources)
    planes_loop = KamajiControlPlaneController(kube, ReferenceResolver(resources))
    provided = partial(defaults.defaults, program.regions, lab=True)
    clusters = TenantClusterReconciler(
        kube,
        provided,
        two_regions.clock,
        manager.caches,
        ClusterPreflight(Preflight(program.regions, two_regions.clock)),
    )
    known = KnownRegions(program.regions, program.infra.registry, two_regions.clock)
    rules.validators = Validators.make(program.runtime, known, two_regions.clock, provided)
    tenant_loop = TenantReconciler(kube, program.regions)
    loops: dict[str, Any] = {
        "embedded.kamajicontrolplane": planes_loop,
        "embedded.tenantcontrolplane": TenantControlPlaneController(
            kube, planes, two_regions.clock
        ),
        "tenancy.cluster": clusters,
        "tenancy.tenant": tenant_loop,
    }
    for name, loop in loops.items():
        manager.add(Controller(name=name, reconciler=loop))
    planner = ManifestPlanner(
        kube,
        clusters,
        lambda: PlacementPreview(kube, program.infra.explainer, program.regions),
        tenants=tenant_loop,
        validator=rules.validators.clusters,
    )
    return tenants, planner


def _add_cluster_api(
    two_regions: TwoRegions, program: Program, tenants: TenantClients, resources: list[Resource]
) -> None:
    for controller in setup.controllers(
        program.runtime.kube,
        program.manager.caches,
        two_regions.clock,
        tenants,
        resources=resources,
        infrastructure=(ProxmoxCluster, ProxmoxMachine),
        control_planes=(KamajiControlPlane,),
    ):
        program.manager.add(controller)


@asynccontextmanager
async def tenancy() -> AsyncIterator[TenantWorld]:
    """A new environment with all controllers running."""
    rules = AdmissionRules()
    two_regions = await start_two_regions(_with_newer_templates(WORLD), admit=rules.admit)
    two_regions.tasks.pop().cancel()  # its minimal Cluster API; the embedded one runs instead
    planes = MemoryControlPlanes(two_regions.clock)
    running_program = program(two_regions)
    tenants, planner = _compose(two_regions, running_program, planes, rules)
    world = TenantWorld(two_regions, running_program, planes, tenants, planner)
    running = asyncio.create_task(running_program.manager.run())
    await defaults.apply_lab_pools(two_regions.kube, running_program.regions)
    meta = {"name": SPACE}
    await two_regions.kube.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}, NAMESPACES
    )
    two_regions.tasks.append(asyncio.create_task(world.join_guests()))
    while not all(r.inventory.health.reachable for r in running_program.regions.values()):
        await asyncio.sleep(1)
    try:
        yield world
    finally:
        running_program.manager.stop()
        await running
        await two_regions.close()
        for store in planes.stores.values():
            await store.stop()
