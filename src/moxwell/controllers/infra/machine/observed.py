"""What ``see`` observed of one ProxmoxMachine, as values: the only input of ``plan``."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.network import NetworkDevice
from moxwell.api.infra.template import LastApplied
from moxwell.api.infra.tenant_limits import TenantLimits
from moxwell.api.infra.warm_guests import WARM_TAG
from moxwell.api.infra.zone_settings import ZoneSettings
from moxwell.bootstrap.bootstrap_data import BootstrapData
from moxwell.bootstrap.network import HostBridge, InterfaceAddress
from moxwell.bootstrap.network_plan import AddressRequest
from moxwell.controllers.infra.guest_names import BOOTING
from moxwell.controllers.infra.task_backoff import TaskFailure
from moxwell.controllers.infra.templates import TemplateDetails
from moxwell.pve.endpoints.ha import HaResource, HaRule
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import ObservedGuest
from moxwell.scheduling.quota import Excess
from moxwell.scheduling.simulate import PlacementInput

# What ``highAvailability.group`` names: a group (before Proxmox VE 9), or a rule that exists
# without the guest ("rule"), contains it ("member") or does not exist ("missing").
HaMode = Literal["group", "rule", "member", "missing"]


@dataclass(frozen=True, slots=True)
class OwnerObjects:
    """The Cluster API objects and the ProxmoxCluster that the machine belongs to."""

    machine: Machine
    cluster: Cluster
    proxmox_cluster: ProxmoxCluster


@dataclass(frozen=True, slots=True)
class MachineRegion:
    """The region in ``spec.region``: whether it is configured, and whether it answers."""

    known: bool = True
    reachable: bool = True
    error: str = ""
    root: bool = False  # logged in as root@pam with a password

    @property
    def usable(self) -> bool:
        return self.known and self.reachable


@dataclass(frozen=True, slots=True)
class VmidUsage:
    """The VMIDs of one region that are in use, and those that were freed recently."""

    guests: Container[int]
    reserved: frozenset[int] = frozenset()
    cooling: frozenset[int] = frozenset()

    def __contains__(self, vmid: object) -> bool:
        return vmid in self.guests or vmid in self.reserved


@dataclass(frozen=True, slots=True)
class ObservedPlacement:
    """Everything the choice of host, template and VMID depends on."""

    input: PlacementInput | None  # None: no zone is reachable
    templates: tuple[TemplateDetails, ...] = ()
    vmids: Mapping[str, VmidUsage] = field(default_factory=dict)  # by region
    unreachable: str = ""  # zones that were left out, and why
    excess: tuple[Excess, ...] = ()  # limits of the tenant that the machine would exceed


@dataclass(frozen=True, slots=True)
class MachineGuest:
    """The guest with the claimed VMID, and whether it belongs to the machine."""

    seen: ObservedGuest
    ours: bool
    marked: bool = False  # its tags contain the owner mark: it is configured
    unbound: bool = False  # an earlier version set the mark without namespace and cluster
    cloning: bool = False  # the clone is running; the owner cannot be read yet
    config: GuestConfig | None = None
    host_online: bool = True
    firewall_groups: frozenset[str] = frozenset()
    unknown_groups: tuple[str, ...] = ()  # in the spec, but not defined in the region
    ha: HaResource | None = None  # read when something is to be changed in place
    ha_mode: HaMode = "group"
    previous_rule: HaRule | None = None  # the HA rule that the spec named before

    @property
    def booting(self) -> bool:
        return BOOTING in self.seen.tags

    @property
    def warm(self) -> bool:
        """Whether it is a warm guest, or one that was handed over and is not configured yet."""
        return WARM_TAG in self.seen.tags


@dataclass(frozen=True, slots=True)
class StaleClone:
    """An incomplete clone whose task died with its host, and whether it can be removed."""

    region: str
    vmid: int
    state: Literal["gone", "removable", "locked", "unknown"]
    host: str = ""
    skip_lock: bool = False  # logged in as root@pam with a password, which may skip locks

    @property
    def name(self) -> str:
        return f"{self.region}/{self.vmid}"

    def __str__(self) -> str:
        if self.state == "locked":
            return (
                f"guest {self.vmid} on {self.host} in region {self.region} is an incomplete clone"
                f" and still locked; only root on that host can unlock it:"
                f" qm unlock {self.vmid}; then it is removed"
            )
        return f"guest {self.vmid} in region {self.region} cannot be read now"


@dataclass(frozen=True, slots=True)
class TakenAddress:
    """An address that a pool gave to the machine although somebody else uses it."""

    claim: str
    device: str
    address: str
    user: str
    region: str
    network: str  # bridge or VNet, and VLAN

    def __str__(self) -> str:
        return f"address {self.address} of {self.device} is used by {self.user}"


@dataclass(frozen=True, slots=True)
class ObservedAddresses:
    """The IPAddressClaims that a machine needs, and their state."""

    requests: tuple[AddressRequest, ...] = ()
    missing: tuple[AddressRequest, ...] = ()
    wrong: tuple[str, ...] = ()  # claims for another pool, or no longer needed
    pending: tuple[str, ...] = ()  # claims without an address
    given: Mapping[str, tuple[InterfaceAddress, ...]] = field(default_factory=dict)  # by device
    by_claim: Mapping[str, InterfaceAddress] = field(default_factory=dict)
    taken: tuple[TakenAddress, ...] = ()  # looked for before the first use only

    @property
    def ready(self) -> bool:
        return not (self.missing or self.wrong or self.pending)


class ObservedProxmoxMachine(msgspec.Struct, frozen=True):
    """Everything one pass observed; a Struct, because each reading replaces fields of it."""

    machine: Machine | None = None
    owners: OwnerObjects | None = None
    scope: str = ""  # namespace and name of the ProxmoxCluster, whose own regions it may use
    region: MachineRegion = MachineRegion()
    zone: ZoneSettings = msgspec.field(default_factory=ZoneSettings)
    placement: ObservedPlacement | None = None  # read only if a host is to be chosen
    guest: MachineGuest | None = None
    # How long an incomplete clone has been without a task of ours, and whether any clone task
    # runs on its host (None: not read).
    idle_clone_seconds: float | None = None
    clone_tasks_run: bool | None = None
    stale_clones: tuple[StaleClone, ...] = ()
    vmid_free: bool = False  # read from Proxmox, not from the inventory
    task_running: bool = False
    clone_must_wait: bool = False  # other full clones run on the host or storage
    uploading: bool = False
    failure: TaskFailure | None = None
    backoff_seconds: float = 0.0
    claim_host_online: bool = True
    claim_host_known: bool = True
    devices: tuple[NetworkDevice, ...] = ()
    addresses: ObservedAddresses = msgspec.field(default_factory=ObservedAddresses)
    owned_claims: tuple[str, ...] = ()
    bootstrap: BootstrapData | None = None
    host_bridges: Mapping[str, HostBridge] = msgspec.field(default_factory=dict)  # by device
    iso_exists: bool | None = None
    ha_mode: HaMode = "group"
    bootstrapped: bool = False
    agent_message: str = ""
    agent_poll_seconds: float = 0.0
    # By interface.
    agent_addresses: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    tenant: TenantLimits | None = None  # read only if a host or a pool is to be chosen
    failure_domain: str = ""  # of the host that the guest is on now
    excess: tuple[Excess, ...] = ()  # limits of the tenant that a larger size would exceed
    scaled: bool = True  # an autoscaler runs for its cluster
    legacy_applied: LastApplied | None = None  # from the status of an object of an earlier version
