"""
What one pass saw of a machine, as values: the only input of the plan.

Everything here was read in this pass, from caches, from the inventory or from Proxmox; nothing is
remembered in the object's own status. ``stuck`` is why no decision is possible at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.network import NetworkDevice
from moxwell.api.infra.template import Claim
from moxwell.bootstrap.bootstrap_data import Bootstrap
from moxwell.bootstrap.network import Address
from moxwell.bootstrap.network_plan import Want
from moxwell.controllers.infra.task_backoff import Setback
from moxwell.pve.endpoints.ha import HaResource, HaRule
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import GuestSeen
from moxwell.runtime.move import Wait
from moxwell.scheduling.placement import Placement
from moxwell.scheduling.zone_settings import Ground

BOOTING = "moxwell-booting"  # a tag: the seed disk is in, the node not there yet
KEPT = "moxwell-kept"  # a tag: its object is gone and it was to stay


# How an HA group is meant: as a group (before 9), or as a rule that it is in or not in yet.
Care = Literal["group", "rule", "joined", "missing"]


@dataclass(frozen=True, slots=True)
class Around:
    """The objects of others that a machine stands among."""

    machine: Machine
    cluster: Cluster
    ground: ProxmoxCluster


@dataclass(frozen=True, slots=True)
class Choice:
    """A place found for a machine that has none: what is about to be claimed."""

    region: str
    vmid: int
    claim: Claim
    placement: Placement
    cpus: int
    memory_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class GuestFound:
    """The guest at the claimed id, and whose it is."""

    seen: GuestSeen
    ours: bool
    marked: bool = False  # its tags say so: it is configured
    arriving: bool = False  # being cloned: nobody can tell whose it is
    config: GuestConfig | None = None
    host_online: bool = True
    firewall_groups: frozenset[str] = frozenset()
    lacking_groups: tuple[str, ...] = ()  # asked for, and unknown to the region
    ha: HaResource | None = None  # looked at when something is to be changed
    care: Care = "group"  # how the HA group that is asked for is meant
    old_rule: HaRule | None = None  # the HA rule that was asked for before

    @property
    def booting(self) -> bool:
        return BOOTING in self.seen.tags


@dataclass(frozen=True, slots=True)
class Carcass:
    """What a clone may have left that died with its host, and what can be done about it."""

    region: str
    vmid: int
    state: Literal["gone", "removable", "locked", "unknown"]
    host: str = ""
    skip_lock: bool = False  # we are root@pam with a password, and may

    @property
    def place(self) -> str:
        return f"{self.region}/{self.vmid}"

    def __str__(self) -> str:
        if self.state == "locked":
            return (
                f"guest {self.vmid} on {self.host} in region {self.region} is a clone that died"
                f" half-way and is still locked; only root on that host can unlock it:"
                f" qm unlock {self.vmid}; then it is removed"
            )
        return f"guest {self.vmid} in region {self.region} cannot be looked at now"


@dataclass(frozen=True, slots=True)
class AddressesSeen:
    """The address claims a machine needs, and how far they are."""

    wants: tuple[Want, ...] = ()
    missing: tuple[Want, ...] = ()
    wrong: tuple[str, ...] = ()  # claims that name another pool
    pending: tuple[str, ...] = ()  # claims without an answer
    given: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)  # by device

    @property
    def ready(self) -> bool:
        return not (self.missing or self.wrong or self.pending)


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything one pass saw."""

    stuck: Wait | None = None
    region_down: str = ""  # why the region cannot be asked
    around: Around | None = None
    zone: Ground = field(default_factory=Ground)
    choice: Choice | None = None
    guest: GuestFound | None = None
    dead: bool = False  # the clone under the claimed id died half-way, with its host
    carcasses: tuple[Carcass, ...] = ()  # what such clones left
    gone: bool = False  # asked freshly: the id is free
    task: bool = False
    uploading: bool = False
    setback: Setback | None = None
    pause_seconds: float = 0.0
    claim_host_online: bool = True
    claim_host_known: bool = True
    devices: tuple[NetworkDevice, ...] = ()
    addresses: AddressesSeen = field(default_factory=AddressesSeen)
    owned_claims: tuple[str, ...] = ()
    bootstrap: Bootstrap | None = None
    iso_there: bool | None = None
    care: Care = "group"
    bootstrapped: bool = False
    agent_says: str = ""
    agent_pause: float = 0.0
    inside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # addresses by DHCP
    location: str = ""  # the failure domain it is in now
