"""
Kubernetes and Tenant of ``apps.cozystack.io``: tenant clusters and tenants.

Node groups are a list of named groups with ``replicas`` (the short form) or as
CozyStack's map from name to group with ``minReplicas`` and ``maxReplicas``. A structural schema
cannot state "list or map", so the CRD leaves the field open and ``groups`` decodes either; an
invalid value is an error message for users.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from moxwell.api.conditions import Condition
from moxwell.api.kinds import Column, Object, kind
from moxwell.api.meta import Value
from moxwell.api.unknown_fields import items_of
from moxwell.errors import Invalid

GROUP = "apps.cozystack.io"
VERSION = "v1alpha1"
AGE = Column("Age", ".metadata.creationTimestamp", "date")
READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')
QuantityText = str | int


class InvalidNodeGroups(Invalid):
    """The node groups cannot be decoded."""

    reason = "InvalidNodeGroups"


class NodeGroupResources(Value, frozen=True, kw_only=True):
    """CPU and memory of a node."""

    cpu: QuantityText | None = None
    memory: QuantityText | None = None


class Gpu(Value, frozen=True, kw_only=True):
    name: str


class NodeGroupKubelet(Value, frozen=True, kw_only=True):
    """Resources that the kubelet of each node reserves."""

    system_reserved_memory: str = field(name="systemReservedMemory", default="")
    system_reserved_cpu: str = field(name="systemReservedCpu", default="")
    kube_reserved_memory: str = field(name="kubeReservedMemory", default="")
    kube_reserved_cpu: str = field(name="kubeReservedCpu", default="")
    eviction_hard_memory: str = field(name="evictionHardMemory", default="")
    eviction_soft_memory: str = field(name="evictionSoftMemory", default="")


class NodeGroup(Value, frozen=True, kw_only=True):
    """A group of nodes with the same configuration: a fixed number, or autoscaled within bounds."""

    name: str = ""
    replicas: int | None = None
    min_replicas: int | None = field(name="minReplicas", default=None)
    max_replicas: int | None = field(name="maxReplicas", default=None)
    instance_type: str = field(name="instanceType", default="")
    disk_size: QuantityText | None = field(name="diskSize", default=None)
    storage_class: str = field(name="storageClass", default="")
    roles: tuple[str, ...] = ()
    resources: NodeGroupResources = field(default_factory=NodeGroupResources)
    gpus: tuple[Gpu, ...] = ()
    kubelet: NodeGroupKubelet = field(default_factory=NodeGroupKubelet)
    max_unhealthy: int | str | None = field(name="maxUnhealthy", default=None)
    node_startup_timeout: str = field(name="nodeStartupTimeout", default="")
    # extensions by Moxwell: placement on Proxmox and the template
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    template: int | str | None = None
    template_tags: tuple[str, ...] = field(name="templateTags", default=())
    storage: str = ""
    bridge: str = ""
    vlan: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    version: str = ""
    os: Literal["", "talos"] = ""  # bootstrapped by kubeadm unless it is Talos

    @property
    def autoscaled(self) -> bool:
        """Report whether an autoscaler decides the number of nodes."""
        return self.replicas is None and self.max_replicas is not None


class KubernetesControlPlane(Value, frozen=True, kw_only=True):
    """The hosted control plane of a tenant cluster."""

    replicas: int | None = None
    api_server: Mapping[str, Any] = field(name="apiServer", default_factory=dict)
    controller_manager: Mapping[str, Any] = field(name="controllerManager", default_factory=dict)
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    konnectivity: Mapping[str, Any] = field(default_factory=dict)
    data_store: str = field(name="dataStore", default="")


class NodeAddressRanges(Value, frozen=True, kw_only=True):
    """Addresses that nodes get."""

    addresses: tuple[str, ...] = ()
    prefix: int | None = None
    gateway: str = ""
    dns_servers: tuple[str, ...] = field(name="dnsServers", default=())
    pool: str = ""


class NodeHealthCheck(Value, frozen=True, kw_only=True):
    """When a node counts as unhealthy."""

    max_unhealthy: int | str | None = field(name="maxUnhealthy", default=None)
    node_startup_timeout: str = field(name="nodeStartupTimeout", default="")
    ready_unknown_timeout: str = field(name="readyUnknownTimeout", default="")
    ready_false_timeout: str = field(name="readyFalseTimeout", default="")


class CredentialsRef(Value, frozen=True, kw_only=True):
    """A Secret in the management cluster with Proxmox credentials."""

    name: str
    namespace: str = ""


class KubernetesSpec(Value, frozen=True, kw_only=True):
    """The desired state of a tenant cluster."""

    version: str = ""
    replicas: Annotated[int, Meta(ge=0)] | None = None
    host: str = ""
    storage_class: str = field(name="storageClass", default="")
    node_groups: Annotated[Any, items_of(NodeGroup)] = field(name="nodeGroups", default=None)
    control_plane: KubernetesControlPlane = field(
        name="controlPlane", default_factory=KubernetesControlPlane
    )
    addons: Mapping[str, Any] = field(default_factory=dict)
    node_health_check: NodeHealthCheck | None = field(name="nodeHealthCheck", default=None)
    max_node_provision_time: str = field(name="maxNodeProvisionTime", default="")
    regions: tuple[str, ...] = ()
    network: NodeAddressRanges = field(default_factory=NodeAddressRanges)
    credentials_ref: CredentialsRef | None = field(name="credentialsRef", default=None)

    @property
    def groups(self) -> tuple[NodeGroup, ...]:
        """The decoded node groups."""
        return read_groups(self.node_groups)


class GroupStatus(Value, frozen=True, kw_only=True):
    """Counts of the nodes of one group."""

    name: str
    replicas: int = 0
    ready: int = 0
    desired: int | None = None


class KubernetesStatus(Value, frozen=True, kw_only=True):
    """The observed state of a tenant cluster."""

    conditions: tuple[Condition, ...] = ()
    phase: str = ""
    version: str = ""
    endpoint: str = ""
    kubeconfig_secret: str = field(name="kubeconfigSecret", default="")
    groups: tuple[GroupStatus, ...] = ()
    replicas: int = 0
    ready_replicas: int = field(name="readyReplicas", default=0)
    node_versions: tuple[str, ...] = field(name="nodeVersions", default=())  # without groups' own
    observed_generation: int = field(name="observedGeneration", default=0)


@kind(
    group=GROUP,
    version=VERSION,
    plural="kuberneteses",
    short=("k8s",),
    categories=("cozystack",),
    status=True,
    open=True,
    columns=(
        READY,
        Column("Version", ".status.version"),
        Column("Nodes", ".status.replicas", "integer"),
        Column("Nodes ready", ".status.readyReplicas", "integer"),
        Column("Endpoint", ".status.endpoint", priority=1),
        AGE,
    ),
)
class Kubernetes(Object, frozen=True, kw_only=True):
    """A tenant's Kubernetes cluster."""

    spec: KubernetesSpec = field(default_factory=KubernetesSpec)
    status: KubernetesStatus = field(default_factory=KubernetesStatus)


