"""
TenantControlPlane and DataStore of Kamaji.

In operator mode Kamaji reconciles them; in lab and standalone mode Moxwell runs the control planes
they describe.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from moxwell.api.conditions import Condition
from moxwell.api.kinds import Column, Object, ScalePaths, kind
from moxwell.api.meta import Value

GROUP = "kamaji.clastix.io"
VERSION = "v1alpha1"
PAUSED = "kamaji.clastix.io/paused"
ADDONS_READY = "AddonsReady"  # a condition of ours
ROTATE = "certs.kamaji.clastix.io/rotate"
AGE = Column("Age", ".metadata.creationTimestamp", "date")
Phase = Literal[
    "",
    "Unknown",
    "Provisioning",
    "CertificateAuthorityRotating",
    "Upgrading",
    "Migrating",
    "Ready",
    "NotReady",
    "Sleeping",
    "WriteLimited",
]


class KubeletSpec(Value, frozen=True, kw_only=True):
    """Settings of the tenant's kubelets."""

    cgroupfs: str = ""
    preferred_address_types: tuple[str, ...] = field(name="preferredAddressTypes", default=())


class TenantKubernetesSpec(Value, frozen=True, kw_only=True):
    """The Kubernetes version of the tenant."""

    version: str
    kubelet: KubeletSpec = field(default_factory=KubeletSpec)
    admission_controllers: tuple[str, ...] = field(name="admissionControllers", default=())


class NetworkProfile(Value, frozen=True, kw_only=True):
    """The address of the tenant's API server and the networks of the tenant cluster."""

    address: str = ""
    advertise_address: str = field(name="advertiseAddress", default="")
    port: Annotated[int, Meta(ge=1, le=65535)] = 6443
    cluster_domain: str = field(name="clusterDomain", default="cluster.local")
    cert_sans: tuple[str, ...] = field(name="certSANs", default=())
    service_cidr: str = field(name="serviceCidr", default="10.96.0.0/16")
    pod_cidr: str = field(name="podCidr", default="10.244.0.0/16")
    dns_service_ips: tuple[str, ...] = field(name="dnsServiceIPs", default=())
    load_balancer_class: str = field(name="loadBalancerClass", default="")


class TenantDeploymentSpec(Value, frozen=True, kw_only=True):
    """The Deployment of the control plane; 0 replicas put it to sleep."""

    replicas: Annotated[int, Meta(ge=0)] = 2
    extra_args: Mapping[str, Any] = field(name="extraArgs", default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)


class TenantServiceSpec(Value, frozen=True, kw_only=True):
    """The Service of the tenant's API server."""

    service_type: str = field(name="serviceType", default="LoadBalancer")
    additional_metadata: Mapping[str, Any] = field(name="additionalMetadata", default_factory=dict)


class ControlPlane(Value, frozen=True, kw_only=True):
    """The Deployment and Service of the control plane."""

    deployment: TenantDeploymentSpec = field(default_factory=TenantDeploymentSpec)
    service: TenantServiceSpec = field(default_factory=TenantServiceSpec)


class TenantControlPlaneSpec(Value, frozen=True, kw_only=True):
    """The desired state of a TenantControlPlane."""

    data_store: str = field(name="dataStore", default="")
    data_store_schema: str = field(name="dataStoreSchema", default="")
    data_store_username: str = field(name="dataStoreUsername", default="")
    kubernetes: TenantKubernetesSpec
    network_profile: NetworkProfile = field(name="networkProfile", default_factory=NetworkProfile)
    control_plane: ControlPlane = field(name="controlPlane", default_factory=ControlPlane)
    addons: Mapping[str, Any] = field(default_factory=dict)


class VersionStatus(Value, frozen=True, kw_only=True):
    """The running version and its phase."""

    version: str = ""
    status: Phase = ""


class TenantDeploymentStatus(Value, frozen=True, kw_only=True):
    """The replicas of the control plane's Deployment."""

    name: str = ""
    namespace: str = ""
    selector: str = ""
    replicas: int = 0
    ready_replicas: int = field(name="readyReplicas", default=0)
    updated_replicas: int = field(name="updatedReplicas", default=0)
    available_replicas: int = field(name="availableReplicas", default=0)


