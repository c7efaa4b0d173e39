"""
The infrastructure kinds as in CAPMOX ``v1alpha1``: one default device, additional devices, pools by
IP family.

:mod:`.convert_v1alpha1` converts them to the hub. Cluster API's contract v1beta1 reads this
version: ``status.ready`` and failure domains as a map.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from moxwell.api.capi.shared import MachineAddress
from moxwell.api.conditions import LegacyCondition
from moxwell.api.infra.cluster import ControlPlaneEndpoint, LocalRef, SchedulerHints, SecretRef
from moxwell.api.infra.machine import CONTRACT, GROUP
from moxwell.api.infra.network import (
    IPConfig,
    Model,
    Mtu,
    PolicySpec,
    PoolRef,
    RouteSpec,
    Vlan,
    VrfSpec,
    ZoneName,
)
from moxwell.api.infra.template import (
    MachineDisks,
    MetadataSettings,
    ProxmoxMachineChecks,
    Tag,
    TemplateSelector,
    VmidRangeSpec,
)
from moxwell.api.kinds import Column, Object, kind
from moxwell.api.meta import TemplateMeta, Value

VERSION = "v1alpha1"
DEPRECATED = f"{GROUP}/v1alpha1 is deprecated; use {GROUP}/v1beta2"


class NetworkDeviceV1Alpha1(Value, frozen=True, kw_only=True):
    """A network device; the default device has no name."""

    name: Annotated[str, Meta(pattern=r"^net[0-9]+$")] | None = None
    bridge: Annotated[str, Meta(min_length=1)] | None = None
    model: Model | None = None
    mtu: Mtu | None = None
    link_mtu: Mtu | None = field(name="linkMtu", default=None)
    vlan: Vlan | None = None
    queues: Annotated[int, Meta(ge=1, le=65535)] | None = None
    ipv4_pool_ref: PoolRef | None = field(name="ipv4PoolRef", default=None)
    ipv6_pool_ref: PoolRef | None = field(name="ipv6PoolRef", default=None)
    dns_servers: tuple[str, ...] = field(name="dnsServers", default=())
    routes: tuple[RouteSpec, ...] = ()
    routing_policy: tuple[PolicySpec, ...] = field(name="routingPolicy", default=())


class NetworkSpecV1Alpha1(Value, frozen=True, kw_only=True):
    """The default device and additional devices."""

    zone: ZoneName | None = None
    default: NetworkDeviceV1Alpha1 | None = None
    additional_devices: tuple[NetworkDeviceV1Alpha1, ...] = field(
        name="additionalDevices", default=()
    )
    vrfs: tuple[VrfSpec, ...] = ()


class ProxmoxMachineSpecV1Alpha1(Value, frozen=True, kw_only=True):
    """The desired state of a ProxmoxMachine, in v1alpha1."""

    source_node: str | None = field(name="sourceNode", default=None)
    template_id: Annotated[int, Meta(ge=100)] | None = field(name="templateID", default=None)
    template_selector: TemplateSelector | None = field(name="templateSelector", default=None)
    description: str | None = None
    format: Literal["raw", "qcow2", "vmdk"] | None = None
    full: bool | None = None
    pool: str | None = None
    snap_name: str | None = field(name="snapName", default=None)
    storage: str | None = None
    target: str | None = None
    provider_id: str | None = field(name="providerID", default=None)
    virtual_machine_id: int | None = field(name="virtualMachineID", default=None)
    num_sockets: Annotated[int, Meta(ge=1)] | None = field(name="numSockets", default=None)
    num_cores: Annotated[int, Meta(ge=1)] | None = field(name="numCores", default=None)
    memory_mib: Annotated[int, Meta(ge=0, multiple_of=8)] | None = field(
        name="memoryMiB", default=None
    )
    disks: MachineDisks | None = None
    network: NetworkSpecV1Alpha1 | None = None
    vm_id_range: VmidRangeSpec | None = field(name="vmIDRange", default=None)
    checks: ProxmoxMachineChecks | None = None
    metadata_settings: MetadataSettings | None = field(name="metadataSettings", default=None)
    allowed_nodes: tuple[str, ...] = field(name="allowedNodes", default=())
    tags: tuple[Tag, ...] = ()


class DeviceAddressesV1Alpha1(Value, frozen=True, kw_only=True):
    """The addresses of one network device, in v1alpha1."""

    ipv4: str = ""
    ipv6: str = ""


class ProxmoxMachineStatusV1Alpha1(Value, frozen=True, kw_only=True):
    """The observed state of a ProxmoxMachine, in v1alpha1."""

    ready: bool | None = None
    conditions: tuple[LegacyCondition, ...] = ()
    addresses: tuple[MachineAddress, ...] = ()
    vm_status: Literal["", "notfound", "pending", "ready"] = field(name="vmStatus", default="")
    bootstrap_data_provided: bool | None = field(name="bootstrapDataProvided", default=None)
    ip_addresses: Mapping[str, DeviceAddressesV1Alpha1] = field(
        name="ipAddresses", default_factory=dict
    )
    proxmox_node: str | None = field(name="proxmoxNode", default=None)
    failure_domain: str = field(name="failureDomain", default="")
    task_ref: str | None = field(name="taskRef", default=None)
    retry_after: str | None = field(name="retryAfter", default=None)
    failure_reason: str | None = field(name="failureReason", default=None)
    failure_message: str | None = field(name="failureMessage", default=None)


class CloneSpec(Value, frozen=True, kw_only=True):
    """Machine specs for patches of a ClusterClass; no controller reads them."""

    machine_spec: Mapping[str, ProxmoxMachineSpecV1Alpha1] = field(
        name="machineSpec", default_factory=dict
    )
    ssh_authorized_keys: tuple[str, ...] = field(name="sshAuthorizedKeys", default=())
    virtual_ip_network_interface: str | None = field(name="virtualIPNetworkInterface", default=None)


class ProxmoxClusterSpecV1Alpha1(Value, frozen=True, kw_only=True):
    """The desired state of a ProxmoxCluster, in v1alpha1."""

    control_plane_endpoint: ControlPlaneEndpoint | None = field(
        name="controlPlaneEndpoint", default=None
    )
    external_managed_control_plane: bool | None = field(
        name="externalManagedControlPlane", default=None
    )
    allowed_nodes: tuple[str, ...] = field(name="allowedNodes", default=())
    scheduler_hints: SchedulerHints | None = field(name="schedulerHints", default=None)
    ipv4_config: IPConfig | None = field(name="ipv4Config", default=None)
    ipv6_config: IPConfig | None = field(name="ipv6Config", default=None)
    dns_servers: tuple[str, ...] = field(name="dnsServers", default=())
    clone_spec: CloneSpec | None = field(name="cloneSpec", default=None)
    credentials_ref: SecretRef | None = field(name="credentialsRef", default=None)


class FailureDomainV1Alpha1(Value, frozen=True, kw_only=True):
    """A failure domain, in the map of contract v1beta1."""

    control_plane: bool | None = field(name="controlPlane", default=None)
    attributes: Mapping[str, str] = field(default_factory=dict)


class NodeLocation(Value, frozen=True, kw_only=True):
    """The host of a machine as recorded by CAPMOX; preserved, not read."""

    machine: LocalRef
    node: str


class NodeLocations(Value, frozen=True, kw_only=True):
    """The hosts of machines as recorded by CAPMOX; preserved, not read."""

    control_plane: tuple[NodeLocation, ...] = field(name="controlPlane", default=())
    workers: tuple[NodeLocation, ...] = ()


class ProxmoxClusterStatusV1Alpha1(Value, frozen=True, kw_only=True):
    """The observed state of a ProxmoxCluster, in v1alpha1."""

    ready: bool | None = None
    conditions: tuple[LegacyCondition, ...] = ()
    failure_domains: Mapping[str, FailureDomainV1Alpha1] = field(
        name="failureDomains", default_factory=dict
    )
    in_cluster_ip_pool_ref: tuple[LocalRef, ...] = field(name="inClusterIpPoolRef", default=())
    node_locations: NodeLocations | None = field(name="nodeLocations", default=None)
    failure_reason: str | None = field(name="failureReason", default=None)
    failure_message: str | None = field(name="failureMessage", default=None)


_FACTS: dict[str, Any] = {
    "group": GROUP,
    "version": VERSION,
    "categories": ("cluster-api",),
    "labels": CONTRACT,
    "storage": False,
    "deprecated": DEPRECATED,
}
_READY = Column("Ready", ".status.ready", "string")


@kind(
    name="ProxmoxCluster",
    plural="proxmoxclusters",
    short=("moxc",),
    status=True,
    columns=(_READY,),
    **_FACTS,
)
class ProxmoxClusterV1Alpha1(Object, frozen=True, kw_only=True):
    """A ProxmoxCluster of CAPMOX v1alpha1."""

    spec: ProxmoxClusterSpecV1Alpha1 = field(default_factory=ProxmoxClusterSpecV1Alpha1)
    status: ProxmoxClusterStatusV1Alpha1 = field(default_factory=ProxmoxClusterStatusV1Alpha1)


class ProxmoxClusterTemplateResourceV1Alpha1(Value, frozen=True, kw_only=True):
    """The metadata and spec of clusters created from the template, in v1alpha1."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: ProxmoxClusterSpecV1Alpha1 = field(default_factory=ProxmoxClusterSpecV1Alpha1)


