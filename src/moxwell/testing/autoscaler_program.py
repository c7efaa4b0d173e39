"""
The autoscaler over Proxmox as one program, with the infrastructure and the cloud controllers.

It runs over any Kubernetes handler and a simulated Proxmox. Its writes can be counted, and it can
be killed after any of them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from moxwell.api.requests import Handler
from moxwell.clock import Clock
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.setup import add_cloud
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.setup import add_infra
from moxwell.controllers.infra.waiting_placements import WaitingPlacements
from moxwell.controllers.karpenter.claim.setup import ClaimSettings
from moxwell.controllers.karpenter.disruption.controller import DisruptionSettings
from moxwell.controllers.karpenter.proxmox.catalogue import CatalogueSettings
from moxwell.controllers.karpenter.proxmox.setup import add_provider, management_side
from moxwell.controllers.karpenter.repair.plan import RepairPolicy
from moxwell.controllers.karpenter.setup import AutoscalerSettings, add_autoscaler
from moxwell.lab.proxmox.engine import Engine
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime, assemble
from moxwell.scheduling.guest_sizes import GuestSize, make_size
from moxwell.scheduling.inventory_model import GIB
from moxwell.scheduling.well_known_labels import SPOT
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.pve import SimTransport
from moxwell.testing.two_regions import SETTINGS, TOKEN, TOKEN_SECRET, configs

CLUSTER = Key("default", "c")
DISRUPTED = "karpenter_nodeclaims_disrupted"
Extend = Callable[[Runtime, Clock, Handler], None]


def sizes() -> tuple[GuestSize, ...]:
    """Two sizes on demand and one as spot; a large one is cheaper than two small ones."""
    small, large = make_size(2, 8 * GIB, "c1"), make_size(4, 8 * GIB, "c1")
    spot = replace(make_size(2, 8 * GIB, "spot"), capacity_type=SPOT)
    return small, large, spot


def repairing(settings: AutoscalerSettings, seconds: float) -> AutoscalerSettings:
    """The settings with node repair after some seconds."""
    policies = tuple(RepairPolicy("Ready", status, seconds) for status in ("False", "Unknown"))
    claims = replace(settings.claims, repair=True, repair_policies=policies)
    return replace(settings, claims=claims)


def hasty() -> AutoscalerSettings:
    """Short times, for tests in real time."""
    disruption = DisruptionSettings(interval_seconds=1.0, validation_seconds=1.0)
    claims = ClaimSettings(garbage_seconds=2.0)
    return repairing(AutoscalerSettings(claims=claims, disruption=disruption), 2.0)


@dataclass
class AutoscalerProgram:
    """Runs of the program, one after the other, on the same cluster and regions."""

    handler: Handler
    clock: Clock
    engine: Engine
    settings: AutoscalerSettings
    extend: Extend = lambda runtime, clock, handler: None
    runtime: Runtime | None = None
    effects: list[str] = field(default_factory=list)
    lives: int = 0

    def create(self, wires: EffectCounter) -> Runtime:
        """One run, not started."""
        token = f"{TOKEN}={TOKEN_SECRET}"
        handler = wires.kube(self.handler)
        runtime = assemble(handler, self.clock, SETTINGS)
        known = configs(*self.engine.runtimes)
        regions = Regions(
            known,
            self.clock,
            connect=lambda c: wires.pve(SimTransport(self.engine, c.region, token=token)),
        )
        reservations, regional = Reservations(), RegionRegistry(regions, known)
        waiting = WaitingPlacements(self.clock)
        add_infra(runtime, self.clock, regions, reservations, registry=regional, waiting=waiting)
        add_cloud(runtime, self.clock, regions, Features(mode="auto"))
        self.extend(runtime, self.clock, handler)
        runtime.manager.add_loop("pve", regions.run)
        side = management_side(
            runtime, self.clock, regions, regional, reservations, waiting=waiting
        )
        offered = CatalogueSettings(sizes=sizes())
        provider = add_provider(side, runtime, CLUSTER, settings=offered, trusted=True)
        add_autoscaler(runtime, self.clock, provider, self.settings)
        self.runtime = runtime
        return runtime

    async def run(self, kill_after: int | None = None) -> None:
        """Run until cancelled; with ``kill_after`` every run ends after so many effects."""
        while True:
            wires = EffectCounter(kill_after=kill_after, ending="answered")
            self.lives += 1
            life = asyncio.create_task(self.create(wires).manager.run())
            killed = asyncio.create_task(wires.killed.wait())
            try:
                await asyncio.wait({life, killed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _end(life, killed)
                await wires.served()
                self.effects.extend(wires.effects)
            if not wires.killed.is_set():
                life.result()  # raises why it ended by itself

    def reasons(self) -> Mapping[str, int]:
        """Why node claims were disrupted in the current run."""
        found: Counter[str] = Counter()
        for metric in self.runtime.metrics.registry.collect() if self.runtime else ():
            for sample in metric.samples if metric.name == DISRUPTED else ():
                if sample.name == f"{DISRUPTED}_total":
                    found[sample.labels["reason"]] += int(sample.value)
        return found


async def _end(*tasks: asyncio.Task[object]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
