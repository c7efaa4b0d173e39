"""
ProxmoxCluster and ProxmoxClusterTemplate in the hub version v1beta2.

A zone is a failure domain: a region and some of its hosts, with their storage, bridge, address
pools and template. A cluster without zones uses one region, which must be named unless only one is
configured. There is no fallback to another region.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from moxwell.api.capi.shared import FailureDomain
from moxwell.api.conditions import Condition
from moxwell.api.infra.machine import CONTRACT, GROUP, HUB, Initialization
from moxwell.api.infra.network import IPConfig, PoolRef, Vlan, ZoneName
from moxwell.api.infra.template import TemplateSelector, VmidRangeSpec
from moxwell.api.kinds import Column, Object, ValidationRule, kind
from moxwell.api.meta import TemplateMeta, Value
from moxwell.api.schema import keyed, unique

ProviderIDFormat = Literal["RegionVMID", "UUID"]


class ControlPlaneEndpoint(Value, frozen=True, kw_only=True):
    """The endpoint of the workload cluster's API server."""

    host: Annotated[str, Meta(max_length=512)] = ""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0


class SecretRef(Value, frozen=True, kw_only=True):
    """
    A Secret with the keys ``url``, ``token`` and ``secret``; the namespace defaults to the
    cluster's.
    """

    name: Annotated[str, Meta(min_length=1)]
    namespace: str = ""


class SchedulerHints(Value, frozen=True, kw_only=True):
    """How much of a host's capacity can be allocated, in percent; 0 disables the check."""

    memory_adjustment: Annotated[int, Meta(ge=0)] | None = field(
        name="memoryAdjustment", default=None
    )
    cpu_adjustment: Annotated[int, Meta(ge=0)] | None = field(name="cpuAdjustment", default=None)
    storage_adjustment: Annotated[int, Meta(ge=0)] | None = field(
        name="storageAdjustment", default=None
    )


class RegionSpec(Value, frozen=True, kw_only=True):
    """A Proxmox cluster that only this cluster uses, with its own credentials."""

    name: ZoneName
    credentials_ref: SecretRef = field(name="credentialsRef")


class TemplateSource(Value, frozen=True, kw_only=True):
    """The template of a zone, for machines that name none or name a template of another zone."""

    source_node: str | None = field(name="sourceNode", default=None)
    template_id: Annotated[int, Meta(ge=100)] | None = field(name="templateID", default=None)
    template_name: str | None = field(name="templateName", default=None)
    template_selector: TemplateSelector | None = field(name="templateSelector", default=None)


class ZoneConfig(Value, frozen=True, kw_only=True):
    """A failure domain: a region, some of its hosts and their defaults."""

    zone: ZoneName
    region: str | None = None
    nodes: tuple[str, ...] = ()  # empty: all hosts of the region
    on_request: bool | None = field(name="onRequest", default=None)  # for machines that name it
    control_plane: bool | None = field(name="controlPlane", default=None)
    storage: str | None = None
    iso_storage: str | None = field(name="isoStorage", default=None)
    bridge: str | None = None
    vlan: Vlan | None = None
    template: TemplateSource | None = None
    ip_pool_ref: tuple[PoolRef, ...] = field(name="ipPoolRef", default=())
    ipv4_config: IPConfig | None = field(name="ipv4Config", default=None)
    ipv6_config: IPConfig | None = field(name="ipv6Config", default=None)
    dns_servers: tuple[str, ...] = field(name="dnsServers", default=())


