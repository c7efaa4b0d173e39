"""
Why a machine is where it is, or is not: every host and the kernel's verdict on it, live.

In flows the key of a machine, or an object that nobody has applied yet; out flow rows for a person.
The same code decides and explains, so an explanation cannot differ from the decision.
"""

from dataclasses import dataclass

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.controllers.infra.machine.placement import Chooser
from moxwell.controllers.infra.machine.see import Caches
from moxwell.controllers.infra.owners import cluster_key, ground_key, owner_key
from moxwell.controllers.infra.zone_defaults import Grounds
from moxwell.errors import Missing
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.scheduling.placement import Placement, Verdict
from moxwell.scheduling.simulate import Survey


@dataclass(frozen=True, slots=True)
class HostRow:
    """One host in an explanation."""

    region: str
    host: str
    zone: str
    here: bool  # the machine is, or was claimed to be, here
    chosen: bool  # it would be put here now
    fits: bool
    why_not: tuple[str, ...] = ()
    replicas: int = 0
    load: float = 0.0

    def __str__(self) -> str:
        marks = " <- here" if self.here else " <- would be chosen" if self.chosen else ""
        said = "; ".join(self.why_not) if self.why_not else f"fits (load {self.load:.0%})"
        return f"{self.region}/{self.host}: {said}{marks}"


class Explainer:
    """Explains placements."""

    def __init__(
        self, machines: Cache[ProxmoxMachine], caches: Caches, chooser: Chooser, grounds: Grounds
    ) -> None:
        self._machines, self._caches = machines, caches
        self._chooser, self._grounds = chooser, grounds

    async def explain(self, key: Key) -> tuple[HostRow, ...]:
        """Every host in question for a machine that is there."""
        obj = self._machines.get(key)
        owner = owner_key(obj, "Machine")
        machine = self._caches.machines.find(owner) if owner else None
        where = cluster_key(obj, machine)
        cluster = self._caches.clusters.find(where) if where else None
        at = ground_key(cluster) if cluster else None
        ground = self._caches.grounds.find(at) if at else None
        if ground is None:
            raise Missing(f"machine {key} belongs to no ProxmoxCluster that is there")
        wanted = machine.spec.failure_domain if machine else ""
        version = machine.spec.version if machine else ""
        return await self.explain_object(obj, ground, zone=wanted, version=version)

    async def explain_object(
        self, obj: ProxmoxMachine, ground: ProxmoxCluster, *, zone: str = "", version: str = ""
    ) -> tuple[HostRow, ...]:
        """The same for an object that may exist only on paper."""
        survey = await self.survey(obj, ground, zone=zone, version=version)
        return rows(obj, survey.place())

    async def survey(
        self, obj: ProxmoxMachine, ground: ProxmoxCluster, *, zone: str = "", version: str = ""
    ) -> Survey:
        """Everything the choice for such a machine depends on now."""
        zones, down = self._grounds.zones(ground, zone, obj.spec.zones)
        if not zones:
            raise Missing(down)
        return await self._chooser.survey(obj, ground.spec, zones, version=version)


def rows(obj: ProxmoxMachine, placement: Placement) -> tuple[HostRow, ...]:
    """A placement as rows: where it is first, then where it would go, then by name."""
    claim = obj.spec.claim
    at = (obj.spec.region, obj.status.proxmox_node or (claim.host if claim else ""))

    def row(verdict: Verdict) -> HostRow:
        return HostRow(
            verdict.key.region,
            verdict.key.name,
            verdict.zone,
            (verdict.key.region, verdict.key.name) == at,
            verdict is placement.chosen,
            verdict.fits,
            verdict.why_not,
            verdict.replicas,
            verdict.load,
        )

    found = [row(v) for v in placement.verdicts]
    return tuple(sorted(found, key=lambda r: (not r.here, not r.chosen, r.region, r.host)))
