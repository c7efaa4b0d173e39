"""
Cluster and Machine of Cluster API in v1beta2, the hub version.

Both refer to provider objects by group, kind and name. :mod:`.machinesets` holds MachineSet,
MachineDeployment and MachineHealthCheck.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec import field

from moxwell.api.capi.shared import (
    CONTRACT,
    GROUP,
    UPSTREAM,
    APIEndpoint,
    ContractRef,
    FailureDomain,
    MachineAddress,
    MachineTaint,
    NetworkRanges,
)
from moxwell.api.conditions import Condition
from moxwell.api.kinds import Column, Object, kind
from moxwell.api.meta import Value
from moxwell.api.schema import keyed

VERSION = "v1beta2"


class ClusterNetwork(Value, frozen=True, kw_only=True):
    """The networks inside a cluster."""

    api_server_port: int | None = field(name="apiServerPort", default=None)
    services: NetworkRanges = field(default_factory=NetworkRanges)
    pods: NetworkRanges = field(default_factory=NetworkRanges)
    service_domain: str = field(name="serviceDomain", default="")


class ClusterSpec(Value, frozen=True, kw_only=True):
    """The desired state of a Cluster."""

    paused: bool | None = None
    cluster_network: ClusterNetwork = field(name="clusterNetwork", default_factory=ClusterNetwork)
    control_plane_endpoint: APIEndpoint = field(
        name="controlPlaneEndpoint", default_factory=APIEndpoint
    )
    control_plane_ref: ContractRef | None = field(name="controlPlaneRef", default=None)
    infrastructure_ref: ContractRef | None = field(name="infrastructureRef", default=None)
    topology: Mapping[str, Any] | None = None


class ClusterInitialization(Value, frozen=True, kw_only=True):
    """Initialization milestones of a cluster; once true they stay true."""

    infrastructure_provisioned: bool | None = field(name="infrastructureProvisioned", default=None)
    control_plane_initialized: bool | None = field(name="controlPlaneInitialized", default=None)


class Replicas(Value, frozen=True, kw_only=True):
    """Counts of machines by state."""

    desired_replicas: int | None = field(name="desiredReplicas", default=None)
    replicas: int | None = None
    up_to_date_replicas: int | None = field(name="upToDateReplicas", default=None)
    ready_replicas: int | None = field(name="readyReplicas", default=None)
    available_replicas: int | None = field(name="availableReplicas", default=None)


class ClusterStatus(Value, frozen=True, kw_only=True):
    """The observed state of a Cluster."""

    conditions: tuple[Condition, ...] = ()
    initialization: ClusterInitialization = field(default_factory=ClusterInitialization)
    control_plane: Replicas | None = field(name="controlPlane", default=None)
    workers: Replicas | None = None
    failure_domains: Annotated[tuple[FailureDomain, ...], keyed("name")] = field(
        name="failureDomains", default=()
    )
    phase: str = ""
    observed_generation: int = field(name="observedGeneration", default=0)


@kind(
    group=GROUP,
    version=VERSION,
    plural="clusters",
    short=("cl",),
    labels=CONTRACT,
    columns=(
        Column("Phase", ".status.phase"),
        Column("Available", '.status.conditions[?(@.type=="Available")].status'),
        Column("CP Ready", ".status.controlPlane.readyReplicas", "integer"),
        Column("W Ready", ".status.workers.readyReplicas", "integer"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
    **UPSTREAM,
)
class Cluster(Object, frozen=True, kw_only=True):
    """A Kubernetes cluster."""

    spec: ClusterSpec = field(default_factory=ClusterSpec)
    status: ClusterStatus = field(default_factory=ClusterStatus)


class Bootstrap(Value, frozen=True, kw_only=True):
    """The source of a machine's bootstrap data."""

    config_ref: ContractRef | None = field(name="configRef", default=None)
    data_secret_name: str | None = field(name="dataSecretName", default=None)


class MachineDeletion(Value, frozen=True, kw_only=True):
    """Timeouts for drain, volume detachment and Node deletion when a machine is deleted."""

    node_drain_timeout_seconds: int | None = field(name="nodeDrainTimeoutSeconds", default=None)
    node_volume_detach_timeout_seconds: int | None = field(
        name="nodeVolumeDetachTimeoutSeconds", default=None
    )
    node_deletion_timeout_seconds: int | None = field(
        name="nodeDeletionTimeoutSeconds", default=None
    )


class MachineSpec(Value, frozen=True, kw_only=True):
    """The desired state of a Machine."""

    cluster_name: str = field(name="clusterName")
    bootstrap: Bootstrap = field(default_factory=Bootstrap)
    infrastructure_ref: ContractRef | None = field(name="infrastructureRef", default=None)
    version: str = ""
    provider_id: str = field(name="providerID", default="")
    failure_domain: str = field(name="failureDomain", default="")
    min_ready_seconds: int | None = field(name="minReadySeconds", default=None)
    deletion: MachineDeletion = field(default_factory=MachineDeletion)
    taints: tuple[MachineTaint, ...] = ()


class MachineInitialization(Value, frozen=True, kw_only=True):
    """Initialization milestones of a machine; once true they stay true."""

    infrastructure_provisioned: bool | None = field(name="infrastructureProvisioned", default=None)
    bootstrap_data_secret_created: bool | None = field(
        name="bootstrapDataSecretCreated", default=None
    )


class MachineNodeReference(Value, frozen=True, kw_only=True):
    """The Node that runs on the machine."""

    name: str


class MachineDeletionStatus(Value, frozen=True, kw_only=True):
    """When drain and the wait for volume detachment began during deletion."""

    node_drain_start_time: datetime | None = field(name="nodeDrainStartTime", default=None)
    wait_for_node_volume_detach_start_time: datetime | None = field(
        name="waitForNodeVolumeDetachStartTime", default=None
    )


class MachineStatus(Value, frozen=True, kw_only=True):
    """The observed state of a Machine."""

    conditions: tuple[Condition, ...] = ()
    initialization: MachineInitialization = field(default_factory=MachineInitialization)
    node_ref: MachineNodeReference | None = field(name="nodeRef", default=None)
    node_info: Mapping[str, Any] | None = field(name="nodeInfo", default=None)
    last_updated: datetime | None = field(name="lastUpdated", default=None)
    addresses: tuple[MachineAddress, ...] = ()
    failure_domain: str = field(name="failureDomain", default="")
    phase: str = ""
    observed_generation: int = field(name="observedGeneration", default=0)
    deletion: MachineDeletionStatus | None = None


@kind(
    group=GROUP,
    version=VERSION,
    plural="machines",
    short=("ma",),
    labels=CONTRACT,
    columns=(
        Column("Cluster", ".spec.clusterName"),
        Column("Node Name", ".status.nodeRef.name"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Phase", ".status.phase"),
        Column("Version", ".spec.version"),
        Column("Provider ID", ".spec.providerID", priority=10),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
    **UPSTREAM,
)
class Machine(Object, frozen=True, kw_only=True):
    """One machine of a cluster."""

    spec: MachineSpec
    status: MachineStatus = field(default_factory=MachineStatus)


KINDS: tuple[type[Object], ...] = (Cluster, Machine)
