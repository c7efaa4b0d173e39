"""
Cluster API kinds in v1beta1, converted to and from v1beta2 by :mod:`.convert`.

Durations are strings, references carry versions, conditions have severities, and readiness is a
pair of booleans.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, field

from moxwell.api.capi.core import ClusterNetwork
from moxwell.api.capi.machinesets import AGE, SCALE, Naming, Remediation
from moxwell.api.capi.shared import (
    CONTRACT,
    GROUP,
    UPSTREAM,
    APIEndpoint,
    MachineAddress,
    ObjectReference,
)
from moxwell.api.conditions import LegacyCondition
from moxwell.api.kinds import Column, Object, kind
from moxwell.api.meta import TemplateMeta, Value
from moxwell.api.selectors import LabelSelector

VERSION = "v1beta1"
Duration = Annotated[str, Meta(pattern=r"^(0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$")]
OLDER: dict[str, Any] = {**UPSTREAM, "storage": False, "labels": CONTRACT}
PHASE = Column("Phase", ".status.phase")


class ClusterSpecV1Beta1(Value, frozen=True, kw_only=True):
    """The desired state of a Cluster, in v1beta1."""

    paused: bool = False
    cluster_network: ClusterNetwork | None = field(name="clusterNetwork", default=None)
    control_plane_endpoint: APIEndpoint = field(
        name="controlPlaneEndpoint", default_factory=APIEndpoint
    )
    control_plane_ref: ObjectReference | None = field(name="controlPlaneRef", default=None)
    infrastructure_ref: ObjectReference | None = field(name="infrastructureRef", default=None)
    topology: Mapping[str, Any] | None = None


class ClusterStatusV1Beta1(Value, frozen=True, kw_only=True):
    """The observed state of a Cluster, in v1beta1."""

    failure_domains: Mapping[str, Mapping[str, Any]] = field(
        name="failureDomains", default_factory=dict
    )
    phase: str = ""
    infrastructure_ready: bool = field(name="infrastructureReady", default=False)
    control_plane_ready: bool = field(name="controlPlaneReady", default=False)
    conditions: tuple[LegacyCondition, ...] = ()
    observed_generation: int = field(name="observedGeneration", default=0)


@kind(
    name="Cluster", group=GROUP, version=VERSION, plural="clusters", columns=(PHASE, AGE), **OLDER
)
class ClusterV1Beta1(Object, frozen=True, kw_only=True):
    """A Kubernetes cluster."""

    spec: ClusterSpecV1Beta1 = field(default_factory=ClusterSpecV1Beta1)
    status: ClusterStatusV1Beta1 = field(default_factory=ClusterStatusV1Beta1)


class BootstrapV1Beta1(Value, frozen=True, kw_only=True):
    """The source of a machine's bootstrap data, in v1beta1."""

    config_ref: ObjectReference | None = field(name="configRef", default=None)
    data_secret_name: str | None = field(name="dataSecretName", default=None)


class MachineSpecV1Beta1(Value, frozen=True, kw_only=True):
    """The desired state of a Machine, in v1beta1."""

    cluster_name: str = field(name="clusterName")
    bootstrap: BootstrapV1Beta1 = field(default_factory=BootstrapV1Beta1)
    infrastructure_ref: ObjectReference | None = field(name="infrastructureRef", default=None)
    version: str | None = None
    provider_id: str | None = field(name="providerID", default=None)
    failure_domain: str | None = field(name="failureDomain", default=None)
    node_drain_timeout: Duration | None = field(name="nodeDrainTimeout", default=None)
    node_volume_detach_timeout: Duration | None = field(
        name="nodeVolumeDetachTimeout", default=None
    )
    node_deletion_timeout: Duration | None = field(name="nodeDeletionTimeout", default=None)


class MachineStatusV1Beta1(Value, frozen=True, kw_only=True):
    """The observed state of a Machine, in v1beta1."""

    node_ref: ObjectReference | None = field(name="nodeRef", default=None)
    last_updated: datetime | None = field(name="lastUpdated", default=None)
    addresses: tuple[MachineAddress, ...] = ()
    phase: str = ""
    bootstrap_ready: bool = field(name="bootstrapReady", default=False)
    infrastructure_ready: bool = field(name="infrastructureReady", default=False)
    observed_generation: int = field(name="observedGeneration", default=0)
    conditions: tuple[LegacyCondition, ...] = ()


@kind(
    name="Machine", group=GROUP, version=VERSION, plural="machines", columns=(PHASE, AGE), **OLDER
)
class MachineV1Beta1(Object, frozen=True, kw_only=True):
    """One machine of a cluster."""

    spec: MachineSpecV1Beta1
    status: MachineStatusV1Beta1 = field(default_factory=MachineStatusV1Beta1)


