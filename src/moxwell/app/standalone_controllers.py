"""
Adds all controllers of lab and standalone mode to a runtime, with what they share.

Control planes of tenants get their controllers here too: cloud, storage, autoscaler.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from moxwell import config_file
from moxwell.api import registry
from moxwell.api.capi.controlplane import KamajiControlPlane, KubeadmControlPlane
from moxwell.api.capi.talos import TalosControlPlane
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate
from moxwell.app import autoscaler_files
from moxwell.app import defaults as instance_defaults
from moxwell.app.admission import Validators
from moxwell.app.autoscaler_files import AutoscalerFiles
from moxwell.app.decision_workers import DecisionWorkers
from moxwell.app.embedded_api import AdmissionRules
from moxwell.app.launch_options import LaunchOptions
from moxwell.app.state_dir import StateDir
from moxwell.app.tenant_autoscaler import HOSTED, TenantAutoscaler
from moxwell.app.tenant_storage import TenantStorage
from moxwell.app.tenant_volumes import TenantVolumes
from moxwell.clock import Clock
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.setup import add_cloud
from moxwell.controllers.infra.known_regions import KnownRegions
from moxwell.controllers.infra.policy import InfraPolicy
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.setup import Infra, add_infra
from moxwell.controllers.infra.waiting_placements import WaitingPlacements
from moxwell.controllers.karpenter import options as autoscaler_options
from moxwell.controllers.karpenter.options import AutoscalerConfig
from moxwell.controllers.karpenter.proxmox.setup import ManagementSide, management_side
from moxwell.controllers.tenancy.cluster.controller import TenantClusterReconciler
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.preflight import ClusterPreflight
from moxwell.controllers.tenancy.tenant.controller import TenantReconciler
from moxwell.csi.journal import MemoryJournal
from moxwell.csi.static_volumes import parse_by_cluster
from moxwell.embedded.clusterapi import setup
from moxwell.embedded.clusterapi.controlplane.controller import KamajiControlPlaneController
from moxwell.embedded.clusterapi.references import ReferenceResolver
from moxwell.embedded.clusterapi.tenantcontrolplane.controller import (
    TenantControlPlaneController,
)
from moxwell.embedded.controlplanes import addresses as control_plane_addresses
from moxwell.embedded.controlplanes.addons.settings import load_addons
from moxwell.embedded.controlplanes.control_planes import HostedControlPlanes, open_control_planes
from moxwell.kube.transport import KubeTransport
from moxwell.plan.manifest_plan import ManifestPlanner
from moxwell.plan.placement import PlacementPreview
from moxwell.preflight import probe
from moxwell.preflight.service import Preflight
from moxwell.pve.config import RegionConfig
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.verify.service import verify_action
from moxwell.web import actions, guest_reachability
from moxwell.web.http import Action


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """What the controllers run in."""

    state: StateDir
    clock: Clock
    options: LaunchOptions
    runtime: Runtime
    regions: Regions
    configs: tuple[RegionConfig, ...]

    @property
    def is_lab(self) -> bool:
        return not self.options.config


@dataclass(frozen=True, slots=True)
class AddedControllers:
    """What was added, for the dashboard and the command line."""

    context: ControllerContext
    planes: HostedControlPlanes
    infra: Infra
    planner: ManifestPlanner
    clusters: TenantClusterReconciler
    preflight: Preflight
    autoscaler: TenantAutoscaler

    def actions(self) -> dict[str, Action]:
        """The requests of the dashboard and the command line."""
        runtime, regions, clock = self.context.runtime, self.context.regions, self.context.clock
        found = actions.make(
            runtime.kube,
            self.infra,
            regions,
            self.planner,
            clock=clock,
            preflight=self.preflight,
            check_cluster=self.clusters.check,
        )
        found["reachability"] = guest_reachability.make(runtime.kube, regions)
        found["verify"] = verify_action(runtime.kube, regions, clock)
        found["explain-pod"] = self.autoscaler.explain
        return found


async def add_controllers(
    stack: AsyncExitStack, context: ControllerContext, rules: AdmissionRules
) -> AddedControllers:
    """Add all controllers; ``rules`` get the validators, which need the controllers' caches."""
    clock, runtime, regions = context.clock, context.runtime, context.regions
    options = context.options

    def defaults() -> Defaults:
        return instance_defaults.defaults(regions, lab=context.is_lab, version=planes.version)

    held, known = Reservations(), RegionRegistry(regions, context.configs)
    provider = _provider_settings(options)
    waiting = WaitingPlacements(clock)
    side = management_side(runtime, clock, regions, known, held, provider.hosts, waiting)
    autoscaler = _autoscaler(stack, side, context, defaults, provider)
    volumes = TenantVolumes(runtime.manager.caches, held, clock)
    planes = await _open_control_planes(context.state, clock, options, regions, autoscaler, volumes)
    policy = InfraPolicy.parse(_config_text(options))
    tenants = TenantClients(runtime.kube, KubeTransport, clock)
    infra = add_infra(
        runtime, clock, regions, held,
        registry=known, policy=policy, hosts=provider.hosts, volumes=volumes.in_tenant,
        waiting=waiting, tenants=tenants,
    )  # fmt: skip
    facts = KnownRegions(regions, known, clock, _template_builds(runtime))
    rules.validators = Validators.make(runtime, facts, clock, defaults, volumes.by_cluster)
    preflight = Preflight(regions, clock, probe.answers)
    checks = ClusterPreflight(preflight, _control_plane_addresses(options))
    planner, clusters = _add_tenancy(runtime, defaults, regions, infra, checks, rules.validators)
    _add_cluster_api(runtime, clock, planes, tenants)
    return AddedControllers(context, planes, infra, planner, clusters, preflight, autoscaler)


def _autoscaler(
    stack: AsyncExitStack,
    side: ManagementSide,
    context: ControllerContext,
    defaults: Callable[[], Defaults],
    provider: autoscaler_files.ProviderSettings,
) -> TenantAutoscaler:
    """The autoscaler of all tenants; its decisions are computed in other processes."""
    workers = DecisionWorkers()
    stack.push_async_callback(workers.stop)
    chosen = _autoscaler_config(context.options)
    return TenantAutoscaler(side, context.clock, defaults, chosen, workers, provider.catalogue)


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
        kubelets=None if options.config else state.lab_kubelets,
    )


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


def _add_cluster_api(
    runtime: Runtime, clock: Clock, planes: HostedControlPlanes, tenants: TenantClients
) -> None:
    """Add the embedded replacements of Cluster API's and Kamaji's controllers."""
    kube, manager = runtime.kube, runtime.manager
    resources = [k.resource for k in registry.KINDS if k.declared.storage]
    for controller in setup.controllers(
        kube,
        manager.caches,
        clock,
        tenants,
        resources=resources,
        infrastructure=(ProxmoxCluster, ProxmoxMachine),
        control_planes=(KamajiControlPlane, KubeadmControlPlane, TalosControlPlane),
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