class TenantKubernetesStatus(Value, frozen=True, kw_only=True):
    """The observed state of the control plane's resources."""

    version: VersionStatus = field(default_factory=VersionStatus)
    deployment: TenantDeploymentStatus = field(default_factory=TenantDeploymentStatus)


class KubeconfigStatus(Value, frozen=True, kw_only=True):
    secret_name: str = field(name="secretName", default="")


class KubeconfigsStatus(Value, frozen=True, kw_only=True):
    """The Secrets that hold kubeconfigs."""

    admin: KubeconfigStatus = field(default_factory=KubeconfigStatus)
    controller_manager: KubeconfigStatus = field(
        name="controllerManager", default_factory=KubeconfigStatus
    )
    scheduler: KubeconfigStatus = field(default_factory=KubeconfigStatus)


class StorageStatus(Value, frozen=True, kw_only=True):
    """The DataStore in use."""

    driver: str = ""
    data_store_name: str = field(name="dataStoreName", default="")


class TenantControlPlaneStatus(Value, frozen=True, kw_only=True):
    """The observed state of a TenantControlPlane."""

    kubernetes_resources: TenantKubernetesStatus = field(
        name="kubernetesResources", default_factory=TenantKubernetesStatus
    )
    control_plane_endpoint: str = field(name="controlPlaneEndpoint", default="")
    kubeconfig: KubeconfigsStatus = field(default_factory=KubeconfigsStatus)
    certificates: Mapping[str, Any] = field(default_factory=dict)
    storage: StorageStatus = field(default_factory=StorageStatus)
    conditions: tuple[Condition, ...] = ()


@kind(
    group=GROUP,
    version=VERSION,
    plural="tenantcontrolplanes",
    short=("tcp",),
    categories=("kamaji",),
    status=True,
    open=True,
    scale=ScalePaths(
        ".spec.controlPlane.deployment.replicas",
        ".status.kubernetesResources.deployment.replicas",
        ".status.kubernetesResources.deployment.selector",
    ),
    columns=(
        Column("Version", ".spec.kubernetes.version"),
        Column("Status", ".status.kubernetesResources.version.status"),
        Column("Control-Plane endpoint", ".status.controlPlaneEndpoint"),
        Column("Kubeconfig", ".status.kubeconfig.admin.secretName"),
        Column("Datastore", ".status.storage.dataStoreName"),
        AGE,
    ),
)
class TenantControlPlane(Object, frozen=True, kw_only=True):
    """A control plane hosted by Kamaji."""

    spec: TenantControlPlaneSpec
    status: TenantControlPlaneStatus = field(default_factory=TenantControlPlaneStatus)


class DataStoreSpec(Value, frozen=True, kw_only=True):
    """The connection to a data store."""

    driver: Literal["etcd", "MySQL", "PostgreSQL", "NATS"]
    endpoints: Annotated[tuple[str, ...], Meta(min_length=1)]
    basic_auth: Mapping[str, Any] | None = field(name="basicAuth", default=None)
    tls_config: Mapping[str, Any] | None = field(name="tlsConfig", default=None)


class DataStoreStatus(Value, frozen=True, kw_only=True):
    """The observed state of a DataStore."""

    used_by: tuple[str, ...] = field(name="usedBy", default=())
    ready: bool | None = None
    conditions: tuple[Condition, ...] = ()


@kind(
    group=GROUP,
    version=VERSION,
    plural="datastores",
    scope="Cluster",
    categories=("kamaji",),
    status=True,
    open=True,
    columns=(Column("Driver", ".spec.driver"), Column("Ready", ".status.ready", "boolean"), AGE),
)
class DataStore(Object, frozen=True, kw_only=True):
    """A data store of hosted control planes."""

    spec: DataStoreSpec
    status: DataStoreStatus = field(default_factory=DataStoreStatus)


KINDS: tuple[type[Object], ...] = (TenantControlPlane, DataStore)