class MachineTemplateV1Beta1(Value, frozen=True, kw_only=True):
    """The template that machines are created from, in v1beta1."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: MachineSpecV1Beta1


class MachineReplicaStatusV1Beta1(Value, frozen=True, kw_only=True):
    """The observed state of a MachineSet or MachineDeployment, in v1beta1."""

    selector: str = ""
    replicas: int = 0
    fully_labeled_replicas: int = field(name="fullyLabeledReplicas", default=0)
    ready_replicas: int = field(name="readyReplicas", default=0)
    available_replicas: int = field(name="availableReplicas", default=0)
    updated_replicas: int = field(name="updatedReplicas", default=0)
    unavailable_replicas: int = field(name="unavailableReplicas", default=0)
    phase: str = ""
    observed_generation: int = field(name="observedGeneration", default=0)
    conditions: tuple[LegacyCondition, ...] = ()


class MachineSetSpecV1Beta1(Value, frozen=True, kw_only=True):
    """The desired state of a MachineSet, in v1beta1."""

    cluster_name: str = field(name="clusterName")
    replicas: int | None = None
    min_ready_seconds: int = field(name="minReadySeconds", default=0)
    delete_policy: str = field(name="deletePolicy", default="")
    selector: LabelSelector = field(default_factory=LabelSelector)
    template: MachineTemplateV1Beta1
    machine_naming_strategy: Naming | None = field(name="machineNamingStrategy", default=None)


@kind(
    name="MachineSet",
    group=GROUP,
    version=VERSION,
    plural="machinesets",
    scale=SCALE,
    columns=(Column("Replicas", ".status.replicas", "integer"), AGE),
    **OLDER,
)
class MachineSetV1Beta1(Object, frozen=True, kw_only=True):
    """Keeps a number of machines with the same spec running."""

    spec: MachineSetSpecV1Beta1
    status: MachineReplicaStatusV1Beta1 = field(default_factory=MachineReplicaStatusV1Beta1)


class RollingUpdateV1Beta1(Value, frozen=True, kw_only=True):
    """How many machines may be unavailable or surplus during a rolling update, in v1beta1."""

    max_unavailable: int | str | None = field(name="maxUnavailable", default=None)
    max_surge: int | str | None = field(name="maxSurge", default=None)
    delete_policy: str | None = field(name="deletePolicy", default=None)


class RolloutStrategyV1Beta1(Value, frozen=True, kw_only=True):
    """The rollout strategy of a MachineDeployment, in v1beta1."""

    type: str = ""
    rolling_update: RollingUpdateV1Beta1 | None = field(name="rollingUpdate", default=None)
    remediation: Remediation | None = None


class MachineDeploymentSpecV1Beta1(Value, frozen=True, kw_only=True):
    """The desired state of a MachineDeployment, in v1beta1."""

    cluster_name: str = field(name="clusterName")
    replicas: int | None = None
    rollout_after: datetime | None = field(name="rolloutAfter", default=None)
    selector: LabelSelector = field(default_factory=LabelSelector)
    template: MachineTemplateV1Beta1
    strategy: RolloutStrategyV1Beta1 | None = None
    machine_naming_strategy: Naming | None = field(name="machineNamingStrategy", default=None)
    min_ready_seconds: int | None = field(name="minReadySeconds", default=None)
    revision_history_limit: int | None = field(name="revisionHistoryLimit", default=None)
    progress_deadline_seconds: int | None = field(name="progressDeadlineSeconds", default=None)
    paused: bool = False


@kind(
    name="MachineDeployment",
    group=GROUP,
    version=VERSION,
    plural="machinedeployments",
    scale=SCALE,
    columns=(Column("Replicas", ".status.replicas", "integer"), PHASE, AGE),
    **OLDER,
)
class MachineDeploymentV1Beta1(Object, frozen=True, kw_only=True):
    """Rolls machines out from a template through MachineSets."""

    spec: MachineDeploymentSpecV1Beta1
    status: MachineReplicaStatusV1Beta1 = field(default_factory=MachineReplicaStatusV1Beta1)


class UnhealthyConditionV1Beta1(Value, frozen=True, kw_only=True):
    """A condition that marks a machine as unhealthy when it lasts for the timeout, in v1beta1."""

    type: str
    status: str
    timeout: Duration


class MachineHealthCheckSpecV1Beta1(Value, frozen=True, kw_only=True):
    """The desired state of a MachineHealthCheck, in v1beta1."""

    cluster_name: str = field(name="clusterName")
    selector: LabelSelector = field(default_factory=LabelSelector)
    unhealthy_conditions: tuple[UnhealthyConditionV1Beta1, ...] = field(
        name="unhealthyConditions", default=()
    )
    max_unhealthy: int | str | None = field(name="maxUnhealthy", default=None)
    unhealthy_range: str | None = field(name="unhealthyRange", default=None)
    node_startup_timeout: Duration | None = field(name="nodeStartupTimeout", default=None)
    remediation_template: ObjectReference | None = field(name="remediationTemplate", default=None)


class MachineHealthCheckStatusV1Beta1(Value, frozen=True, kw_only=True):
    """The observed state of a MachineHealthCheck, in v1beta1."""

    expected_machines: int = field(name="expectedMachines", default=0)
    current_healthy: int = field(name="currentHealthy", default=0)
    remediations_allowed: int = field(name="remediationsAllowed", default=0)
    targets: tuple[str, ...] = ()
    observed_generation: int = field(name="observedGeneration", default=0)
    conditions: tuple[LegacyCondition, ...] = ()


@kind(
    name="MachineHealthCheck",
    group=GROUP,
    version=VERSION,
    plural="machinehealthchecks",
    columns=(AGE,),
    **OLDER,
)
class MachineHealthCheckV1Beta1(Object, frozen=True, kw_only=True):
    """Remediates unhealthy machines."""

    spec: MachineHealthCheckSpecV1Beta1
    status: MachineHealthCheckStatusV1Beta1 = field(default_factory=MachineHealthCheckStatusV1Beta1)


KINDS: tuple[type[Object], ...] = (
    ClusterV1Beta1,
    MachineV1Beta1,
    MachineSetV1Beta1,
    MachineDeploymentV1Beta1,
    MachineHealthCheckV1Beta1,
)
