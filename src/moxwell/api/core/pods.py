"""The core/v1 Pod and the policy/v1 PodDisruptionBudget, with the fields that schedulers need."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import field

from moxwell.api.conditions import ConditionStatus
from moxwell.api.kinds import Object, kind
from moxwell.api.meta import Value
from moxwell.api.selectors import LabelSelector

QuantityText = str | int


class ResourceRequirements(Value, frozen=True, kw_only=True):
    """Resource requests and limits of a container."""

    requests: Mapping[str, QuantityText] = field(default_factory=dict)
    limits: Mapping[str, QuantityText] = field(default_factory=dict)


class ContainerPort(Value, frozen=True, kw_only=True):
    container_port: int = field(name="containerPort")
    host_port: int = field(name="hostPort", default=0)
    host_ip: str = field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(Value, frozen=True, kw_only=True):
    """A container of a pod."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = field(name="restartPolicy", default=None)


class Toleration(Value, frozen=True, kw_only=True):
    """A taint that a pod tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = field(name="tolerationSeconds", default=None)


class TopologySpreadConstraint(Value, frozen=True, kw_only=True):
    """How evenly pods are spread over topology domains."""

    max_skew: int = field(name="maxSkew")
    topology_key: str = field(name="topologyKey")
    when_unsatisfiable: str = field(name="whenUnsatisfiable")
    label_selector: LabelSelector | None = field(name="labelSelector", default=None)
    min_domains: int | None = field(name="minDomains", default=None)


class PersistentVolumeClaimSource(Value, frozen=True, kw_only=True):
    claim_name: str = field(name="claimName")
    read_only: bool = field(name="readOnly", default=False)


class Volume(Value, frozen=True, kw_only=True):
    """A volume of a pod; only claims are decoded."""

    name: str
    persistent_volume_claim: PersistentVolumeClaimSource | None = field(
        name="persistentVolumeClaim", default=None
    )
    ephemeral: Mapping[str, Any] | None = None


class PodSpec(Value, frozen=True, kw_only=True):
    """The desired state of a Pod."""

    node_name: str = field(name="nodeName", default="")
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = field(name="initContainers", default=())
    node_selector: Mapping[str, str] = field(name="nodeSelector", default_factory=dict)
    affinity: Mapping[str, Any] | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = field(
        name="topologySpreadConstraints", default=()
    )
    volumes: tuple[Volume, ...] = ()
    overhead: Mapping[str, QuantityText] = field(default_factory=dict)
    priority: int | None = None
    priority_class_name: str = field(name="priorityClassName", default="")
    preemption_policy: str | None = field(name="preemptionPolicy", default=None)
    scheduler_name: str = field(name="schedulerName", default="")
    restart_policy: str = field(name="restartPolicy", default="")
    host_network: bool = field(name="hostNetwork", default=False)
    termination_grace_period_seconds: int | None = field(
        name="terminationGracePeriodSeconds", default=None
    )
    scheduling_gates: tuple[Mapping[str, str], ...] = field(name="schedulingGates", default=())


class PodCondition(Value, frozen=True, kw_only=True):
    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""
    last_probe_time: datetime | None = field(name="lastProbeTime", default=None)
    last_transition_time: datetime | None = field(name="lastTransitionTime", default=None)


class PodIP(Value, frozen=True, kw_only=True):
    ip: str


class PodStatus(Value, frozen=True, kw_only=True):
    """The observed state of a Pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    nominated_node_name: str = field(name="nominatedNodeName", default="")
    host_ip: str = field(name="hostIP", default="")
    pod_ip: str = field(name="podIP", default="")
    pod_ips: tuple[PodIP, ...] = field(name="podIPs", default=())
    start_time: datetime | None = field(name="startTime", default=None)
    container_statuses: tuple[Mapping[str, Any], ...] = field(name="containerStatuses", default=())


@kind(group="", version="v1", plural="pods", status=True, builtin=True)
class Pod(Object, frozen=True, kw_only=True):
    """A core/v1 Pod."""

    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def is_over(self) -> bool:
        """Report whether the pod has terminated."""
        return self.status.phase in ("Succeeded", "Failed")


class PodDisruptionBudgetSpec(Value, frozen=True, kw_only=True):
    """The desired state of a PodDisruptionBudget."""

    min_available: int | str | None = field(name="minAvailable", default=None)
    max_unavailable: int | str | None = field(name="maxUnavailable", default=None)
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = field(
        name="unhealthyPodEvictionPolicy", default=None
    )


class PodDisruptionBudgetStatus(Value, frozen=True, kw_only=True):
    """The observed state of a PodDisruptionBudget."""

    disruptions_allowed: int = field(name="disruptionsAllowed", default=0)
    current_healthy: int = field(name="currentHealthy", default=0)
    desired_healthy: int = field(name="desiredHealthy", default=0)
    expected_pods: int = field(name="expectedPods", default=0)
    observed_generation: int = field(name="observedGeneration", default=0)


@kind(group="policy", version="v1", plural="poddisruptionbudgets", status=True, builtin=True)
class PodDisruptionBudget(Object, frozen=True, kw_only=True):
    """Limits the number of concurrent disruptions of a set of pods."""

    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)


KINDS: tuple[type[Object], ...] = (Pod, PodDisruptionBudget)
