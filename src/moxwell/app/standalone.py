"""
Wires everything that runs in lab and standalone mode and stops it in reverse order.

Everything stateful is created here and passed on. Servers are pushed on the exit stack in the order
they start; :meth:`Instance.run` owns the tasks.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

import moxwell
from moxwell import config_file
from moxwell.api import registry
from moxwell.api.capi.controlplane import KamajiControlPlane, KubeadmControlPlane
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate
from moxwell.app import autoscaler_files, embedded_api
from moxwell.app import defaults as instance_defaults
from moxwell.app.admission import Validators
from moxwell.app.autoscaler_files import AutoscalerFiles
from moxwell.app.decision_workers import DecisionWorkers
from moxwell.app.lab_process import LabConfig, LabProcess
from moxwell.app.launch_options import LaunchOptions
from moxwell.app.state_dir import InstanceInfo, StateDir
from moxwell.app.tenant_autoscaler import HOSTED, TenantAutoscaler
from moxwell.app.tenant_storage import TenantStorage
from moxwell.app.tenant_volumes import TenantVolumes
from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.setup import add_cloud
from moxwell.controllers.infra.known_regions import KnownRegions
from moxwell.controllers.infra.policy import InfraPolicy
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.setup import Infra, add_infra
from moxwell.controllers.karpenter import options as autoscaler_options
from moxwell.controllers.karpenter.options import AutoscalerConfig
from moxwell.controllers.karpenter.proxmox.setup import management_side
from moxwell.controllers.tenancy.cluster.controller import TenantClusterReconciler
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.preflight import ClusterPreflight
from moxwell.controllers.tenancy.tenant.controller import TenantReconciler
from moxwell.csi.journal import MemoryJournal
from moxwell.csi.static_volumes import parse_by_cluster
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.clusterapi import setup
from moxwell.embedded.clusterapi.controlplane.controller import KamajiControlPlaneController
from moxwell.embedded.clusterapi.references import ReferenceResolver
from moxwell.embedded.clusterapi.tenantcontrolplane.controller import (
    TenantControlPlaneController,
)
from moxwell.embedded.controlplanes import addresses as control_plane_addresses
from moxwell.embedded.controlplanes.addon_settings import load_addons
from moxwell.embedded.controlplanes.control_planes import HostedControlPlanes, open_control_planes
from moxwell.embedded.ports import remembered_port
from moxwell.json_lines import JsonLinesFile
from moxwell.kube.transport import KubeTransport
from moxwell.pki.folder import CertificateAuthority
from moxwell.plan.manifest_plan import ManifestPlanner
from moxwell.plan.placement import PlacementPreview
from moxwell.preflight import probe
from moxwell.preflight.service import Preflight
from moxwell.pve import config
from moxwell.pve.audit import FileAudit
from moxwell.pve.config import RegionConfig
from moxwell.pve.effects import Effects
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.pve.write_metrics import export_writes
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import Listen, ManagerSettings
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.verify.service import verify_action
from moxwell.web import actions
from moxwell.web.change_log import ChangeLog
from moxwell.web.dashboard_feed import DashboardFeed
from moxwell.web.http import Action, Dashboard
from moxwell.web.sessions import Sessions
from moxwell.web.views import Views

API_PORT, DASHBOARD_PORT = 6443, 8480
RENEWAL_SECONDS = 3600.0  # how often the kubeconfig is checked


@dataclass(slots=True)
class Instance:
    """One running instance."""

    state: StateDir
    clock: Clock
    options: LaunchOptions
    api: HttpServer
    dashboard: str
    runtime: Runtime
    regions: Regions
    control_planes: HostedControlPlanes
    lab: LabProcess | None
    feed: DashboardFeed
    change_log: ChangeLog
    infra: Infra

    @property
    def mode(self) -> str:
        return _mode(self.lab)

    @classmethod
    async def start(
        cls, stack: AsyncExitStack, state: StateDir, clock: Clock, options: LaunchOptions
    ) -> "Instance":
        """Create and start everything; closing ``stack`` stops it."""
        state.create()
        lab, configs = await _open_regions(stack, state, clock, options)
        rules = embedded_api.AdmissionRules()
        store, api = await _serve_api(stack, state, clock, rules)
        runtime = assemble(store, clock, _settings(state))
        regions = Regions(configs, clock, effects=_effects(stack, state, clock))
        export_writes(runtime.metrics.registry, regions.effects)

        def defaults() -> Defaults:
            return instance_defaults.defaults(regions, lab=lab is not None, version=planes.version)

        held, known = Reservations(), RegionRegistry(regions, configs)
        provider = _provider_settings(options)
        side = management_side(runtime, clock, regions, known, held, provider.hosts)
        workers = DecisionWorkers()
        stack.push_async_callback(workers.stop)
        autoscaler = TenantAutoscaler(
            side, clock, defaults, _autoscaler_config(options), workers, provider.catalogue
        )
        volumes = TenantVolumes(runtime.manager.caches, held, clock)
        planes = await _open_control_planes(state, clock, options, regions, autoscaler, volumes)
        infra = add_infra(
            runtime,
            clock,
            regions,
            held,
            registry=known,
            policy=InfraPolicy.parse(_config_text(options)),
            hosts=provider.hosts,
            volumes=volumes.in_tenant,
        )
        facts = KnownRegions(regions, known, clock, _template_builds(runtime))
        rules.validators = Validators.make(runtime, facts, clock, defaults, volumes.by_cluster)
        preflight = Preflight(regions, clock, probe.answers)
        checks = ClusterPreflight(preflight, _control_plane_addresses(options))
        planner, clusters = _add_tenancy(
            runtime, defaults, regions, infra, checks, rules.validators
        )
        _add_cluster_api(runtime, clock, planes)
        change_log = ChangeLog(clock.now())
        feed = _feed(state, clock, regions, runtime, planes, mode=_mode(lab))
        served = actions.make(
            runtime.kube, infra, regions, planner,
            clock=clock, preflight=preflight, check_cluster=clusters.check,
        )  # fmt: skip
        served["verify"] = verify_action(runtime.kube, regions, clock)
        served["explain-pod"] = autoscaler.explain
        dashboard = await _serve_dashboard(stack, state, change_log, served)
        if lab is not None:
            await instance_defaults.apply_lab_pools(runtime.kube, regions)
        return cls(
            state, clock, options, api, dashboard, runtime, regions, planes, lab, feed, change_log,
            infra,
        )  # fmt: skip

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until ``stopping`` is set; controllers finish their passes first."""
        async with asyncio.TaskGroup() as group:
            controllers = group.create_task(self.runtime.manager.run())
            others = [
                group.create_task(self.regions.run()),
                group.create_task(self.control_planes.run()),
                group.create_task(self._renew_kubeconfig()),
                group.create_task(self.feed.run(self.change_log, Views())),
            ]
            await stopping.wait()
            self.runtime.manager.stop()
            await controllers
            for task in others:
                task.cancel()

    async def _renew_kubeconfig(self) -> None:
        """The administrator's certificate is valid for days; renew it in the file."""
        while True:
            await self.clock.sleep(RENEWAL_SECONDS)
            self.api.write_kubeconfig(self.state.kubeconfig)

    def info(self, pid: int) -> InstanceInfo:
        """What commands need to reach this instance; ``pid`` is the process that ends it."""
        ports = self.runtime.manager.ports
        return InstanceInfo(
            name=self.state.name,
            mode=self.mode,
            version=moxwell.__version__,
            pid=pid,
            api=self.api.url,
            dashboard=self.dashboard,
            metrics=f"http://127.0.0.1:{ports['health']}" if "health" in ports else "",
            started=self.clock.now().strftime("%Y-%m-%d %H:%M:%S UTC"),
            regions={r.name: list(r.config.urls) for r in self.regions.values()},
            config=self.options.config,
            world=self.options.world,
            control_plane_binaries=self.options.control_plane_binaries,
            autoscaler_mode=self.options.autoscaler_mode,
        )