class ProxmoxClusterSpec(Value, frozen=True, kw_only=True):
    """The desired state of a ProxmoxCluster."""

    control_plane_endpoint: ControlPlaneEndpoint | None = field(
        name="controlPlaneEndpoint", default=None
    )
    control_plane_endpoint_pool: PoolRef | None = field(
        name="controlPlaneEndpointPool", default=None
    )
    external_managed_control_plane: bool | None = field(
        name="externalManagedControlPlane", default=None
    )
    region: str | None = None
    server: str | None = None  # the region whose API address has this host name
    regions: Annotated[tuple[RegionSpec, ...], keyed("name")] = ()
    credentials_ref: SecretRef | None = field(name="credentialsRef", default=None)
    zone_config: Annotated[tuple[ZoneConfig, ...], keyed("zone")] = field(
        name="zoneConfig", default=()
    )
    allowed_nodes: Annotated[tuple[str, ...], unique()] = field(name="allowedNodes", default=())
    scheduler_hints: SchedulerHints | None = field(name="schedulerHints", default=None)
    ipv4_config: IPConfig | None = field(name="ipv4Config", default=None)
    ipv6_config: IPConfig | None = field(name="ipv6Config", default=None)
    ip_pool_ref: tuple[PoolRef, ...] = field(name="ipPoolRef", default=())
    dns_servers: tuple[str, ...] = field(name="dnsServers", default=())
    vm_id_range: VmidRangeSpec | None = field(name="vmIDRange", default=None)
    pool: str | None = None
    provider_id_format: ProviderIDFormat | None = field(name="providerIDFormat", default=None)

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "!has(self.controlPlaneEndpoint) || !has(self.controlPlaneEndpoint.host) || "
            "self.controlPlaneEndpoint.host == '' || "
            "(has(self.controlPlaneEndpoint.port) && self.controlPlaneEndpoint.port > 0)",
            "an endpoint with a host needs a port between 1 and 65535",
            lambda self, old: (
                not (
                    self.control_plane_endpoint
                    and self.control_plane_endpoint.host
                    and not self.control_plane_endpoint.port
                )
            ),
            ".controlPlaneEndpoint",
        ),
        ValidationRule(
            "[has(self.region), has(self.server), has(self.credentialsRef)]"
            ".filter(x, x).size() <= 1 || !has(self.server)",
            "server selects a configured region by its address: omit region and credentialsRef",
            lambda self, old: (
                self.server is None or (self.region is None and self.credentials_ref is None)
            ),
            ".server",
        ),
    )


class LocalRef(Value, frozen=True, kw_only=True):
    """A reference to an object in the same namespace."""

    name: str


class ZoneRef(Value, frozen=True, kw_only=True):
    """The address pools of one zone."""

    zone: str = "default"
    v4: LocalRef | None = field(name="inClusterIPPoolRefV4", default=None)
    v6: LocalRef | None = field(name="inClusterIPPoolRefV6", default=None)


class RegionHealth(Value, frozen=True, kw_only=True):
    """The last observed state of one Proxmox cluster."""

    name: str
    available: bool
    message: str = ""
    version: str = ""
    hosts: int = 0
    hosts_online: int = field(name="hostsOnline", default=0)


class ProxmoxClusterStatus(Value, frozen=True, kw_only=True):
    """The observed state of a ProxmoxCluster."""

    conditions: tuple[Condition, ...] = ()
    initialization: Initialization = field(default_factory=Initialization)
    failure_domains: Annotated[tuple[FailureDomain, ...], keyed("name")] = field(
        name="failureDomains", default=()
    )
    regions: tuple[RegionHealth, ...] = ()
    in_cluster_ip_pool_ref: tuple[LocalRef, ...] = field(name="inClusterIPPoolRef", default=())
    in_cluster_zone_ref: tuple[ZoneRef, ...] = field(name="inClusterZoneRef", default=())
    next_move: str = field(name="nextMove", default="")
    observed_generation: int = field(name="observedGeneration", default=0)


@kind(
    group=GROUP,
    version=HUB,
    plural="proxmoxclusters",
    short=("moxc",),
    categories=("cluster-api",),
    status=True,
    labels=CONTRACT,
    columns=(
        Column("Cluster", ".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Endpoint", ".spec.controlPlaneEndpoint.host"),
        Column("Zones", ".status.failureDomains[*].name", priority=1),
    ),
)
class ProxmoxCluster(Object, frozen=True, kw_only=True):
    """The Proxmox clusters, zones, addresses and endpoint of one Kubernetes cluster."""

    spec: ProxmoxClusterSpec = field(default_factory=ProxmoxClusterSpec)
    status: ProxmoxClusterStatus = field(default_factory=ProxmoxClusterStatus)


class ProxmoxClusterTemplateResource(Value, frozen=True, kw_only=True):
    """The metadata and spec of clusters created from the template."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: ProxmoxClusterSpec = field(default_factory=ProxmoxClusterSpec)


class ProxmoxClusterTemplateSpec(Value, frozen=True, kw_only=True):
    """The desired state of a ProxmoxClusterTemplate."""

    template: ProxmoxClusterTemplateResource = field(default_factory=ProxmoxClusterTemplateResource)


@kind(
    group=GROUP,
    version=HUB,
    plural="proxmoxclustertemplates",
    short=("pct",),
    categories=("cluster-api",),
    labels=CONTRACT,
)
class ProxmoxClusterTemplate(Object, frozen=True, kw_only=True):
    """A template of ProxmoxClusters, for ClusterClass."""

    spec: ProxmoxClusterTemplateSpec = field(default_factory=ProxmoxClusterTemplateSpec)


KINDS = (ProxmoxCluster, ProxmoxClusterTemplate)
