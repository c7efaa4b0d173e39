"""
MachineSet, MachineDeployment and MachineHealthCheck of Cluster API in v1beta2, the hub version.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import field

from moxwell.api.capi.core import VERSION, MachineSpec
from moxwell.api.capi.shared import CONTRACT, GROUP, UPSTREAM, ObjectReference
from moxwell.api.conditions import Condition
from moxwell.api.kinds import Column, Object, ScalePaths, kind
from moxwell.api.meta import TemplateMeta, Value
from moxwell.api.schema import described_as
from moxwell.api.selectors import LabelSelector

AGE = Column("Age", ".metadata.creationTimestamp", "date")
COUNTS = (
    Column("Cluster", ".spec.clusterName"),
    Column("Desired", ".spec.replicas", "integer"),
    Column("Current", ".status.replicas", "integer"),
    Column("Ready", ".status.readyReplicas", "integer"),
    Column("Available", ".status.availableReplicas", "integer"),
    Column("Up-to-date", ".status.upToDateReplicas", "integer"),
)
SCALE = ScalePaths(selector=".status.selector")


class MachineTemplate(Value, frozen=True, kw_only=True):
    """The template that machines are created from."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: MachineSpec


class Naming(Value, frozen=True, kw_only=True):
    """The naming template of machines."""

    template: str = ""


class DeletionOrder(Value, frozen=True, kw_only=True):
    """The order in which machines are deleted on scale-down."""

    order: Literal["Random", "Newest", "Oldest"] | None = None


class MachineSetSpec(Value, frozen=True, kw_only=True):
    """The desired state of a MachineSet."""

    cluster_name: str = field(name="clusterName")
    replicas: int | None = None
    selector: LabelSelector = field(default_factory=LabelSelector)
    template: MachineTemplate
    machine_naming: Naming = field(name="machineNaming", default_factory=Naming)
    deletion: DeletionOrder = field(default_factory=DeletionOrder)


class MachineReplicaStatus(Value, frozen=True, kw_only=True):
    """The observed state of a MachineSet or MachineDeployment: counts of machines."""

    conditions: tuple[Condition, ...] = ()
    selector: str = ""
    replicas: int | None = None
    ready_replicas: int | None = field(name="readyReplicas", default=None)
    available_replicas: int | None = field(name="availableReplicas", default=None)
    up_to_date_replicas: int | None = field(name="upToDateReplicas", default=None)
    phase: str = ""
    observed_generation: int = field(name="observedGeneration", default=0)


@kind(
    group=GROUP,
    version=VERSION,
    plural="machinesets",
    short=("ms",),
    labels=CONTRACT,
    scale=SCALE,
    columns=(*COUNTS, AGE),
    **UPSTREAM,
)
class MachineSet(Object, frozen=True, kw_only=True):
    """Keeps a number of machines with the same spec running."""

    spec: MachineSetSpec
    status: MachineReplicaStatus = field(default_factory=MachineReplicaStatus)


class RollingUpdate(Value, frozen=True, kw_only=True):
    """How many machines may be unavailable or surplus during a rolling update."""

    max_unavailable: int | str | None = field(name="maxUnavailable", default=None)
    max_surge: int | str | None = field(name="maxSurge", default=None)


class RolloutStrategy(Value, frozen=True, kw_only=True):
    """The rollout strategy of a MachineDeployment."""

    type: Literal["RollingUpdate", "OnDelete"] = "RollingUpdate"
    rolling_update: RollingUpdate = field(name="rollingUpdate", default_factory=RollingUpdate)


class Rollout(Value, frozen=True, kw_only=True):
    """When and how machines are replaced."""

    after: datetime | None = None
    strategy: RolloutStrategy = field(default_factory=RolloutStrategy)


class Remediation(Value, frozen=True, kw_only=True):
    """How many unhealthy machines are remediated at a time."""

    max_in_flight: int | str | None = field(name="maxInFlight", default=None)


