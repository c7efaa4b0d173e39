"""
Runs the driver's two programs: the controller beside its sidecars, and the plugin on every node.

The controller can run anywhere that reaches Proxmox and the Kubernetes API it serves: for a tenant
it runs outside with the tenant's kubeconfig, and the tenant has no Proxmox credential. Missing
privileges are logged at startup and do not prevent it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from moxwell import config_file
from moxwell.clock import Clock, SystemClock
from moxwell.csi import driver as drivers
from moxwell.csi import permissions
from moxwell.csi.controller import ControllerService
from moxwell.csi.devices import SysfsDevices
from moxwell.csi.driver import DriverSettings
from moxwell.csi.endpoint import metrics_page
from moxwell.csi.garbage import run_forever
from moxwell.csi.identity import IdentityService, any_reachable
from moxwell.csi.journal import ConfigMapJournal, MemoryJournal, VolumeJournal
from moxwell.csi.metrics import CsiMetrics
from moxwell.csi.mounter import SystemMounter
from moxwell.csi.node import NodeService, count_volume_slots
from moxwell.csi.nodes import NODES
from moxwell.csi.registration import NOT_REGISTERED, KubeletRegistration, registered
from moxwell.csi.server import CallHandlers, serving
from moxwell.csi.staging import Stager
from moxwell.csi.static_volumes import parse_patterns
from moxwell.csi.topology import REGION, ZONE
from moxwell.errors import Invalid, Missing, MoxwellError, Retryable
from moxwell.kube.client import Kube
from moxwell.pve.config import RegionConfig, load
from moxwell.pve.metrics import CountedTransport
from moxwell.pve.regions import Regions
from moxwell.pve.transport import PveHttpTransport, Transport
from moxwell.pve.write_metrics import export_writes

MAX_VOLUMES_LABEL = "csi.proxmox.sinextra.dev/max-volume-attachments"
RETRY_SECONDS = 3.0
VMID_KEYS = ("controllerVMID", "controllerVmID")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """The options of the controller."""

    config: Path
    address: str = "unix:///csi/csi.sock"
    name: str = drivers.NAME
    namespace: str = "kube-system"
    journal: Path | None = None
    metrics: str = ""  # host:port; disabled if empty


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The options of the node plugin; ``region`` and ``zone`` are used without a Kubernetes API."""

    name: str
    address: str = "unix:///csi/csi.sock"
    driver: str = drivers.NAME
    metrics: str = ""
    region: str = ""
    zone: str = ""
    sys: Path = Path("/sys")
    registration: KubeletRegistration = NOT_REGISTERED


def settings_of(text: str, name: str) -> DriverSettings:
    """The driver settings in the configuration file; accepts both spellings of controllerVMID."""
    features: Mapping[str, Any] = config_file.parse_mapping(text).get("features") or {}
    owner = next((features[key] for key in VMID_KEYS if key in features), drivers.OWNER)
    if not isinstance(owner, int):
        raise Invalid("features.controllerVMID must be a number")
    return DriverSettings(
        name=name,
        owner=owner,
        tenant=_text(features, "volumeTenant"),
        static_volumes=parse_patterns(features.get("staticVolumes") or []),
        own_by_prefix=features.get("ownVolumesByPrefix") is True,
    )


def _text(features: Mapping[str, Any], key: str) -> str:
    value = features.get(key) or ""
    if not isinstance(value, str):
        raise Invalid(f"features.{key} must be a text")
    return value


def _journal(options: ControllerOptions, kube: Kube | None) -> VolumeJournal:
    if kube is not None:
        return ConfigMapJournal(kube, options.namespace, options.name)
    return MemoryJournal(options.journal)


async def check_permissions(regions: Regions) -> None:
    """Log which privileges the credentials lack; an unreachable region is skipped."""
    for region in regions.values():
        try:
            results = await permissions.check(region.reader)
        except MoxwellError as error:
            log.warning("permissions not checked", region=region.name, error=str(error))
            continue
        for result in results:
            (log.info if result.ok else log.warning)("permissions checked", report=str(result))


