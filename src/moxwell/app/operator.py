"""
Operator mode: wires the controllers for an existing Kubernetes and configured Proxmox regions.

Cluster API, Kamaji and the IPAM provider run there themselves; nothing of ``embedded`` or ``lab``
is imported, and of the controllers only those that run: they need 10 to 30 MiB each. Replicas elect
a leader or share the regions. A changed configuration file is reloaded without a restart.
"""

import asyncio
import signal
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from moxwell import config_file
from moxwell.api.capi.core import Cluster
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate
from moxwell.app import autoscaler_files, controller_selection
from moxwell.app.autoscaler_files import AutoscalerFiles
from moxwell.clock import Clock
from moxwell.controllers.cloud import features as cloud
from moxwell.controllers.cloud.loops import CloudIntervals
from moxwell.controllers.cloud.metrics import RequestMetrics
from moxwell.controllers.infra.known_regions import KnownRegions
from moxwell.controllers.infra.policy import InfraPolicy
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.waiting_placements import WaitingPlacements
from moxwell.errors import Invalid
from moxwell.kube import kubeconfig
from moxwell.kube.transport import KubeTransport
from moxwell.pve import config, transport
from moxwell.pve.effects import Effects
from moxwell.pve.metrics import CountedTransport
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.pve.write_metrics import export_writes
from moxwell.runtime.fence import FencedTransport
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import ManagerSettings

if TYPE_CHECKING:
    from moxwell.controllers.karpenter.options import AutoscalerOptions
    from moxwell.controllers.tenancy.cluster.defaults import Defaults

