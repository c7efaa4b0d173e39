"""
The interface between the autoscaler and what creates its machines: Karpenter's CloudProvider.

Reading and writing are two protocols, so that ``see`` cannot write. Every write is idempotent: the
UID of the node claim identifies the instance, and a repeated call continues what an earlier one
began.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.spot_room import RoomNeed, SpotGuest, SpotInterruption


class InstanceState(StrEnum):
    """Where an instance is in its life."""

    PENDING = "Pending"  # asked for; Proxmox has no guest of it yet, or its clone is not finished
    LAUNCHED = "Launched"  # the guest exists and has a provider id
    FAILED = "Failed"  # it cannot be made; ``failure`` and ``message`` say why
    TERMINATING = "Terminating"  # deletion has begun
    LOST = "Lost"  # it was launched, and Proxmox has no guest of it any more


class LaunchFailure(StrEnum):
    """Why an instance cannot be made, with the reasons of Karpenter's Launched condition."""

    INSUFFICIENT_CAPACITY = "InsufficientCapacity"  # another offering may have room
    NODE_CLASS_NOT_READY = "NodeClassNotReady"
    LAUNCH_FAILED = "LaunchFailed"


@dataclass(frozen=True, slots=True)
class NodeInstance:
    """The machine of a node claim, as the provider observes it."""

    claim: str  # the name of the node claim
    uid: str  # the UID of the node claim
    state: InstanceState
    provider_id: str = ""
    image_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # instance type, zone, capacity type …
    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    failure: LaunchFailure | None = None
    message: str = ""
    in_progress: bool = False  # Proxmox works on it, for example copies its disk


@dataclass(frozen=True, slots=True)
class NodeClassState:
    """Whether machines can be made from a node class, and the hash that drift compares."""

    ready: bool
    reason: str = ""
    message: str = ""


class InstanceReader(Protocol):
    """What the autoscaler may ask; every method answers from caches and writes nothing."""

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """The types that the node class of a pool can make now, with offerings per host."""

    async def node_class(self, pool: NodePool) -> NodeClassState | None:
        """The state of a pool's node class; None if it does not exist."""

    async def instance(self, claim: NodeClaim) -> NodeInstance | None:
        """The machine of a node claim; None before ``launch`` and after it is gone."""

    async def instances(self) -> tuple[NodeInstance, ...]:
        """Every machine that this autoscaler made for the cluster, for garbage collection."""

    async def drift(self, claim: NodeClaim) -> str:
        """Why the machine differs from its node class, as a reason; empty if it does not."""

    async def spot_guests(self) -> tuple[SpotGuest, ...]:
        """The spot guests that may be deleted to free capacity."""

    async def interruptions(self, pods: Iterable[RoomNeed]) -> tuple[SpotInterruption, ...]:
        """The machines that must end now, since pods or others need their room."""


class InstanceWriter(Protocol):
    """What the autoscaler may cause. Calls return at once; the reader shows the progress."""

    async def launch(self, claim: NodeClaim) -> None:
        """Begin or continue to make the machine of a node claim."""

    async def terminate(self, claim: str, uid: str) -> None:
        """Begin or continue to delete the machine of a node claim."""


class MachineProvider(InstanceReader, InstanceWriter, Protocol):
    """Both halves, as the setup receives them."""