class ProxmoxClusterTemplateSpecV1Alpha1(Value, frozen=True, kw_only=True):
    """The desired state of a ProxmoxClusterTemplate, in v1alpha1."""

    template: ProxmoxClusterTemplateResourceV1Alpha1 = field(
        default_factory=ProxmoxClusterTemplateResourceV1Alpha1
    )


@kind(name="ProxmoxClusterTemplate", plural="proxmoxclustertemplates", short=("pct",), **_FACTS)
class ProxmoxClusterTemplateV1Alpha1(Object, frozen=True, kw_only=True):
    """A ProxmoxClusterTemplate of CAPMOX v1alpha1."""

    spec: ProxmoxClusterTemplateSpecV1Alpha1 = field(
        default_factory=ProxmoxClusterTemplateSpecV1Alpha1
    )


@kind(
    name="ProxmoxMachine",
    plural="proxmoxmachines",
    short=("moxm",),
    status=True,
    columns=(_READY,),
    **_FACTS,
)
class ProxmoxMachineV1Alpha1(Object, frozen=True, kw_only=True):
    """A ProxmoxMachine of CAPMOX v1alpha1."""

    spec: ProxmoxMachineSpecV1Alpha1 = field(default_factory=ProxmoxMachineSpecV1Alpha1)
    status: ProxmoxMachineStatusV1Alpha1 = field(default_factory=ProxmoxMachineStatusV1Alpha1)