def _mode(lab: LabProcess | None) -> str:
    return "lab" if lab else "standalone"


async def _open_regions(
    stack: AsyncExitStack, state: StateDir, clock: Clock, options: LaunchOptions
) -> tuple[LabProcess | None, tuple[RegionConfig, ...]]:
    """The configured regions, or those of a lab that is started here."""
    if options.config:
        return None, config.load(Path(options.config))
    binaries = options.control_plane_binaries
    lab = LabProcess(state, clock, LabConfig(options.name, options.world, binaries))
    stack.push_async_callback(lab.stop)
    return lab, await lab.start()


def _config_text(options: LaunchOptions) -> str:
    """The text of the configuration file; a lab has none."""
    return config_file.read_text(Path(options.config)) if options.config else ""


def _provider_settings(options: LaunchOptions) -> autoscaler_files.ProviderSettings:
    folder = Path(options.config).parent if options.config else Path()
    return autoscaler_files.load(_config_text(options), folder, AutoscalerFiles())


def _autoscaler_config(options: LaunchOptions) -> AutoscalerConfig:
    """The options of the autoscalers: the file, and the flag of ``moxwell up`` over it."""
    flags = {"mode": options.autoscaler_mode} if options.autoscaler_mode else {}
    return autoscaler_options.parse_config(_config_text(options), HOSTED, flags)


def _settings(state: StateDir) -> ManagerSettings:
    return ManagerSettings(
        elect=False,
        identity=state.name,
        health=Listen(port=remembered_port(state.folder / "metrics.port", 0)),
    )


def _effects(stack: AsyncExitStack, state: StateDir, clock: Clock) -> Effects:
    """The writes of all regions, recorded in the instance's audit file."""
    file = JsonLinesFile(state.proxmox_audit)
    stack.callback(file.close)
    return Effects(FileAudit(file, clock), clock=clock)


