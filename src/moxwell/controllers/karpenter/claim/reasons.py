"""The reasons of ``karpenter.claim``, which are Karpenter's."""

from enum import StrEnum


class NodeClaimReason(StrEnum):
    """Reasons of the conditions, waits and events of node claims."""

    LAUNCHING = "Launching"
    LAUNCH_FAILED = "LaunchFailed"
    NODE_NOT_FOUND = "NodeNotFound"
    MULTIPLE_NODES_FOUND = "MultipleNodesFound"
    UNINITIALIZED = "Uninitialized"
    NODE_NOT_READY = "NodeNotReady"
    STARTUP_TAINTS_EXIST = "StartupTaintsExist"
    KNOWN_EPHEMERAL_TAINTS_EXIST = "KnownEphemeralTaintsExist"
    RESOURCE_NOT_REGISTERED = "ResourceNotRegistered"
    DRAINING = "Draining"
    AWAITING_VOLUME_DETACHMENT = "AwaitingVolumeDetachment"
    TERMINATION_GRACE_PERIOD_ELAPSED = "TerminationGracePeriodElapsed"
    DELETING_NODE = "DeletingNode"
    INSTANCE_TERMINATING = "InstanceTerminating"
    INSUFFICIENT_CAPACITY = "InsufficientCapacityError"
    NODE_CLASS_NOT_READY = "NodeClassNotReady"
    UNREGISTERED_TAINT_MISSING = "UnregisteredTaintMissing"
    CONSISTENCY_CHECK_FAILED = "ConsistencyCheckFailed"
    FAILED_CONSISTENCY_CHECK = "FailedConsistencyCheck"
    TERMINATION_GRACE_PERIOD_EXPIRING = "TerminationGracePeriodExpiring"
