"""What the controller of node claims observes."""

from dataclasses import dataclass
from datetime import datetime

from moxwell.api.core.nodes import Node
from moxwell.controllers.karpenter.node_termination import NodeTermination
from moxwell.controllers.karpenter.provider import InstanceState, NodeInstance
from moxwell.scheduling.well_known_labels import REGISTERED


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """The part of the status that is input, as in Karpenter: the machine and the node."""

    provider_id: str = ""
    launched: datetime | None = None  # when the machine existed first
    image_id: str = ""
    node_name: str = ""
    capacity: tuple[tuple[str, str | int], ...] = ()
    allocatable: tuple[tuple[str, str | int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTimeouts:
    """
    How long a node claim may take; then it is deleted and the provisioner decides again.

    A launch that Proxmox works on may take longer: a full clone takes as long as its storage needs.
    """

    launch_seconds: float = 300.0  # from the creation of the claim
    registration_seconds: float = 900.0  # from the launch


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedNodeClaim:
    """The machine of a node claim, its nodes, and how far their termination is."""

    now: datetime
    instance: NodeInstance | None = None
    record: LaunchRecord = LaunchRecord()
    nodes: tuple[Node, ...] = ()
    terminations: tuple[NodeTermination, ...] = ()
    timeouts: ClaimTimeouts = ClaimTimeouts()

    @property
    def is_launched(self) -> bool:
        """Whether the machine exists, or existed once."""
        if self.record.provider_id:
            return True
        instance = self.instance
        if instance is None or not instance.provider_id:
            return False
        return instance.state is InstanceState.LAUNCHED

    @property
    def node(self) -> Node | None:
        """The node of the machine; None while there is none or more than one."""
        return self.nodes[0] if len(self.nodes) == 1 else None

    @property
    def is_registered(self) -> bool:
        """Whether the node registered, or had registered before it disappeared."""
        if self.node is None:
            return bool(self.record.node_name) and not self.nodes
        return self.node.metadata.labels.get(REGISTERED) == "true"