class MachineDeploymentSpec(Value, frozen=True, kw_only=True):
    """The desired state of a MachineDeployment."""

    cluster_name: str = field(name="clusterName")
    replicas: int | None = None
    rollout: Rollout = field(default_factory=Rollout)
    selector: LabelSelector = field(default_factory=LabelSelector)
    template: MachineTemplate
    machine_naming: Naming = field(name="machineNaming", default_factory=Naming)
    remediation: Remediation = field(default_factory=Remediation)
    deletion: DeletionOrder = field(default_factory=DeletionOrder)
    paused: bool | None = None


@kind(
    group=GROUP,
    version=VERSION,
    plural="machinedeployments",
    short=("md",),
    labels=CONTRACT,
    scale=SCALE,
    columns=(*COUNTS, Column("Phase", ".status.phase"), AGE),
    **UPSTREAM,
)
class MachineDeployment(Object, frozen=True, kw_only=True):
    """Rolls machines out from a template through MachineSets."""

    spec: MachineDeploymentSpec
    status: MachineReplicaStatus = field(default_factory=MachineReplicaStatus)


class UnhealthyCondition(Value, frozen=True, kw_only=True):
    """A condition that marks a machine as unhealthy when it lasts for the timeout."""

    type: str
    status: str
    timeout_seconds: int = field(name="timeoutSeconds", default=0)


class MachineHealthCheckChecks(Value, frozen=True, kw_only=True):
    """The checks that mark a machine as unhealthy."""

    node_startup_timeout_seconds: int | None = field(name="nodeStartupTimeoutSeconds", default=None)
    unhealthy_node_conditions: tuple[UnhealthyCondition, ...] = field(
        name="unhealthyNodeConditions", default=()
    )
    unhealthy_machine_conditions: tuple[UnhealthyCondition, ...] = field(
        name="unhealthyMachineConditions", default=()
    )


class TriggerIf(Value, frozen=True, kw_only=True):
    """The limit of unhealthy machines above which remediation stops."""

    unhealthy_less_than_or_equal_to: int | str | None = field(
        name="unhealthyLessThanOrEqualTo", default=None
    )
    unhealthy_in_range: Annotated[str, described_as("such as [1-3]")] = field(
        name="unhealthyInRange", default=""
    )


class HealthRemediation(Value, frozen=True, kw_only=True):
    """How unhealthy machines are remediated."""

    trigger_if: TriggerIf = field(name="triggerIf", default_factory=TriggerIf)
    template_ref: ObjectReference | None = field(name="templateRef", default=None)


class MachineHealthCheckSpec(Value, frozen=True, kw_only=True):
    """The desired state of a MachineHealthCheck."""

    cluster_name: str = field(name="clusterName")
    selector: LabelSelector = field(default_factory=LabelSelector)
    checks: MachineHealthCheckChecks = field(default_factory=MachineHealthCheckChecks)
    remediation: HealthRemediation = field(default_factory=HealthRemediation)


class MachineHealthCheckStatus(Value, frozen=True, kw_only=True):
    """The observed state of a MachineHealthCheck."""

    conditions: tuple[Condition, ...] = ()
    expected_machines: int | None = field(name="expectedMachines", default=None)
    current_healthy: int | None = field(name="currentHealthy", default=None)
    remediations_allowed: int | None = field(name="remediationsAllowed", default=None)
    targets: tuple[str, ...] = ()
    observed_generation: int = field(name="observedGeneration", default=0)
    deprecated: Mapping[str, Any] | None = None


@kind(
    group=GROUP,
    version=VERSION,
    plural="machinehealthchecks",
    short=("mhc",),
    labels=CONTRACT,
    columns=(
        Column("Cluster", ".spec.clusterName"),
        Column("Machines", ".status.expectedMachines", "integer"),
        Column("Healthy", ".status.currentHealthy", "integer"),
        AGE,
    ),
    **UPSTREAM,
)
class MachineHealthCheck(Object, frozen=True, kw_only=True):
    """Remediates unhealthy machines."""

    spec: MachineHealthCheckSpec
    status: MachineHealthCheckStatus = field(default_factory=MachineHealthCheckStatus)


KINDS: tuple[type[Object], ...] = (MachineSet, MachineDeployment, MachineHealthCheck)