log = structlog.get_logger(__name__)
RELOAD_SECONDS = 10.0
CONFIG = Path("/etc/proxmox/config.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """How the operator runs."""

    config: Path  # may be missing if it is the default, ``CONFIG``
    settings: ManagerSettings
    controllers: tuple[str, ...] = ("infra", "tenancy")
    kubeconfig: str = ""
    context: str = ""
    dry_run: bool = False  # refuse every write to Proxmox
    intervals: CloudIntervals = field(default_factory=CloudIntervals)
    scaled_cluster: str = ""  # NAMESPACE/NAME of the Cluster object of the cluster it runs in
    provider_files: AutoscalerFiles = field(default_factory=AutoscalerFiles)
    autoscaler: Mapping[str, str] = field(default_factory=dict)  # as in ``features.autoscaler``
    service: str = "moxwell-webhook-service"
    validating: str = "moxwell-validating-webhook-configuration"


def check(options: OperatorOptions) -> None:
    """Refuse options that cannot work, before anything starts."""
    regions = load(options)
    _provider(options)
    if (scaled := _scaled_cluster(options)) is not None:
        autoscaler_options_of(options, scaled)
    InfraPolicy.parse(_text(options))
    balancer = cloud.parse(_text(options)).load_balancer
    names = {region.region for region in regions}
    if balancer.vnet and balancer.region not in names and (balancer.region or len(names) != 1):
        known = ", ".join(sorted(names))
        raise Invalid(
            f"features.load_balancer.region must name the region of the vnet, one of {known}"
        )


def _scaled_cluster(options: OperatorOptions) -> Key | None:
    """The cluster that the karpenter controllers scale; None if they do not run."""
    if "karpenter" not in controller_selection.choose(options.controllers).groups:
        return None
    namespace, slash, name = options.scaled_cluster.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise Invalid(
            "the karpenter controllers need --scaled-cluster NAMESPACE/NAME: the Cluster object of "
            "the cluster that is scaled"
        )
    if options.settings.namespaces:
        raise Invalid(
            "the karpenter controllers need the pods of all namespaces; remove --namespace"
        )
    return Key(namespace, name)


def _provider(options: OperatorOptions) -> autoscaler_files.ProviderSettings:
    return autoscaler_files.load(_text(options), options.config.parent, options.provider_files)


def autoscaler_options_of(options: OperatorOptions, cluster: Key) -> "AutoscalerOptions":
    """The options of the autoscaler: the file, and the flags over it."""
    from moxwell.controllers.karpenter import options as autoscaler_options

    return autoscaler_options.parse_config(_text(options), None, options.autoscaler).of(
        str(cluster)
    )


def load(options: OperatorOptions) -> tuple[config.RegionConfig, ...]:
    """The configured regions; none if no cloud controller runs: clusters name credentials."""
    optional = not controller_selection.choose(
        options.controllers
    ).loops  # cloud controllers need them
    if optional and not _text(options).strip():
        return ()
    return config.load(options.config, empty=optional)


def _text(options: OperatorOptions) -> str:
    """The text of the file; empty if it is the default file and does not exist."""
    if options.config == CONFIG and not options.config.exists():
        return ""
    return config_file.read_text(options.config)


async def run(options: OperatorOptions, clock: Clock, environ: Mapping[str, str]) -> None:
    """Run until SIGTERM or SIGINT."""
    check(options)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        access = kubeconfig.find(clock, environ, options.kubeconfig, options.context)
        handler = await stack.enter_async_context(KubeTransport(access))
        configs = load(options)
        if not configs:
            log.info("no regions configured", hint="clusters name theirs with credentialsRef")
        runtime = assemble(
            handler, clock, options.settings, regions=lambda: tuple(regions), clusters=Cluster
        )
        metrics = RequestMetrics(runtime.metrics.registry)
        regions = Regions(
            configs,
            clock,
            connect=lambda c: _connect(c, clock, runtime, metrics),
            effects=Effects(clock=clock, dry_run=options.dry_run),
        )
        export_writes(runtime.metrics.registry, regions.effects)
        registry = RegionRegistry(regions, configs)
        compose(runtime, clock, regions, registry, options)
        await _run(stopping, runtime, regions, reload(options, registry, clock))


def _connect(
    region: config.RegionConfig, clock: Clock, runtime: Runtime, metrics: RequestMetrics
) -> FencedTransport:
    """A transport to a region that counts requests and refuses writes once the lease is lost."""
    counted = CountedTransport(
        transport.PveHttpTransport(region, clock), metrics.request_finished, clock
    )
    return FencedTransport(counted, runtime.fence)


@dataclass(frozen=True, slots=True)
class _Operator:
    """What all groups of controllers share."""

    runtime: Runtime
    clock: Clock
    regions: Regions
    registry: RegionRegistry
    options: OperatorOptions
    provider: autoscaler_files.ProviderSettings
    waiting: WaitingPlacements
    held: Reservations = field(default_factory=Reservations)

    def add_infra(self, scaled: Key | None) -> None:
        from moxwell.controllers.infra.setup import add_infra
        from moxwell.runtime.tenant_clients import TenantClients

        policy = InfraPolicy.parse(_text(self.options))
        add_infra(
            self.runtime,
            self.clock,
            self.regions,
            self.held,
            registry=self.registry,
            policy=policy,
            hosts=self.provider.hosts,
            is_scaled=lambda cluster: cluster == scaled,
            waiting=self.waiting,
            tenants=TenantClients(self.runtime.kube, KubeTransport, self.clock),
        )

    def add_autoscaler(self, scaled: Key) -> None:
        from moxwell.controllers.karpenter.proxmox.setup import add_provider, management_side
        from moxwell.controllers.karpenter.setup import AutoscalerSettings, add_autoscaler

        settings = self.provider
        side = management_side(
            self.runtime,
            self.clock,
            self.regions,
            self.registry,
            self.held,
            settings.hosts,
            self.waiting,
        )
        provider = add_provider(
            side,
            self.runtime,
            scaled,
            defaults=settings.machine_defaults,
            settings=settings.catalogue,
            trusted=True,
        )
        chosen = AutoscalerSettings.of(autoscaler_options_of(self.options, scaled))
        add_autoscaler(self.runtime, self.clock, provider, chosen)

    def add_tenancy(self, defaults: "Callable[[], Defaults]") -> None:
        from moxwell.controllers.tenancy.cluster.controller import TenantClusterReconciler
        from moxwell.controllers.tenancy.cluster.preflight import ClusterPreflight
        from moxwell.controllers.tenancy.tenant.controller import TenantReconciler
        from moxwell.preflight.service import Preflight

        manager, kube = self.runtime.manager, self.runtime.kube
        clusters = TenantClusterReconciler(
            kube,
            defaults,
            caches=manager.caches,
            preflight=ClusterPreflight(Preflight(self.regions, self.clock)),
        )
        manager.add(Controller(name="tenancy.cluster", reconciler=clusters))
        spaces = TenantReconciler(kube, self.regions)
        manager.add(Controller(name="tenancy.tenant", reconciler=spaces))


def compose(
    runtime: Runtime,
    clock: Clock,
    regions: Regions,
    registry: RegionRegistry,
    options: OperatorOptions,
) -> None:
    """Add the selected controllers and the webhooks."""
    chosen = controller_selection.choose(options.controllers)
    made = _Operator(
        runtime, clock, regions, registry, options, _provider(options), WaitingPlacements(clock)
    )
    scaled = _scaled_cluster(options)
    if "infra" in chosen.groups:
        made.add_infra(scaled)
    if scaled is not None:
        made.add_autoscaler(scaled)
    if chosen.loops:
        from moxwell.controllers.cloud.setup import add_cloud

        features = cloud.parse(_text(options))
        add_cloud(
            runtime, clock, regions, features, loops=chosen.loops, intervals=options.intervals
        )
    tenant_defaults = None
    if "tenancy" in chosen.groups:
        from moxwell.app import defaults

        tenant_defaults = partial(defaults.defaults, regions, lab=False)
        made.add_tenancy(tenant_defaults)
    if options.settings.webhooks is not None:
        from moxwell.app import operator_webhooks

        known = KnownRegions(regions, registry, clock, _builds(runtime, chosen.groups))
        targets = operator_webhooks.Targets(
            options.settings.namespace, options.service, options.validating
        )
        validated = None if options.settings.namespaces else tenant_defaults
        operator_webhooks.serve(runtime, clock, known, validated, targets)


def _builds(runtime: Runtime, groups: Collection[str]) -> Callable[[], Iterable[ProxmoxTemplate]]:
    """The templates that are built; only the infrastructure controllers may read them."""
    if "infra" not in groups:
        return tuple
    return runtime.manager.caches.of(ProxmoxTemplate, optional=True).list


async def reload(options: OperatorOptions, registry: RegionRegistry, clock: Clock) -> None:
    """Apply a changed file; an invalid or empty one is logged and the old one stays."""
    applied = await asyncio.to_thread(_text, options)
    while True:
        await clock.sleep(RELOAD_SECONDS)
        try:
            text = await asyncio.to_thread(_text, options)
            if text == applied:
                continue
            applied = text
            configs = load(options) if text.strip() else config.parse(text)
            registry.configure(configs)
            log.info("configuration reloaded", regions=len(configs))
        except Invalid as error:
            log.error("configuration not reloaded", error=str(error))


async def _run(
    stopping: asyncio.Event, runtime: Runtime, regions: Regions, reloads: Coroutine[Any, Any, None]
) -> None:
    async with asyncio.TaskGroup() as group:
        controllers = group.create_task(runtime.manager.run())
        others = [
            group.create_task(regions.run()),
            group.create_task(reloads),
        ]
        signalled = group.create_task(stopping.wait())
        await asyncio.wait([controllers, signalled], return_when=asyncio.FIRST_COMPLETED)
        runtime.manager.stop()
        await controllers
        for task in (*others, signalled):
            task.cancel()
