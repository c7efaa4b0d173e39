"""The input and the result of a placement as values: what a guest needs, and a verdict per host."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moxwell.scheduling.inventory_model import HostKey, Template


@dataclass(frozen=True, slots=True)
class OvercommitLimits:
    """How much of a host may be allocated, in percent of its capacity; 0 disables the check."""

    cpu_percent: int = 0
    memory_percent: int = 100
    storage_percent: int = 100


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What a guest needs of a host."""

    cpus: int
    memory_bytes: int
    disk_bytes: int = 0
    storage: str = ""  # of the disks; empty: that of the template
    extra_bytes: Mapping[str, int] = field(default_factory=dict)  # extra disks, by storage
    zone: str = ""
    region: str = ""
    hosts: frozenset[str] | None = None
    target: str = ""
    spread: str = "Prefer"  # Prefer, Require or Ignore: one host for each replica
    linked: bool = False  # linked clone: the template must be on the same host or on shared storage
    thin: bool = False  # the boot disk allocates no space at first
    needs_iso: bool = False
    iso_storage: str = ""  # the only allowed storage for the bootstrap ISO
    bridges: frozenset[str] = frozenset()  # named by network devices
    other_bridges: frozenset[str] = frozenset()  # of network devices that name none
    mappings: frozenset[str] = frozenset()  # of PCI devices
    firewall_groups: frozenset[str] = frozenset()
    ha_groups: frozenset[str] = frozenset()
    formats: frozenset[tuple[str, str]] = frozenset()  # (storage or "", disk format)
    limits: OvercommitLimits = OvercommitLimits()


@dataclass(frozen=True, slots=True)
class HostVerdict:
    """The verdict on one host: it fits, or what it lacks."""

    key: HostKey
    zone: str
    why_not: tuple[str, ...] = ()
    template: Template | None = None
    migrate_after_clone: bool = False  # clone on the template's host, then migrate
    replicas: int = 0
    zone_replicas: int = 0
    load: float = 0.0
    new_replicas: int = 0  # without those that a rollout is about to delete
    zone_new_replicas: int = 0

    @property
    def fits(self) -> bool:
        return not self.why_not

    def __str__(self) -> str:
        if self.why_not:
            return f"{self.key}: {'; '.join(self.why_not)}"
        how = ", cloned elsewhere and migrated" if self.migrate_after_clone else ""
        return f"{self.key}: fits ({self.replicas} replicas there, load {self.load:.0%}{how})"


@dataclass(frozen=True, slots=True)
class Placement:
    """The chosen host, and the verdict on every host."""

    chosen: HostVerdict | None
    verdicts: tuple[HostVerdict, ...]

    def explain(self) -> tuple[str, ...]:
        """One line per host, the chosen one first."""
        rest = [v for v in self.verdicts if v is not self.chosen]
        first = [f"{self.chosen} <- chosen"] if self.chosen else []
        return tuple(first + [str(v) for v in rest])

    def sentence(self) -> str:
        """One line for a condition: the chosen host, or what every host lacks."""
        if self.chosen:
            return f"placed on {self.chosen.key}"
        if not self.verdicts:
            return "no host matches: none is known in the regions and zones asked for"
        return "no host has room: " + " | ".join(str(v) for v in self.verdicts)
