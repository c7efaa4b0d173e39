"""
Runs ``moxwell bootstrap``: a temporary instance that creates a management cluster.

The temporary instance is the embedded API with the infrastructure provider, Cluster API's embedded
controllers and the controller of the bootstrap. Its state directory is kept until ``--undo``; a run
that was killed continues there.
"""

import asyncio
import base64
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from moxwell.api import registry
from moxwell.api.capi.controlplane import KubeadmControlPlane
from moxwell.api.capi.talos import TalosControlPlane
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.app import embedded_api
from moxwell.app.bootstrap_inputs import BootstrapInputs, template_design, template_mark
from moxwell.app.state_dir import StateDir
from moxwell.clock import Clock
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.setup import add_infra
from moxwell.controllers.infra.template_build.build import TemplateBuilder
from moxwell.controllers.infra.template_build.design import TemplateDesign, TemplateImage
from moxwell.embedded.clusterapi import setup as clusterapi
from moxwell.embedded.clusterapi.taloscontrolplane.secrets import TALOSCONFIG
from moxwell.errors import Invalid, Unreachable
from moxwell.json_lines import JsonLinesFile
from moxwell.kube.transport import KubeTransport
from moxwell.management import setup as management
from moxwell.management.controller import BootstrapReconciler, request_object
from moxwell.management.objects import CONFIG_MAPS, NAMESPACES, SECRETS
from moxwell.management.observed import OWN_NAMESPACE, ManagementObserver, kubeconfig_name
from moxwell.management.plan import BootstrapMove, next_move
from moxwell.management.progress import sentence
from moxwell.management.spec import (
    TALOS,
    ManagementSpec,
    ManagementZone,
    template_name,
    zone_name,
)
from moxwell.pki.folder import CertificateAuthority
from moxwell.preflight.checks import check_region
from moxwell.preflight.facts import read_facts
from moxwell.preflight.outcome import NetworkNeed, RegionCheck, RegionNeeds
from moxwell.pve.audit import FileAudit, acting
from moxwell.pve.effects import Effects
from moxwell.pve.preflight import Feature
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.move import Done
from moxwell.runtime.settings import ManagerSettings
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.scheduling.templates import TemplateQuery

POLL_SECONDS = 2.0
Report = Callable[[str], None]


class PreflightFailed(Invalid):
    """A check of a region failed; nothing was made."""

    reason = "PreflightFailed"


class BootstrapUnfinished(Unreachable):
    """The time is over; the same command continues."""

    reason = "BootstrapUnfinished"


@dataclass(frozen=True, slots=True)
class BootstrapFiles:
    """The contents of the files that users of the management cluster need."""

    kubeconfig: str = field(default="", repr=False)
    talosconfig: str = field(default="", repr=False)  # empty without Talos


