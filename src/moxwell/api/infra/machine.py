"""
ProxmoxMachine and ProxmoxMachineTemplate in the hub version v1beta2.

Fields that CAPMOX has keep CAPMOX's names. Additions are ``region`` and ``claim`` (decisions made
before anything is created in Proxmox), more hardware settings, and policies for a running guest.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from moxwell.api.capi.shared import MachineAddress
from moxwell.api.conditions import Condition
from moxwell.api.infra.cpu_placement import CpuPinning, NumaNodeSpec
from moxwell.api.infra.network import NetworkSpec
from moxwell.api.infra.template import (
    Claim,
    HighAvailability,
    LastApplied,
    MachineDisks,
    MetadataSettings,
    PciDeviceSpec,
    ProxmoxMachineChecks,
    Tag,
    TemplateSelector,
    VmidRangeSpec,
)
from moxwell.api.kinds import Column, Object, ValidationRule, kind
from moxwell.api.meta import TemplateMeta, Value
from moxwell.api.schema import unique

GROUP = "infrastructure.cluster.x-k8s.io"
HUB = "v1beta2"
LABEL_VALUE = r"^[a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?$"
CONTRACT = {
    "cluster.x-k8s.io/v1beta1": "v1alpha1",
    "cluster.x-k8s.io/v1beta2": "v1alpha2_v1beta2",
    "cluster.x-k8s.io/provider": "infrastructure-moxwell",
}


class ProxmoxMachineSpec(Value, frozen=True, kw_only=True):
    """The desired state of a ProxmoxMachine."""

    # template and clone
    source_node: Annotated[str, Meta(min_length=1)] | None = field(name="sourceNode", default=None)
    template_id: Annotated[int, Meta(ge=100)] | None = field(name="templateID", default=None)
    template_name: str | None = field(name="templateName", default=None)
    template_selector: TemplateSelector | None = field(name="templateSelector", default=None)
    full: bool | None = None  # None: linked where the storage supports it, else full
    snap_name: str | None = field(name="snapName", default=None)
    storage: str | None = None
    format: Literal["raw", "qcow2", "vmdk"] | None = None
    iso_storage: str | None = field(name="isoStorage", default=None)
    # placement
    zones: Annotated[tuple[str, ...], unique()] = ()  # zones of the cluster; empty: any
    target: str | None = None  # the only allowed host
    allowed_nodes: Annotated[tuple[str, ...], unique()] = field(name="allowedNodes", default=())
    spread: Literal["Prefer", "Require", "Ignore"] | None = None
    pool: str | None = None
    vm_id_range: VmidRangeSpec | None = field(name="vmIDRange", default=None)
    # hardware
    instance_type: Annotated[str, Meta(pattern=LABEL_VALUE, max_length=63)] | None = field(
        name="instanceType", default=None
    )  # written as SKU; the node's instance type label
    num_sockets: Annotated[int, Meta(ge=1)] | None = field(name="numSockets", default=None)
    num_cores: Annotated[int, Meta(ge=1)] | None = field(name="numCores", default=None)
    cpu_type: str | None = field(name="cpuType", default=None)
    cpu_limit: float | None = field(name="cpuLimit", default=None)
    cpu_units: int | None = field(name="cpuUnits", default=None)
    numa: bool | None = None
    # the memory of these nodes sums up to memoryMiB
    numa_nodes: Annotated[tuple[NumaNodeSpec, ...], Meta(max_length=8)] = field(
        name="numaNodes", default=()
    )
    cpu_pinning: CpuPinning | None = field(name="cpuPinning", default=None)
    # huge pages of the host, which only a login as root@pam may set
    huge_pages_mib: Literal[2, 1024] | None = field(name="hugePagesMiB", default=None)
    memory_mib: Annotated[int, Meta(ge=0, multiple_of=8)] | None = field(
        name="memoryMiB", default=None
    )
    balloon_mib: Annotated[int, Meta(ge=0)] | None = field(name="balloonMiB", default=None)
    machine_type: str | None = field(name="machineType", default=None)
    bios: Literal["seabios", "ovmf"] | None = None
    disks: MachineDisks | None = None
    network: NetworkSpec | None = None
    # a queue per vCPU for virtio devices that set no queues
    network_queues: Literal["PerCPU"] | None = field(name="networkQueues", default=None)
    pci_devices: tuple[PciDeviceSpec, ...] = field(name="pciDevices", default=())
    # description in Proxmox
    description: str | None = None
    tags: Annotated[tuple[Tag, ...], unique()] = ()
    metadata_settings: MetadataSettings | None = field(name="metadataSettings", default=None)
    # lifecycle
    high_availability: HighAvailability | None = field(name="highAvailability", default=None)
    firewall_groups: tuple[str, ...] = field(name="firewallGroups", default=())
    on_boot: bool | None = field(name="onBoot", default=None)
    when_stopped: Literal["Report", "Start"] | None = field(name="whenStopped", default=None)
    changes: Literal["Never", "InPlace"] | None = None
    shutdown_seconds: Annotated[int, Meta(ge=0, le=3600)] | None = field(
        name="shutdownSeconds", default=None
    )
    checks: ProxmoxMachineChecks | None = None
    # set by the controller
    region: str | None = None
    virtual_machine_id: int | None = field(name="virtualMachineID", default=None)
    claim: Claim | None = None
    provider_id: Annotated[str, Meta(max_length=512)] = field(name="providerID", default="")

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "[has(self.templateID), has(self.templateName), has(self.templateSelector)]"
            ".filter(x, x).size() <= 1",
            "set only one of templateID, templateName and templateSelector",
            lambda self, old: _ways(self) <= 1,
        ),
        ValidationRule(
            "!has(self.storage) || !has(self.full) || self.full",
            "a linked clone uses its template's storage: omit storage or set full: true",
            lambda self, old: self.storage is None or self.full is not False,
            ".storage",
        ),
        ValidationRule(
            "!has(self.format) || !has(self.full) || self.full",
            "a linked clone uses its template's format: omit format or set full: true",
            lambda self, old: self.format is None or self.full is not False,
            ".format",
        ),
        ValidationRule(
            "!(has(self.cpuPinning) || has(self.numaNodes) && self.numaNodes.size() > 0) "
            "|| has(self.target)",
            "NUMA nodes and CPUs are those of one host: set target to it",
            lambda self, old: not (self.cpu_pinning or self.numa_nodes) or bool(self.target),
            ".target",
        ),
    )


def _ways(spec: ProxmoxMachineSpec) -> int:
    given = (spec.template_id, spec.template_name, spec.template_selector)
    return sum(way is not None for way in given)


class IPAddresses(Value, frozen=True, kw_only=True):
    """The addresses of one network device."""

    net: str
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()


class Initialization(Value, frozen=True, kw_only=True):
    """Initialization milestones of Cluster API's contract v1beta2."""

    provisioned: bool | None = None


