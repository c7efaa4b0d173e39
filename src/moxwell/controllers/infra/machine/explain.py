"""
Explains a placement: every host, and why it was chosen or rejected, as it is now.

It uses the same functions as the decision, for a machine that exists or for a manifest.
"""

from dataclasses import dataclass

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.controllers.infra.machine.placement_reader import PlacementReader
from moxwell.controllers.infra.machine.see import MachineCaches
from moxwell.controllers.infra.owners import cluster_key, owner_key, proxmox_cluster_key
from moxwell.controllers.infra.zone_defaults import ZoneResolver
from moxwell.errors import Missing
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.scheduling.placement_model import HostVerdict, Placement
from moxwell.scheduling.simulate import PlacementInput


@dataclass(frozen=True, slots=True)
class HostExplanation:
    """One host of an explained placement."""

    region: str
    host: str
    zone: str
    here: bool  # the machine is on this host, or its claim names it
    chosen: bool  # a new machine would be placed here
    fits: bool
    why_not: tuple[str, ...] = ()
    replicas: int = 0
    load: float = 0.0

    def __str__(self) -> str:
        note = " <- here" if self.here else " <- would be chosen" if self.chosen else ""
        text = "; ".join(self.why_not) if self.why_not else f"fits (load {self.load:.0%})"
        return f"{self.region}/{self.host}: {text}{note}"


class Explainer:
    """Explains placements."""

    def __init__(
        self,
        machines: Cache[ProxmoxMachine],
        caches: MachineCaches,
        placement: PlacementReader,
        zones: ZoneResolver,
    ) -> None:
        self._machines, self._caches = machines, caches
        self._placement, self._zones = placement, zones

    async def explain(self, key: Key) -> tuple[HostExplanation, ...]:
        """Every candidate host of an existing machine."""
        obj = self._machines.get(key)
        owner = owner_key(obj, "Machine")
        machine = self._caches.machines.find(owner) if owner else None
        found = cluster_key(obj, machine)
        cluster = self._caches.clusters.find(found) if found else None
        found = proxmox_cluster_key(cluster) if cluster else None
        proxmox_cluster = self._caches.proxmox_clusters.find(found) if found else None
        if proxmox_cluster is None:
            raise Missing(f"the ProxmoxCluster of machine {key} does not exist")
        zone = machine.spec.failure_domain if machine else ""
        version = machine.spec.version if machine else ""
        return await self.explain_object(obj, proxmox_cluster, zone=zone, version=version)

    async def explain_object(
        self, obj: ProxmoxMachine, cluster: ProxmoxCluster, *, zone: str = "", version: str = ""
    ) -> tuple[HostExplanation, ...]:
        """Every candidate host of a machine that may exist only as a manifest."""
        given = await self.placement_input(obj, cluster, zone=zone, version=version)
        return rows(obj, given.place())

    async def placement_input(
        self, obj: ProxmoxMachine, cluster: ProxmoxCluster, *, zone: str = "", version: str = ""
    ) -> PlacementInput:
        """Everything that the placement of such a machine depends on now."""
        zones, unreachable = self._zones.zones(cluster, zone, obj.spec.zones)
        if not zones:
            raise Missing(unreachable)
        found = await self._placement.read(obj, cluster.spec, zones, version=version)
        assert found.input is not None
        return found.input


def rows(obj: ProxmoxMachine, placement: Placement) -> tuple[HostExplanation, ...]:
    """A placement as rows: the current host first, then the chosen one, then by name."""
    claim = obj.spec.claim
    current = (obj.spec.region, obj.status.proxmox_node or (claim.host if claim else ""))

    def row(verdict: HostVerdict) -> HostExplanation:
        return HostExplanation(
            verdict.key.region,
            verdict.key.name,
            verdict.zone,
            (verdict.key.region, verdict.key.name) == current,
            verdict is placement.chosen,
            verdict.fits,
            verdict.why_not,
            verdict.replicas,
            verdict.load,
        )

    found = [row(v) for v in placement.verdicts]
    return tuple(sorted(found, key=lambda r: (not r.here, not r.chosen, r.region, r.host)))