@dataclass(slots=True)
class BootstrapInstance:
    """A temporary instance that runs."""

    inputs: BootstrapInputs
    clock: Clock
    report: Report
    runtime: Runtime
    regions: Regions
    observer: ManagementObserver
    problem: Callable[[], str]  # why the last move failed

    @classmethod
    async def start(
        cls,
        stack: AsyncExitStack,
        state: StateDir,
        inputs: BootstrapInputs,
        clock: Clock,
        report: Report,
    ) -> "BootstrapInstance":
        """Open the temporary API and create its controllers; closing ``stack`` closes it."""
        store = await embedded_api.open_store(
            clock, state.database, CertificateAuthority(state.pki, clock.now)
        )
        stack.push_async_callback(store.stop)
        runtime = assemble(store, clock, ManagerSettings(elect=False, identity=state.name))
        audit = JsonLinesFile(state.proxmox_audit)
        stack.callback(audit.close)
        regions = Regions(
            inputs.regions, clock, effects=Effects(FileAudit(audit, clock), clock=clock)
        )
        known = RegionRegistry(regions, inputs.regions)
        add_infra(runtime, clock, regions, Reservations(), registry=known)
        targets = TenantClients(runtime.kube, KubeTransport, clock)
        _add_cluster_api(runtime, clock, targets)
        controller = management.controller(runtime.kube, inputs.spec, inputs.stages, targets)
        runtime.manager.add(controller)
        reconciler = controller.reconciler
        assert isinstance(reconciler, BootstrapReconciler)
        runtime.manager.add_loop("pve", regions.run)
        observer = ManagementObserver(inputs.spec, inputs.stages, targets.find)
        return cls(inputs, clock, report, runtime, regions, observer, lambda: reconciler.problem)

    async def run(self, *, undo: bool, seconds: float) -> BootstrapFiles:
        """Work until the cluster is made or removed; returns what its users need."""
        life = asyncio.create_task(self.runtime.manager.run())
        work = asyncio.create_task(self._work(undo=undo, seconds=seconds))
        try:
            await asyncio.wait([life, work], return_when=asyncio.FIRST_COMPLETED)
            if life.done():
                life.result()
            return await work
        finally:
            work.cancel()
            self.runtime.manager.stop()
            await asyncio.wait([life, work])

    async def _work(self, *, undo: bool, seconds: float) -> BootstrapFiles:
        if not undo:
            await self._templates()
        kube = self.runtime.kube
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}}
        await kube.apply(namespace, NAMESPACES, force=True)
        await kube.apply(request_object(undo=undo), CONFIG_MAPS, force=True)
        await self._until_done(undo=undo, seconds=seconds)
        if undo:
            await self._remove_templates()
            return BootstrapFiles()
        kept = await kube.get(SECRETS, kubeconfig_name(self.inputs.spec), OWN_NAMESPACE)
        kubeconfig = base64.b64decode(kept["data"]["value"]).decode()
        return BootstrapFiles(kubeconfig, await self._talosconfig())

    async def _talosconfig(self) -> str:
        """The talosconfig, which was moved; empty if the machines do not run Talos."""
        spec = self.inputs.spec
        if spec.bootstrap != TALOS:
            return ""
        target = await self.observer.find_target(Key(OWN_NAMESPACE, spec.name))
        if target is None:
            raise Unreachable("the management cluster does not answer; run the same command again")
        secret = await target.get(SECRETS, f"{spec.name}-{TALOSCONFIG}", spec.namespace)
        return base64.b64decode(secret["data"][TALOSCONFIG]).decode()

    async def _until_done(self, *, undo: bool, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while True:
            move = await self._next(undo=undo)
            said = f"{sentence(move)}: {self.problem()}" if self.problem() else sentence(move)
            self.report(said)
            if isinstance(move, Done):
                return
            if self.clock.monotonic() > end:
                raise BootstrapUnfinished(
                    f"not finished within {seconds:.0f} s: {said}; the same command "
                    "continues, `moxwell bootstrap --undo` removes what was made"
                )
            await self.clock.sleep(POLL_SECONDS)

    async def _next(self, *, undo: bool) -> BootstrapMove:
        """The move that the controller would make now."""
        seen = await self.observer.observe(self.runtime.kube, undo=undo)
        return next_move(self.inputs.spec, seen, undo=undo)

    async def _templates(self) -> None:
        spec = self.inputs.spec
        for name in sorted({zone.region for zone in spec.zones}) if spec.template else ():
            assert spec.template is not None
            design = template_design(spec, spec.template, name)
            with acting("cli bootstrap", design.name):
                await TemplateBuilder(self.regions[name], self.clock, self.report).build(design)

    async def _remove_templates(self) -> None:
        """Remove the template that bootstrap made; others have another mark."""
        spec = self.inputs.spec
        design = TemplateDesign(f"{spec.name}-node", template_mark(spec), TemplateImage(), ())
        for name in sorted({zone.region for zone in spec.zones}):
            with acting("cli bootstrap", design.name):
                await TemplateBuilder(self.regions[name], self.clock, self.report).remove(design)


def _add_cluster_api(runtime: Runtime, clock: Clock, targets: TenantClients) -> None:
    for controller in clusterapi.controllers(
        runtime.kube,
        runtime.manager.caches,
        clock,
        targets,
        resources=[k.resource for k in registry.KINDS if k.declared.storage],
        infrastructure=(ProxmoxCluster, ProxmoxMachine),
        control_planes=(KubeadmControlPlane, TalosControlPlane),
    ):
        runtime.manager.add(controller)


async def preflight(inputs: BootstrapInputs, clock: Clock) -> dict[str, Sequence[RegionCheck]]:
    """The checks of the regions that the cluster uses, by zone; changes nothing."""
    regions = Regions(inputs.regions, clock)
    running = asyncio.create_task(regions.run())
    try:
        return {
            zone_name(zone): await _checks(regions, zone, inputs.spec, clock)
            for zone in inputs.spec.zones
        }
    finally:
        running.cancel()
        await asyncio.wait([running])


def needed_features(spec: ManagementSpec) -> tuple[Feature, ...]:
    """What the token must be permitted to do."""
    wanted: dict[Feature, bool] = {
        "machines": True,
        "templates": spec.template is not None,
        "pools": bool(spec.pool),
    }
    return tuple(feature for feature, needed in wanted.items() if needed)


async def _checks(
    regions: Regions, zone: ManagementZone, spec: ManagementSpec, clock: Clock
) -> Sequence[RegionCheck]:
    region = regions[zone.region]
    facts = await read_facts(region.reader, region.config, clock)
    made = spec.template is not None  # bootstrap makes a template
    features = needed_features(spec)
    name = template_name(spec)
    needs = RegionNeeds(
        features,
        templates=() if made or not name else (TemplateQuery(name=name),),
        networks=(NetworkNeed(zone.bridge, zone.vlan),),
        storage=zone.storage,
        hosts=frozenset(zone.hosts),
    )
    found = check_region(facts, needs)
    return [check for check in found if not (made and check.name == "templates")]


async def run(
    state: StateDir,
    inputs: BootstrapInputs,
    clock: Clock,
    report: Report,
    *,
    undo: bool,
    seconds: float,
) -> BootstrapFiles:
    """Make or remove the management cluster; returns what its users need."""
    state.acquire()
    async with AsyncExitStack() as stack:
        stack.callback(state.release)
        instance = await BootstrapInstance.start(stack, state, inputs, clock, report)
        return await instance.run(undo=undo, seconds=seconds)
