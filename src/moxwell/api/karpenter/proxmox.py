"""
ProxmoxNodeClass of karpenter-provider-proxmox: how the guests of a NodePool are made.

Fields, defaults and bounds are those of the provider's CRD, so that its manifests apply unchanged.
"""

from typing import Annotated, Literal

from msgspec import Meta, field

from moxwell.api.conditions import Condition
from moxwell.api.karpenter.fields import AGE, READY, Resources, validated
from moxwell.api.kinds import Column, Object, kind
from moxwell.api.meta import Value

PROVIDER_GROUP = "karpenter.proxmox.sinextra.dev"
PROVIDER_VERSION = "v1alpha1"
POOL_NAME = r"^[a-zA-Z0-9][a-zA-Z0-9._-]*(/[a-zA-Z0-9][a-zA-Z0-9._-]*){0,2}$"
ZONES = Column("Zones", ".status.resources.zones")
GuestTags = Annotated[tuple[str, ...], Meta(max_length=10)]
ResourcePoolName = Annotated[str, Meta(max_length=64, pattern=POOL_NAME)]
Percentage = Annotated[int, Meta(ge=0, le=100)]


class PlacementStrategy(Value, frozen=True, kw_only=True):
    """How guests are spread over hosts: by load, or at random."""

    zone_balance: Literal["Balanced", "AvailabilityFirst"] = field(
        name="zoneBalance", default="Balanced"
    )


class InstanceTemplateRef(Value, frozen=True, kw_only=True):
    """The template from which guests are cloned."""

    kind: Literal["ProxmoxTemplate", "ProxmoxUnmanagedTemplate"]
    name: Annotated[str, Meta(min_length=1)]


class NodeKubeletConfiguration(Value, frozen=True, kw_only=True):
    """Settings of the kubelet; what is not set keeps the kubelet's default."""

    cpu_manager_policy: Literal["none", "static"] | None = field(
        name="cpuManagerPolicy", default=None
    )
    cpu_cfs_quota: bool | None = field(name="cpuCFSQuota", default=None)
    cpu_cfs_quota_period: str | None = field(name="cpuCFSQuotaPeriod", default=None)
    topology_manager_policy: (
        Literal["restricted", "best-effort", "none", "single-numa-node"] | None
    ) = field(name="topologyManagerPolicy", default=None)
    topology_manager_scope: Literal["container", "pod"] | None = field(
        name="topologyManagerScope", default=None
    )
    image_gc_high_threshold_percent: Percentage | None = field(
        name="imageGCHighThresholdPercent", default=None
    )
    image_gc_low_threshold_percent: Percentage | None = field(
        name="imageGCLowThresholdPercent", default=None
    )
    shutdown_grace_period: str | None = field(name="shutdownGracePeriod", default=None)
    allowed_unsafe_sysctls: tuple[str, ...] = field(name="allowedUnsafeSysctls", default=())
    cluster_dns: Annotated[tuple[str, ...], Meta(max_length=3)] = field(
        name="clusterDNS", default=()
    )
    max_pods: Annotated[int, Meta(ge=10, le=250)] | None = field(name="maxPods", default=None)
    fail_swap_on: bool | None = field(name="failSwapOn", default=None)


class BootDevice(Value, frozen=True, kw_only=True):
    """The size and storage of the boot disk."""

    size: Annotated[str, Meta(pattern=r"^\d+(T|G|Ti|Gi)$")] = "30G"
    storage: Annotated[str, Meta(max_length=30)] = ""


class SecretReference(Value, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""


class MetadataOptions(Value, frozen=True, kw_only=True):
    """How a guest gets its user data: none, or a CD-ROM made from templates in a Secret."""

    type: Literal["none", "cdrom"] = "none"
    templates_ref: SecretReference | None = field(name="templatesRef", default=None)
    values_ref: SecretReference | None = field(name="valuesRef", default=None)


class GuestSecurityGroup(Value, frozen=True, kw_only=True):
    """A security group of the Proxmox firewall on one network device."""

    interface: Annotated[str, Meta(pattern="net[0-9]+")] = "net0"
    name: Annotated[str, Meta(max_length=30)]


class ProxmoxNodeClassSpec(Value, frozen=True, kw_only=True):
    """The desired state of a ProxmoxNodeClass."""

    region: Annotated[str, Meta(min_length=1)] | None = None
    placement_strategy: Annotated[
        PlacementStrategy, validated(default={"zoneBalance": "Balanced"})
    ] = field(name="placementStrategy", default=PlacementStrategy())
    instance_template_ref: InstanceTemplateRef = field(name="instanceTemplateRef")
    kubelet_configuration: NodeKubeletConfiguration | None = field(
        name="kubeletConfiguration", default=None
    )
    boot_device: Annotated[BootDevice, validated(default={"size": "30G"})] = field(
        name="bootDevice", default=BootDevice()
    )
    tags: GuestTags = ()
    metadata_options: Annotated[MetadataOptions, validated(default={"type": "none"})] = field(
        name="metadataOptions", default=MetadataOptions()
    )
    security_groups: Annotated[tuple[GuestSecurityGroup, ...], Meta(max_length=10)] = field(
        name="securityGroups", default=()
    )
    resource_pool: ResourcePoolName | None = field(name="resourcePool", default=None)


class ProxmoxNodeClassStatus(Value, frozen=True, kw_only=True):
    """The observed state of a ProxmoxNodeClass; a zone is ``region/host/VMID of the template``."""

    conditions: tuple[Condition, ...] = ()
    resources: Resources = field(default_factory=dict)
    selected_zones: tuple[str, ...] = field(name="selectedZones", default=())


@kind(
    group=PROVIDER_GROUP,
    version=PROVIDER_VERSION,
    plural="proxmoxnodeclasses",
    scope="Cluster",
    categories=("karpenter",),
    status=True,
    columns=(
        ZONES,
        Column("Balance", ".spec.placementStrategy.zoneBalance"),
        Column("Template", ".spec.instanceTemplateRef.name"),
        Column("Metadata", ".spec.metadataOptions.type"),
        Column("Disk", ".spec.bootDevice.size"),
        READY,
        AGE,
    ),
)
class ProxmoxNodeClass(Object, frozen=True, kw_only=True):
    """How the guests of NodePools are made in Proxmox."""

    spec: ProxmoxNodeClassSpec
    status: ProxmoxNodeClassStatus = field(default_factory=ProxmoxNodeClassStatus)


KINDS = (ProxmoxNodeClass,)