class ProxmoxMachineStatus(Value, frozen=True, kw_only=True):
    """The observed state of a ProxmoxMachine, computed from scratch in every pass."""

    conditions: tuple[Condition, ...] = ()
    initialization: Initialization = field(default_factory=Initialization)
    addresses: tuple[MachineAddress, ...] = ()
    ip_addresses: tuple[IPAddresses, ...] = field(name="ipAddresses", default=())
    failure_domain: str = field(name="failureDomain", default="")
    vm_status: Literal["", "notfound", "pending", "ready"] = field(name="vmStatus", default="")
    power_state: str = field(name="powerState", default="")
    proxmox_node: str = field(name="proxmoxNode", default="")
    ha_state: str = field(name="haState", default="")
    bootstrap_data_provided: bool | None = field(name="bootstrapDataProvided", default=None)
    next_move: str = field(name="nextMove", default="")
    observed_generation: int = field(name="observedGeneration", default=0)
    # earlier places of spec.claim.applied and its hash: read once, never written
    hardware: str = ""
    applied: LastApplied | None = None


@kind(
    group=GROUP,
    version=HUB,
    plural="proxmoxmachines",
    short=("moxm",),
    categories=("cluster-api",),
    status=True,
    labels=CONTRACT,
    columns=(
        Column("Cluster", ".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Region", ".spec.region"),
        Column("Host", ".status.proxmoxNode"),
        Column("VMID", ".spec.virtualMachineID", "integer"),
        Column("Power", ".status.powerState"),
        Column("Next", ".status.nextMove", priority=1),
        Column("Provider_ID", ".spec.providerID", priority=1),
        Column("Machine", ".metadata.ownerReferences[?(@.kind=='Machine')].name", priority=1),
    ),
)
class ProxmoxMachine(Object, frozen=True, kw_only=True):
    """A Proxmox virtual machine that is, or will be, a Kubernetes node."""

    spec: ProxmoxMachineSpec = field(default_factory=ProxmoxMachineSpec)
    status: ProxmoxMachineStatus = field(default_factory=ProxmoxMachineStatus)


class ProxmoxMachineTemplateResource(Value, frozen=True, kw_only=True):
    """The metadata and spec of machines created from the template."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: ProxmoxMachineSpec = field(default_factory=ProxmoxMachineSpec)


class ProxmoxMachineTemplateSpec(Value, frozen=True, kw_only=True):
    """The desired state of a ProxmoxMachineTemplate."""

    template: ProxmoxMachineTemplateResource = field(default_factory=ProxmoxMachineTemplateResource)


class NodeInfo(Value, frozen=True, kw_only=True):
    """The architecture and operating system of nodes created from the template."""

    architecture: str = ""
    operating_system: str = field(name="operatingSystem", default="")


class ProxmoxMachineTemplateStatus(Value, frozen=True, kw_only=True):
    """The capacity that an autoscaler needs to scale from zero."""

    capacity: Mapping[str, str] = field(default_factory=dict)
    node_info: NodeInfo | None = field(name="nodeInfo", default=None)
    conditions: tuple[Condition, ...] = ()


@kind(
    group=GROUP,
    version=HUB,
    plural="proxmoxmachinetemplates",
    short=("pmt",),
    categories=("cluster-api",),
    status=True,
    labels=CONTRACT,
    columns=(
        Column("CPU", ".status.capacity.cpu"),
        Column("Memory", ".status.capacity.memory"),
    ),
)
class ProxmoxMachineTemplate(Object, frozen=True, kw_only=True):
    """A template of ProxmoxMachines."""

    spec: ProxmoxMachineTemplateSpec = field(default_factory=ProxmoxMachineTemplateSpec)
    status: ProxmoxMachineTemplateStatus = field(default_factory=ProxmoxMachineTemplateStatus)


KINDS = (ProxmoxMachine, ProxmoxMachineTemplate)
