"""
The two programs: a controller beside its sidecars, a plugin on every node.

In: settings from the command line. Out: services on a socket until the process ends. The controller
may run anywhere that reaches Proxmox and the Kubernetes API of the cluster it serves; so for a
tenant it runs outside, with the tenant's kubeconfig; the tenant never sees a credential.
The surprise: a controller whose credentials lack a privilege says so at the start, and starts.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import yaml
from prometheus_client import CollectorRegistry

from moxwell.clock import Clock, SystemClock
from moxwell.csi import driver as drivers
from moxwell.csi import permissions
from moxwell.csi.controller import Controller
from moxwell.csi.devices import SysDisks
from moxwell.csi.driver import Settings
from moxwell.csi.endpoint import metrics_page
from moxwell.csi.garbage import sweeping
from moxwell.csi.identity import Identity, any_reachable
from moxwell.csi.journal import Book, KubeBook, MemoryBook
from moxwell.csi.metrics import CsiMetrics
from moxwell.csi.mounter import SystemMounter
from moxwell.csi.node import Node, choose_most
from moxwell.csi.nodes import NODES
from moxwell.csi.server import Calls, serving
from moxwell.csi.staging import Stager
from moxwell.csi.topology import REGION, ZONE
from moxwell.errors import Invalid, Missing, MoxwellError, Retryable
from moxwell.kube.client import Kube
from moxwell.pve.config import RegionConfig, load
from moxwell.pve.metrics import CountedTransport
from moxwell.pve.regions import Regions
from moxwell.pve.transport import HttpTransport, Transport

MOST_LABEL = "csi.proxmox.sinextra.dev/max-volume-attachments"
PLACE_SECONDS = 3.0
OWNER_KEYS = ("controllerVMID", "controllerVmID")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Files:
    """What a controller is told."""

    config: Path
    address: str = "unix:///csi/csi.sock"
    name: str = drivers.NAME
    namespace: str = "kube-system"
    book: Path | None = None
    metrics: str = ""  # host:port; none if empty


@dataclass(frozen=True, slots=True)
class Seat:
    """What a node plugin is told; ``region`` and ``zone`` stand in for a Kubernetes API."""

    name: str
    address: str = "unix:///csi/csi.sock"
    driver: str = drivers.NAME
    metrics: str = ""
    region: str = ""
    zone: str = ""
    sys: Path = Path("/sys")


def settings_of(text: str, name: str) -> Settings:
    """The settings that stand in the configuration file; both spellings of the owner's key."""
    features: Mapping[str, Any] = (yaml.safe_load(text) or {}).get("features") or {}
    owner = next((features[key] for key in OWNER_KEYS if key in features), drivers.OWNER)
    if not isinstance(owner, int):
        raise Invalid("features.controllerVMID must be a number")
    return Settings(name=name, owner=owner)


def _book(files: Files, kube: Kube | None) -> Book:
    if kube is not None:
        return KubeBook(kube, files.namespace, files.name)
    return MemoryBook(files.book)


async def check_rights(regions: Regions) -> None:
    """Say what the credentials lack; a region that does not answer now may answer later."""
    for region in regions.values():
        try:
            findings = await permissions.check(region.pve)
        except MoxwellError as error:
            log.warning("region not checked", region=region.name, error=str(error))
            continue
        for finding in findings:
            (log.info if finding.ok else log.warning)("preflight", report=str(finding))


async def run_controller(
    files: Files, kube: Kube | None, *, clock: Clock | None = None, registry: Any = None
) -> None:
    """Identity and Controller until cancelled."""
    clock = clock or SystemClock()
    metrics = CsiMetrics(registry or CollectorRegistry(), files.name)

    def connect(config: RegionConfig) -> Transport:
        return CountedTransport(HttpTransport(config, clock), metrics.asked, clock)

    regions = Regions(load(files.config), clock, connect=connect)
    settings = settings_of(files.config.read_text(), files.name)
    driver = drivers.assemble(regions, clock, settings=settings, kube=kube, book=_book(files, kube))
    calls = Calls(clock, metrics)
    identity = Identity(files.name, lambda: any_reachable(regions))
    handlers = (
        calls.handlers("Identity", identity),
        calls.handlers("Controller", Controller(driver)),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(regions.run())
        group.create_task(check_rights(regions))
        group.create_task(driver.holders.patrol(regions, clock))
        group.create_task(sweeping(driver))
        if driver.claims.recorder is not None:
            group.create_task(driver.claims.recorder.run())
        checks = {"proxmox": lambda: any_reachable(regions)}
        async with (
            metrics_page(files.metrics, metrics.registry, checks),
            serving(files.address, handlers),
        ):
            await asyncio.Event().wait()


async def find_place(kube: Kube, name: str) -> tuple[str, str, str, str]:
    """A node's id, region, zone and limit, as its Node object tells them."""
    node = await kube.get(NODES, name)
    labels = node.get("metadata", {}).get("labels") or {}
    region, zone = labels.get(REGION, ""), labels.get(ZONE, "")
    if not region or not zone:
        raise Invalid(
            f"node {name} has no {REGION} and {ZONE} labels yet: the cloud controller sets them"
        )
    provider = node.get("spec", {}).get("providerID", "")
    known = provider if provider.startswith("proxmox://") and provider.count("/") == 3 else name
    return known, region, zone, labels.get(MOST_LABEL, "")


async def wait_place(kube: Kube, name: str, clock: Clock) -> tuple[str, str, str, str]:
    """The same, once the cloud controller has placed the node; until then it says so."""
    while True:
        try:
            return await find_place(kube, name)
        except (Invalid, Retryable, Missing) as error:
            log.warning("node not placed yet", node=name, error=str(error))
            await clock.sleep(PLACE_SECONDS)


async def run_node(seat: Seat, kube: Kube | None) -> None:
    """Identity and Node until cancelled."""
    clock, disks = SystemClock(), SysDisks(seat.sys)
    if kube is None:
        node_id, region, zone, label = seat.name, seat.region, seat.zone, ""
    else:
        node_id, region, zone, label = await wait_place(kube, seat.name, clock)
    ours = frozenset(d.wwn for d in disks.read() if d.serial.startswith("pvc"))
    most = choose_most(label, disks.count_others(ours))
    stager = Stager(disks, SystemMounter(), clock)
    node = Node(stager, node_id=node_id, region=region, zone=zone, most=most)
    metrics = CsiMetrics(CollectorRegistry(), seat.driver)
    calls = Calls(clock, metrics)
    identity = Identity(seat.driver, lambda: True)
    handlers = (calls.handlers("Identity", identity), calls.handlers("Node", node))
    async with (
        metrics_page(seat.metrics, metrics.registry, {}),
        serving(seat.address, handlers),
    ):
        await asyncio.Event().wait()