async def _serve_api(
    stack: AsyncExitStack, state: StateDir, clock: Clock, rules: embedded_api.AdmissionRules
) -> tuple[EmbeddedApiServer, HttpServer]:
    authority = CertificateAuthority(state.pki, clock.now)
    store = await embedded_api.open_store(clock, state.database, authority, rules)
    stack.push_async_callback(store.stop)
    port = remembered_port(state.folder / "api.port", API_PORT)
    server = HttpServer(store, authority, folder=state.pki, port=port)
    await server.start()
    stack.push_async_callback(server.stop)
    server.write_kubeconfig(state.kubeconfig)
    return store, server


async def _open_control_planes(
    state: StateDir,
    clock: Clock,
    options: LaunchOptions,
    regions: Regions,
    autoscaler: TenantAutoscaler,
    volumes: TenantVolumes,
) -> HostedControlPlanes:
    """
    Each tenant gets cloud controllers, CSI sidecars and the autoscaler; they run in this process.
    """
    record = MemoryJournal(state.folder / "csi-record.json")
    static = parse_by_cluster(_config_text(options))
    storage = TenantStorage(regions, clock, record, static, volumes)

    def extend(tenant: Runtime, key: Key) -> None:
        # A kubelet with --cloud-provider=external and no --node-ip reports no address.
        add_cloud(tenant, clock, regions.scope(str(key)), Features(mode="auto"))
        storage.add(tenant, key, binding=False)
        autoscaler.add(tenant, key)

    return await open_control_planes(
        state.control_planes,
        state.control_plane_binaries,
        clock,
        options.control_plane_binaries,
        os.environ,
        addresses=control_plane_addresses.parse(_config_text(options)),
        extend=extend,
        addons=load_addons(Path(options.config)) if options.config else None,
    )


def _feed(
    state: StateDir,
    clock: Clock,
    regions: Regions,
    runtime: Runtime,
    planes: HostedControlPlanes,
    *,
    mode: str,
) -> DashboardFeed:
    return DashboardFeed(
        regions,
        runtime.manager.caches,
        clock,
        mode=mode,
        version=moxwell.__version__,
        pods=planes.pods_by_node,
        tenant_caches=planes.caches,
        durations_file=state.folder / "typical.json",
    )


async def _serve_dashboard(
    stack: AsyncExitStack, state: StateDir, change_log: ChangeLog, served: Mapping[str, Action]
) -> str:
    key = state.dashboard_key.read_text() if state.dashboard_key.exists() else None
    sessions = Sessions(key)
    write_private(state.dashboard_key, sessions.bearer.encode())
    page = Dashboard(change_log, sessions, hosts=("127.0.0.1", "localhost", "::1"), actions=served)
    runner = web.AppRunner(page.routes(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    port = remembered_port(state.folder / "dashboard.port", DASHBOARD_PORT)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return f"http://127.0.0.1:{port}"


def _template_builds(runtime: Runtime) -> Callable[[], Iterable[ProxmoxTemplate]]:
    return runtime.manager.caches.of(ProxmoxTemplate, optional=True).list


def _add_tenancy(
    runtime: Runtime,
    defaults: Callable[[], Defaults],
    regions: Regions,
    infra: Infra,
    checks: ClusterPreflight,
    validators: Validators,
) -> tuple[ManifestPlanner, TenantClusterReconciler]:
    """Add the controllers of tenants; returns the planner, which uses the same reconciler."""
    kube, manager = runtime.kube, runtime.manager
    clusters = TenantClusterReconciler(kube, defaults, caches=manager.caches, preflight=checks)
    manager.add(Controller(name="tenancy.cluster", reconciler=clusters))
    tenants = TenantReconciler(kube, regions)
    manager.add(Controller(name="tenancy.tenant", reconciler=tenants))
    planner = ManifestPlanner(
        kube,
        clusters,
        lambda: PlacementPreview(kube, infra.explainer, regions),
        tenants=tenants,
        validator=validators.clusters,
    )
    return planner, clusters


def _control_plane_addresses(options: LaunchOptions) -> tuple[str, ...]:
    """The addresses that control planes listen on; nodes must not get them."""
    found = control_plane_addresses.parse(_config_text(options))
    return () if found.is_local() else (found.address,)


def _add_cluster_api(runtime: Runtime, clock: Clock, planes: HostedControlPlanes) -> None:
    """Add the embedded replacements of Cluster API's and Kamaji's controllers."""
    kube, manager = runtime.kube, runtime.manager
    tenants = TenantClients(kube, KubeTransport, clock)
    resources = [k.resource for k in registry.KINDS if k.declared.storage]
    for controller in setup.controllers(
        kube,
        manager.caches,
        clock,
        tenants,
        resources=resources,
        infrastructure=(ProxmoxCluster, ProxmoxMachine),
        control_planes=(KamajiControlPlane, KubeadmControlPlane),
    ):
        manager.add(controller)
    kamaji = KamajiControlPlaneController(kube, ReferenceResolver(resources))
    manager.add(Controller(name="embedded.kamajicontrolplane", reconciler=kamaji, pausable=True))
    hosted = TenantControlPlaneController(kube, planes, clock)
    manager.add(Controller(name="embedded.tenantcontrolplane", reconciler=hosted))

    def changed(key: Key) -> None:
        hosted.forget(key)
        manager.wake("embedded.tenantcontrolplane", key)

    planes.listen(changed)
