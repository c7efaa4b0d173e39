"""
The data that templates of a node class see: ``.Metadata``, ``.Network``, ``.Resources``,
``.Kubernetes`` and ``.Values``. Names and YAML tags are those of karpenter-provider-proxmox.
"""

from dataclasses import dataclass
from typing import ClassVar

from moxwell.bootstrap.go_templates.values import (
    SizedInt,
    StringMap,
    Strings,
    go_field,
    optional_field,
)


def _int64(value: int = 0) -> SizedInt:
    return SizedInt(value, "int64")


@dataclass(frozen=True, kw_only=True)
class NodeMetadata:
    """The identity of the node; root of the templates meta-data and vendor-data."""

    go_type: ClassVar[str] = "cloudinit.MetaData"

    hostname: str = go_field("Hostname")
    instance_id: str = go_field("InstanceID")
    instance_uuid: str = go_field("InstanceUUID")
    instance_type: str = go_field("InstanceType")
    provider_id: str = go_field("ProviderID")
    region: str = go_field("Region")
    zone: str = go_field("Zone")
    tags: Strings = go_field("Tags", default=Strings)
    node_class: str = go_field("NodeClass")


@dataclass(frozen=True, kw_only=True)
class NodeInterface:
    """A network interface of the guest, with the addresses of the host's bridge."""

    go_type: ClassVar[str] = "cloudinit.InterfaceConfig"

    name: str = go_field("Name")
    mac: str = go_field("MacAddr", yaml="mac_address", omit_empty=True)
    dhcp4: bool = go_field("DHCPv4", yaml="dhcp4", omit_empty=True, default=False)
    dhcp6: bool = go_field("DHCPv6", yaml="dhcp6", omit_empty=True, default=False)
    slaac: bool = go_field("SLAAC", omit_empty=True, default=False)
    address4: Strings = go_field("Address4", yaml="addresses4", omit_empty=True, default=Strings)
    address6: Strings = go_field("Address6", yaml="addresses6", omit_empty=True, default=Strings)
    gateway4: str = go_field("Gateway4", omit_empty=True)
    gateway6: str = go_field("Gateway6", omit_empty=True)
    mtu: SizedInt = go_field("MTU", omit_empty=True, default=SizedInt(0, "uint32"))
    node_address4: str = go_field("NodeAddress4", yaml="node_address4", omit_empty=True)
    node_address6: str = go_field("NodeAddress6", yaml="node_address6", omit_empty=True)
    node_gateway4: str = go_field("NodeGateway4", yaml="node_gateway4", omit_empty=True)
    node_gateway6: str = go_field("NodeGateway6", yaml="node_gateway6", omit_empty=True)


@dataclass(frozen=True, kw_only=True)
class NodeNetwork:
    """The network of the guest; root of the template network-config."""

    go_type: ClassVar[str] = "cloudinit.NetworkConfig"

    interfaces: tuple[NodeInterface, ...] = go_field("Interfaces", default=())
    search_domains: Strings = go_field(
        "SearchDomains", yaml="search_domains", omit_empty=True, default=Strings
    )
    name_servers: Strings = go_field(
        "NameServers", yaml="name_servers", omit_empty=True, default=Strings
    )


@dataclass(frozen=True, kw_only=True)
class NodeResources:
    """The size of the guest; memory in bytes, hugepages in pages."""

    go_type: ClassVar[str] = "instance.Resources"

    cpu: SizedInt = go_field("CPU", omit_empty=True, default=_int64())
    memory: SizedInt = go_field("Memory", omit_empty=True, default=_int64())
    hugepages_1gi: int = go_field("Hugepages1Gi", yaml="hugepages1Gi", omit_empty=True, default=0)
    hugepages_2mi: int = go_field("Hugepages2Mi", yaml="hugepages2Mi", omit_empty=True, default=0)


@dataclass(frozen=True, kw_only=True)
class KubeletTaint:
    """A taint with which the kubelet registers."""

    go_type: ClassVar[str] = "instance.KubernetesTaint"

    key: str = go_field("Key", omit_empty=True)
    value: str = go_field("Value", omit_empty=True)
    effect: str = go_field("Effect", omit_empty=True)


@dataclass(frozen=True, kw_only=True)
class KubeletSettings:
    """The kubelet's configuration as far as node classes and instance types set it."""

    go_type: ClassVar[str] = "instance.KubeletConfiguration"

    cpu_manager_policy: str = optional_field("CPUManagerPolicy", "cpuManagerPolicy")
    cpu_cfs_quota: bool | None = optional_field("CPUCFSQuota", "cpuCFSQuota", None)
    cpu_cfs_quota_period: str = optional_field("CPUCFSQuotaPeriod", "cpuCFSQuotaPeriod")
    topology_manager_policy: str = optional_field("TopologyManagerPolicy", "topologyManagerPolicy")
    topology_manager_scope: str = optional_field("TopologyManagerScope", "topologyManagerScope")
    image_gc_high_threshold_percent: SizedInt | None = optional_field(
        "ImageGCHighThresholdPercent", "imageGCHighThresholdPercent", None
    )
    image_gc_low_threshold_percent: SizedInt | None = optional_field(
        "ImageGCLowThresholdPercent", "imageGCLowThresholdPercent", None
    )
    shutdown_grace_period: str = optional_field("ShutdownGracePeriod", "shutdownGracePeriod")
    allowed_unsafe_sysctls: Strings = optional_field(
        "AllowedUnsafeSysctls", "allowedUnsafeSysctls", Strings
    )
    cluster_dns: Strings = optional_field("ClusterDNS", "clusterDNS", Strings)
    max_pods: SizedInt | None = optional_field("MaxPods", "maxPods", None)
    provider_id: str = optional_field("ProviderID", "providerID")
    fail_swap_on: bool | None = optional_field("FailSwapOn", "failSwapOn", None)
    system_reserved: StringMap = optional_field("SystemReserved", "systemReserved", StringMap)
    kube_reserved: StringMap = optional_field("KubeReserved", "kubeReserved", StringMap)
    eviction_hard: StringMap = optional_field("EvictionHard", "evictionHard", StringMap)
    register_with_taints: tuple[KubeletTaint, ...] = optional_field(
        "RegisterWithTaints", "registerWithTaints", ()
    )


@dataclass(frozen=True, kw_only=True)
class NodeKubernetes:
    """The cluster that the node joins."""

    go_type: ClassVar[str] = "instance.Kubernetes"

    version: str = go_field("Version")
    root_ca: str = go_field("RootCA")
    bootstrap_token: str = go_field("BootstrapToken")
    kubelet_configuration: KubeletSettings = go_field(
        "KubeletConfiguration", default=KubeletSettings
    )


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """Everything; root of the template user-data."""

    go_type: ClassVar[str] = "instance.UserDataValues"

    metadata: NodeMetadata = go_field("Metadata", default=NodeMetadata)
    network: NodeNetwork = go_field("Network", default=NodeNetwork)
    resources: NodeResources = go_field("Resources", default=NodeResources)
    kubernetes: NodeKubernetes = go_field("Kubernetes", default=NodeKubernetes)
    values: StringMap = go_field("Values", default=StringMap)