async def run_controller(
    options: ControllerOptions,
    kube: Kube | None,
    *,
    clock: Clock | None = None,
    registry: Any = None,
) -> None:
    """Serve Identity and Controller until cancelled."""
    clock = clock or SystemClock()
    metrics = CsiMetrics(registry or CollectorRegistry(), options.name)

    def connect(config: RegionConfig) -> Transport:
        return CountedTransport(PveHttpTransport(config, clock), metrics.request_finished, clock)

    regions = Regions(load(options.config), clock, connect=connect)
    export_writes(metrics.registry, regions.effects)
    settings = settings_of(options.config.read_text(), options.name)
    driver = drivers.assemble(
        regions, clock, settings=settings, kube=kube, journal=_journal(options, kube)
    )
    calls = CallHandlers(clock, metrics)
    identity = IdentityService(options.name, lambda: any_reachable(regions))
    handlers = (
        calls.handlers("Identity", identity),
        calls.handlers("Controller", ControllerService(driver)),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(regions.run())
        group.create_task(check_permissions(regions))
        group.create_task(driver.attachments.rescan(regions, clock))
        group.create_task(run_forever(driver))
        group.create_task(driver.ownership.earlier.run(clock))
        if driver.persistent_volumes.recorder is not None:
            group.create_task(driver.persistent_volumes.recorder.run())
        checks = {"proxmox": lambda: any_reachable(regions)}
        async with (
            metrics_page(options.metrics, metrics.registry, checks),
            serving(options.address, handlers),
        ):
            await asyncio.Event().wait()


async def find_topology(kube: Kube, name: str) -> tuple[str, str, str, str]:
    """The node id, region, zone and volume limit from the Node object."""
    node = await kube.get(NODES, name)
    labels = node.get("metadata", {}).get("labels") or {}
    region, zone = labels.get(REGION, ""), labels.get(ZONE, "")
    if not region or not zone:
        raise Invalid(
            f"node {name} does not have the labels {REGION} and {ZONE} yet; "
            "the cloud controller manager sets them"
        )
    provider = node.get("spec", {}).get("providerID", "")
    known = provider if provider.startswith("proxmox://") and provider.count("/") == 3 else name
    return known, region, zone, labels.get(MAX_VOLUMES_LABEL, "")


async def wait_for_topology(kube: Kube, name: str, clock: Clock) -> tuple[str, str, str, str]:
    """Wait until the cloud controller has set the topology labels of the node."""
    while True:
        try:
            return await find_topology(kube, name)
        except (Invalid, Retryable, Missing) as error:
            log.warning("node topology not known", node=name, error=str(error))
            await clock.sleep(RETRY_SECONDS)


async def run_node(options: NodeOptions, kube: Kube | None) -> None:
    """Serve Identity and Node until cancelled."""
    clock, disks = SystemClock(), SysfsDevices(options.sys)
    if kube is None:
        node_id, region, zone, label = options.name, options.region, options.zone, ""
    else:
        node_id, region, zone, label = await wait_for_topology(kube, options.name, clock)
    ours = frozenset(d.wwn for d in disks.read() if d.serial.startswith("pvc"))
    limit = count_volume_slots(label, disks.count_other(ours))
    stager = Stager(disks, SystemMounter(), clock)
    node = NodeService(stager, node_id=node_id, region=region, zone=zone, max_volumes=limit)
    metrics = CsiMetrics(CollectorRegistry(), options.driver)
    calls = CallHandlers(clock, metrics)
    identity = IdentityService(options.driver, lambda: True)
    handlers = (calls.handlers("Identity", identity), calls.handlers("Node", node))
    async with (
        metrics_page(options.metrics, metrics.registry, {}),
        serving(options.address, handlers),
        registered(options.registration, options.driver, calls),
    ):
        await asyncio.Event().wait()
