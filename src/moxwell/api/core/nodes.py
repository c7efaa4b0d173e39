"""The core/v1 Node."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import field

from moxwell.api.conditions import ConditionStatus
from moxwell.api.kinds import Object, kind
from moxwell.api.meta import Value

QuantityText = str | int


class Taint(Value, frozen=True, kw_only=True):
    """A taint on a Node."""

    key: str
    value: str = ""
    effect: str
    time_added: datetime | None = field(name="timeAdded", default=None)


class NodeSpec(Value, frozen=True, kw_only=True):
    """The desired state of a Node."""

    provider_id: str = field(name="providerID", default="")
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pod_cidr: str = field(name="podCIDR", default="")
    pod_cidrs: tuple[str, ...] = field(name="podCIDRs", default=())


class NodeAddress(Value, frozen=True, kw_only=True):
    type: str
    address: str


class NodeCondition(Value, frozen=True, kw_only=True):
    """A condition of a Node."""

    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""
    last_heartbeat_time: datetime | None = field(name="lastHeartbeatTime", default=None)
    last_transition_time: datetime | None = field(name="lastTransitionTime", default=None)


class NodeSystemInfo(Value, frozen=True, kw_only=True):
    """System information of a Node; all fields are always encoded, as the schema requires them."""

    machine_id: str = field(name="machineID", default="")
    system_uuid: str = field(name="systemUUID", default="")
    boot_id: str = field(name="bootID", default="")
    kernel_version: str = field(name="kernelVersion", default="")
    os_image: str = field(name="osImage", default="")
    container_runtime_version: str = field(name="containerRuntimeVersion", default="")
    kubelet_version: str = field(name="kubeletVersion", default="")
    kube_proxy_version: str = field(name="kubeProxyVersion", default="")
    operating_system: str = field(name="operatingSystem", default="")
    architecture: str = ""


class AttachedVolume(Value, frozen=True, kw_only=True):
    name: str
    device_path: str = field(name="devicePath", default="")


class NodeStatus(Value, frozen=True, kw_only=True):
    """The observed state of a Node, as the kubelet reports it."""

    capacity: Mapping[str, QuantityText] = field(default_factory=dict)
    allocatable: Mapping[str, QuantityText] = field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    node_info: NodeSystemInfo = field(name="nodeInfo", default_factory=NodeSystemInfo)
    volumes_in_use: tuple[str, ...] = field(name="volumesInUse", default=())
    volumes_attached: tuple[AttachedVolume, ...] = field(name="volumesAttached", default=())

    def is_true(self, type_: str) -> bool:
        """Report whether the condition is True."""
        return any(c.type == type_ and c.status == "True" for c in self.conditions)

    def changed_at(self, type_: str) -> datetime | None:
        """When the condition became what it is; None if it is missing or does not say."""
        return next((c.last_transition_time for c in self.conditions if c.type == type_), None)


@kind(group="", version="v1", plural="nodes", scope="Cluster", status=True, builtin=True)
class Node(Object, frozen=True, kw_only=True):
    """A core/v1 Node."""

    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


KINDS: tuple[type[Object], ...] = (Node,)