class TenantFirewallRule(Value, frozen=True, kw_only=True):
    """Traffic that a tenant's nodes accept: from networks, to ports."""

    sources: tuple[str, ...] = field(name="from", default=())  # empty: from everywhere
    protocol: str = "tcp"
    ports: str = ""  # 443, 80,443 or 30000:32767; empty: all


class TenantVnet(Value, frozen=True, kw_only=True):
    """The SDN VNet of a tenant, in a zone that exists; its type is that of the zone."""

    zone: Annotated[str, Meta(min_length=1, max_length=8)]
    tag: Annotated[int, Meta(ge=1, le=16777215)] | None = None  # VLAN tag or VXLAN id
    subnet: str = ""
    gateway: str = ""
    snat: bool = False
    dhcp: bool = False  # Proxmox assigns the addresses of the ranges


class TenantNetwork(Value, frozen=True, kw_only=True):
    """The network of a tenant's nodes: firewall, bridge, VLAN or VNet, and addresses."""

    allow_from: tuple[str, ...] = field(name="allowFrom", default=())  # empty: no firewall rules
    firewall_rules: tuple[TenantFirewallRule, ...] = field(name="rules", default=())
    bridge: str = ""  # a bridge or VNet for clusters that name none
    vlan: Annotated[int, Meta(ge=1, le=4094)] | None = None
    vnet: TenantVnet | None = None
    ranges: tuple[str, ...] = ()  # addresses of nodes, such as 10.1.0.10-10.1.0.99
    prefix: int | None = None
    gateway: str = ""


class TenantProxmox(Value, frozen=True, kw_only=True):
    """What a tenant has for itself in every region of Proxmox."""

    pool: bool = False  # a resource pool for its guests
    token: bool = False  # an API token with rights on that pool only


class TenantSpec(Value, frozen=True, kw_only=True):
    """The desired state of a tenant: a namespace with a resource quota."""

    host: str = ""
    etcd: bool = False
    monitoring: bool = False
    ingress: bool = False
    gateway: bool = False
    seaweedfs: bool = False
    scheduling_class: str = field(name="schedulingClass", default="")
    network: TenantNetwork = field(default_factory=TenantNetwork)
    proxmox: TenantProxmox = field(default_factory=TenantProxmox)
    resource_quotas: Mapping[str, QuantityText] = field(name="resourceQuotas", default_factory=dict)


class TenantStatus(Value, frozen=True, kw_only=True):
    """The observed state of a tenant."""

    conditions: tuple[Condition, ...] = ()
    namespace: str = ""
    observed_generation: int = field(name="observedGeneration", default=0)


@kind(
    group=GROUP,
    version=VERSION,
    plural="tenants",
    categories=("cozystack",),
    status=True,
    open=True,
    columns=(READY, Column("Namespace", ".status.namespace"), AGE),
)
class Tenant(Object, frozen=True, kw_only=True):
    """A tenant: a namespace with a resource quota."""

    spec: TenantSpec = field(default_factory=TenantSpec)
    status: TenantStatus = field(default_factory=TenantStatus)


def _read_group(row: Any, number: int) -> NodeGroup:
    try:
        return msgspec.convert(row, NodeGroup)
    except msgspec.ValidationError as error:
        said, _, path = str(error).partition(" - at `$")
        name = row.get("name", number) if isinstance(row, Mapping) else number
        raise InvalidNodeGroups(f"spec.nodeGroups[{name}]{path.rstrip('`')}: {said}") from error


def read_groups(value: Any) -> tuple[NodeGroup, ...]:
    """Decode node groups from a list or a map; every group needs a unique name."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        rows = [{"name": name, **(group or {})} for name, group in value.items()]
    elif isinstance(value, list | tuple):
        rows = list(value)
    else:
        raise InvalidNodeGroups("spec.nodeGroups must be a list of groups or a map by name")
    groups = tuple(_read_group(row, number) for number, row in enumerate(rows))
    names = [group.name for group in groups]
    for number, name in enumerate(names):
        if not name:
            raise InvalidNodeGroups(f"spec.nodeGroups[{number}].name is missing")
        if name in names[:number]:
            raise InvalidNodeGroups(f"spec.nodeGroups[{number}].name: {name} is there twice")
    return groups


KINDS: tuple[type[Object], ...] = (Kubernetes, Tenant)
