"""
MachineSet, MachineDeployment and MachineHealthCheck of Cluster API in v1beta2.

A MachineDeployment rolls from one MachineSet to the next, a MachineSet keeps a number of equal
Machines, a MachineHealthCheck has the broken ones replaced.
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
    """What each machine is made from."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: MachineSpec


class Naming(Value, frozen=True, kw_only=True):
    """How machines are named."""

    template: str = ""


class DeletionOrder(Value, frozen=True, kw_only=True):
    """Which machines go first."""

    order: Literal["Random", "Newest", "Oldest"] | None = None


class MachineSetSpec(Value, frozen=True, kw_only=True):
    """A number of equal machines."""

    cluster_name: str = field(name="clusterName")
    replicas: int | None = None
    selector: LabelSelector = field(default_factory=LabelSelector)
    template: MachineTemplate
    machine_naming: Naming = field(name="machineNaming", default_factory=Naming)
    deletion: DeletionOrder = field(default_factory=DeletionOrder)


class MachineReplicaStatus(Value, frozen=True, kw_only=True):
    """Machines counted."""

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
    """Keeps a number of equal machines."""

    spec: MachineSetSpec
    status: MachineReplicaStatus = field(default_factory=MachineReplicaStatus)


class RollingUpdate(Value, frozen=True, kw_only=True):
    """How many more and how many fewer there may be meanwhile."""

    max_unavailable: int | str | None = field(name="maxUnavailable", default=None)
    max_surge: int | str | None = field(name="maxSurge", default=None)


class RolloutStrategy(Value, frozen=True, kw_only=True):
    """How a new template reaches the machines."""

    type: Literal["RollingUpdate", "OnDelete"] = "RollingUpdate"
    rolling_update: RollingUpdate = field(name="rollingUpdate", default_factory=RollingUpdate)


class Rollout(Value, frozen=True, kw_only=True):
    """When and how machines are replaced."""

    after: datetime | None = None
    strategy: RolloutStrategy = field(default_factory=RolloutStrategy)


class Remediation(Value, frozen=True, kw_only=True):
    """How many broken machines are replaced at a time."""

    max_in_flight: int | str | None = field(name="maxInFlight", default=None)


class MachineDeploymentSpec(Value, frozen=True, kw_only=True):
    """Machines that follow a template."""

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
    """Rolls machines from one template to the next."""

    spec: MachineDeploymentSpec
    status: MachineReplicaStatus = field(default_factory=MachineReplicaStatus)


class UnhealthyCondition(Value, frozen=True, kw_only=True):
    """A condition that, lasting so long, means broken."""

    type: str
    status: str
    timeout_seconds: int = field(name="timeoutSeconds", default=0)


class MachineHealthCheckChecks(Value, frozen=True, kw_only=True):
    """What counts as broken."""

    node_startup_timeout_seconds: int | None = field(name="nodeStartupTimeoutSeconds", default=None)
    unhealthy_node_conditions: tuple[UnhealthyCondition, ...] = field(
        name="unhealthyNodeConditions", default=()
    )
    unhealthy_machine_conditions: tuple[UnhealthyCondition, ...] = field(
        name="unhealthyMachineConditions", default=()
    )


class TriggerIf(Value, frozen=True, kw_only=True):
    """When so many are broken that it must be something else."""

    unhealthy_less_than_or_equal_to: int | str | None = field(
        name="unhealthyLessThanOrEqualTo", default=None
    )
    unhealthy_in_range: Annotated[str, described_as("such as [1-3]")] = field(
        name="unhealthyInRange", default=""
    )


class HealthRemediation(Value, frozen=True, kw_only=True):
    """What is done about broken machines."""

    trigger_if: TriggerIf = field(name="triggerIf", default_factory=TriggerIf)
    template_ref: ObjectReference | None = field(name="templateRef", default=None)


class MachineHealthCheckSpec(Value, frozen=True, kw_only=True):
    """Which machines are watched, for what."""

    cluster_name: str = field(name="clusterName")
    selector: LabelSelector = field(default_factory=LabelSelector)
    checks: MachineHealthCheckChecks = field(default_factory=MachineHealthCheckChecks)
    remediation: HealthRemediation = field(default_factory=HealthRemediation)


class MachineHealthCheckStatus(Value, frozen=True, kw_only=True):
    """How many are well."""

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
    """Has broken machines replaced."""

    spec: MachineHealthCheckSpec
    status: MachineHealthCheckStatus = field(default_factory=MachineHealthCheckStatus)


KINDS: tuple[type[Object], ...] = (MachineSet, MachineDeployment, MachineHealthCheck)
