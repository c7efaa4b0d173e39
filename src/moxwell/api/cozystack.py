"""
``apps.cozystack.io``: tenant clusters and tenants, in the short form and in CozyStack's.

A ``Kubernetes`` has its node groups as a list of named groups with ``replicas`` (the short form),
or as a map from name to group with ``minReplicas`` and ``maxReplicas``. No structural schema says
"list or map", so the field is open in the CRD and ``groups`` reads either; what cannot be read is a
sentence for a person.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from moxwell.api.conditions import Condition
from moxwell.api.kinds import Column, Object, kind
from moxwell.api.meta import Value
from moxwell.errors import Invalid

GROUP = "apps.cozystack.io"
VERSION = "v1alpha1"
AGE = Column("Age", ".metadata.creationTimestamp", "date")
READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')
QuantityText = str | int


class InvalidNodeGroups(Invalid):
    """Node groups that cannot be read."""

    reason = "InvalidNodeGroups"


class NodeGroupResources(Value, frozen=True, kw_only=True):
    """How much of each."""

    cpu: QuantityText | None = None
    memory: QuantityText | None = None


class Gpu(Value, frozen=True, kw_only=True):
    name: str


class NodeGroupKubelet(Value, frozen=True, kw_only=True):
    """What each node keeps for itself."""

    system_reserved_memory: str = field(name="systemReservedMemory", default="")
    system_reserved_cpu: str = field(name="systemReservedCpu", default="")
    kube_reserved_memory: str = field(name="kubeReservedMemory", default="")
    kube_reserved_cpu: str = field(name="kubeReservedCpu", default="")
    eviction_hard_memory: str = field(name="evictionHardMemory", default="")
    eviction_soft_memory: str = field(name="evictionSoftMemory", default="")


class NodeGroup(Value, frozen=True, kw_only=True):
    """Equal nodes; a fixed number of them, or as many as are needed within bounds."""

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
    # beyond both forms: where on Proxmox, and from what
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

    @property
    def autoscaled(self) -> bool:
        """Somebody else decides how many."""
        return self.replicas is None and self.max_replicas is not None


class KubernetesControlPlane(Value, frozen=True, kw_only=True):
    """The hosted control plane."""

    replicas: int | None = None
    api_server: Mapping[str, Any] = field(name="apiServer", default_factory=dict)
    controller_manager: Mapping[str, Any] = field(name="controllerManager", default_factory=dict)
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    konnectivity: Mapping[str, Any] = field(default_factory=dict)
    data_store: str = field(name="dataStore", default="")


class NodeAddressRanges(Value, frozen=True, kw_only=True):
    """Addresses for nodes."""

    addresses: tuple[str, ...] = ()
    prefix: int | None = None
    gateway: str = ""
    dns_servers: tuple[str, ...] = field(name="dnsServers", default=())
    pool: str = ""


class NodeHealthCheck(Value, frozen=True, kw_only=True):
    """When a node counts as broken."""

    max_unhealthy: int | str | None = field(name="maxUnhealthy", default=None)
    node_startup_timeout: str = field(name="nodeStartupTimeout", default="")
    ready_unknown_timeout: str = field(name="readyUnknownTimeout", default="")
    ready_false_timeout: str = field(name="readyFalseTimeout", default="")


class CredentialsRef(Value, frozen=True, kw_only=True):
    """A Secret with Proxmox credentials, on the management side only."""

    name: str
    namespace: str = ""


class KubernetesSpec(Value, frozen=True, kw_only=True):
    """A tenant's Kubernetes cluster."""

    version: str = ""
    replicas: Annotated[int, Meta(ge=0)] | None = None
    host: str = ""
    storage_class: str = field(name="storageClass", default="")
    node_groups: Any = field(name="nodeGroups", default=None)
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
        """The node groups, whichever way they are written."""
        return read_groups(self.node_groups)


class GroupStatus(Value, frozen=True, kw_only=True):
    """Nodes counted."""

    name: str
    replicas: int = 0
    ready: int = 0
    desired: int | None = None


class KubernetesStatus(Value, frozen=True, kw_only=True):
    """What is seen of a tenant cluster."""

    conditions: tuple[Condition, ...] = ()
    phase: str = ""
    version: str = ""
    endpoint: str = ""
    kubeconfig_secret: str = field(name="kubeconfigSecret", default="")
    groups: tuple[GroupStatus, ...] = ()
    replicas: int = 0
    ready_replicas: int = field(name="readyReplicas", default=0)
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


class TenantNetwork(Value, frozen=True, kw_only=True):
    """Who reaches the nodes of a tenant, and by which bridge they are connected."""

    allow_from: tuple[str, ...] = field(name="allowFrom", default=())  # none: no wall is built
    bridge: str = ""  # or a VNet; for clusters that name none


class TenantSpec(Value, frozen=True, kw_only=True):
    """A tenant: a namespace of its own with a quota."""

    host: str = ""
    etcd: bool = False
    monitoring: bool = False
    ingress: bool = False
    gateway: bool = False
    seaweedfs: bool = False
    scheduling_class: str = field(name="schedulingClass", default="")
    network: TenantNetwork = field(default_factory=TenantNetwork)
    resource_quotas: Mapping[str, QuantityText] = field(name="resourceQuotas", default_factory=dict)


class TenantStatus(Value, frozen=True, kw_only=True):
    """What is seen of a tenant."""

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
    """A tenant."""

    spec: TenantSpec = field(default_factory=TenantSpec)
    status: TenantStatus = field(default_factory=TenantStatus)


def read_groups(written: Any) -> tuple[NodeGroup, ...]:
    """Node groups from a list or a map, each with a name of its own."""
    if written is None:
        return ()
    if isinstance(written, Mapping):
        rows = [{"name": name, **(group or {})} for name, group in written.items()]
    elif isinstance(written, list | tuple):
        rows = list(written)
    else:
        raise InvalidNodeGroups("spec.nodeGroups must be a list of groups or a map by name")
    try:
        groups = tuple(msgspec.convert(row, NodeGroup) for row in rows)
    except msgspec.ValidationError as error:
        raise InvalidNodeGroups(f"spec.nodeGroups cannot be read: {error}") from error
    names = [group.name for group in groups]
    if "" in names or len(set(names)) < len(names):
        raise InvalidNodeGroups("every group in spec.nodeGroups needs a name of its own")
    return groups


KINDS: tuple[type[Object], ...] = (Kubernetes, Tenant)