class ProxmoxMachineTemplateResourceV1Alpha1(Value, frozen=True, kw_only=True):
    """The metadata and spec of machines created from the template, in v1alpha1."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: ProxmoxMachineSpecV1Alpha1 = field(default_factory=ProxmoxMachineSpecV1Alpha1)


class ProxmoxMachineTemplateSpecV1Alpha1(Value, frozen=True, kw_only=True):
    """The desired state of a ProxmoxMachineTemplate, in v1alpha1."""

    template: ProxmoxMachineTemplateResourceV1Alpha1 = field(
        default_factory=ProxmoxMachineTemplateResourceV1Alpha1
    )


class ProxmoxMachineTemplateStatusV1Alpha1(Value, frozen=True, kw_only=True):
    """The capacity that an autoscaler needs to scale from zero, in v1alpha1."""

    capacity: Mapping[str, str] = field(default_factory=dict)


@kind(
    name="ProxmoxMachineTemplate",
    plural="proxmoxmachinetemplates",
    short=("pmt",),
    status=True,
    **_FACTS,
)
class ProxmoxMachineTemplateV1Alpha1(Object, frozen=True, kw_only=True):
    """A ProxmoxMachineTemplate of CAPMOX v1alpha1."""

    spec: ProxmoxMachineTemplateSpecV1Alpha1 = field(
        default_factory=ProxmoxMachineTemplateSpecV1Alpha1
    )
    status: ProxmoxMachineTemplateStatusV1Alpha1 = field(
        default_factory=ProxmoxMachineTemplateStatusV1Alpha1
    )


KINDS = (
    ProxmoxClusterV1Alpha1,
    ProxmoxClusterTemplateV1Alpha1,
    ProxmoxMachineV1Alpha1,
    ProxmoxMachineTemplateV1Alpha1,
)
