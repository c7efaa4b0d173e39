"""Outcomes of checks, and the purposes for which a region is checked."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from moxwell.pve import preflight
from moxwell.pve.preflight import Feature
from moxwell.scheduling.inventory_model import GIB
from moxwell.scheduling.templates import TemplateQuery


class CheckLevel(StrEnum):
    """The outcome of a check; with a failure no cluster can be made."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class RegionCheck:
    """The outcome of one check and, unless it passed, what to do."""

    level: CheckLevel
    name: str
    what: str
    do: str = ""

    def __str__(self) -> str:
        return f"{self.what}; {self.do}" if self.do else self.what


@dataclass(frozen=True, slots=True, order=True)
class NetworkNeed:
    """A bridge or VNet that guests are connected to, with a VLAN tag or without."""

    bridge: str = "vmbr0"
    vlan: int = 0


@dataclass(frozen=True, slots=True)
class GuestNeed:
    """Guests of one size; a region must have room for all of them."""

    count: int = 1
    cpus: int = 2
    memory_bytes: int = 2 * GIB
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RegionNeeds:
    """What the region is wanted for."""

    features: tuple[Feature, ...] = preflight.FEATURES
    pool: str = ""  # guests must be in this pool
    networks: tuple[NetworkNeed, ...] = (NetworkNeed(),)
    storage: str = ""  # of the disks; empty: any
    templates: tuple[TemplateQuery, ...] = ()  # empty: any template
    vmids: range = range(10000, 100000)
    guests: tuple[GuestNeed, ...] = (GuestNeed(),)
    hosts: frozenset[str] = frozenset()  # empty: all hosts

    def allows(self, host: str) -> bool:
        return not self.hosts or host in self.hosts


def could_make_cluster(checks: Iterable[RegionCheck]) -> bool:
    return all(check.level is not CheckLevel.FAIL for check in checks)


def passed(name: str, what: str) -> RegionCheck:
    return RegionCheck(CheckLevel.PASS, name, what)


def warned(name: str, what: str, do: str) -> RegionCheck:
    return RegionCheck(CheckLevel.WARN, name, what, do)


def failed(name: str, what: str, do: str) -> RegionCheck:
    return RegionCheck(CheckLevel.FAIL, name, what, do)
