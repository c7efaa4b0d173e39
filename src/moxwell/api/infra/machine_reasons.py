"""
The reasons of the conditions of a ProxmoxMachine, for its controller and for those who read them.

A pass that fails writes the reason of the error to the condition Ready; ``MachineErrorReason``
lists those that other parts of Moxwell distinguish.
"""

from enum import StrEnum


class ProxmoxMachineReason(StrEnum):
    """Reasons of the conditions of a ProxmoxMachine, of ``Wait`` moves and of events."""

    # nothing to wait for
    PROVISIONED = "Provisioned"
    # another object must change first
    WAITING_FOR_MACHINE = "WaitingForMachine"
    WAITING_FOR_CLUSTER = "WaitingForCluster"
    WAITING_FOR_CLUSTER_INFRASTRUCTURE = "WaitingForClusterInfrastructure"
    WAITING_FOR_BOOTSTRAP_DATA = "WaitingForBootstrapData"
    WAITING_FOR_ADDRESSES = "WaitingForAddresses"
    WAITING_FOR_NODE = "WaitingForNode"  # the machine itself is complete
    # Proxmox
    REGION_UNKNOWN = "RegionUnknown"
    REGION_UNREACHABLE = "RegionUnreachable"
    HOST_DOWN = "HostDown"
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    QUOTA_EXCEEDED = "QuotaExceeded"
    TASK_RUNNING = "TaskRunning"
    WAITING_FOR_CLONES = "WaitingForClones"  # as many full clones run as are allowed
    LOCKED = "Locked"
    VMID_TAKEN = "VMIDTaken"
    VANISHED = "Vanished"
    NOT_OURS = "NotOurs"
    STOPPED = "Stopped"
    WARM = "Warm"  # a warm guest waits for a node claim
    PAUSED = "Paused"
    SUSPENDED = "Suspended"
    GUEST_FAILED = "GuestFailed"
    OUTSIDE_TENANT = "OutsideTenant"
    # stages
    PLACING = "Placing"
    ADOPTING = "Adopting"
    CLONING = "Cloning"
    MIGRATING = "Migrating"
    BOOTSTRAPPING = "Bootstrapping"
    CONFIGURING = "Configuring"
    STARTING = "Starting"
    WAITING_FOR_HA = "WaitingForHA"
    WAITING_FOR_BOOTSTRAP = "WaitingForBootstrap"
    WAITING_FOR_GUEST = "WaitingForGuest"
    DELETING = "Deleting"
    # condition NoStaleClones
    STALE_CLONE = "StaleClone"
    NO_STALE_CLONES = "NoStaleClones"
    # condition UpToDate: why a setting of the spec is not applied, or a removed one still is
    UP_TO_DATE = "UpToDate"
    HA_RULE_NOT_FOUND = "HARuleNotFound"
    HA_RULE_KEPT = "HARuleKept"
    FIREWALL_GROUP_NOT_FOUND = "FirewallGroupNotFound"
    SLOT_TAKEN = "SlotTaken"
    DISK_KEPT = "DiskKept"
    # events only
    PLACED = "Placed"
    ADDRESS_TAKEN = "AddressTaken"


class MachineErrorReason(StrEnum):
    """Reasons of errors, as a pass that fails writes them to the condition Ready."""

    DENIED = "Denied"
    FAILURE_DOMAIN_NOT_FOUND = "FailureDomainNotFound"
    HOST_MISSING = "HostMissing"
    HOST_UNREACHABLE = "HostUnreachable"
    INVALID = "Invalid"
    INVALID_PARAMETER = "InvalidParameter"
    NO_QUORUM = "NoQuorum"
    PERMISSION_DENIED = "PermissionDenied"
    START_FAILED = "StartFailed"
    STORAGE_FULL = "StorageFull"
    TEMPLATE_AMBIGUOUS = "TemplateAmbiguous"
    TEMPLATE_NOT_FOUND = "TemplateNotFound"
    UNSUPPORTED = "Unsupported"


# another offering, node group or time may have room
NO_CAPACITY = frozenset(
    {
        ProxmoxMachineReason.INSUFFICIENT_RESOURCES,
        ProxmoxMachineReason.QUOTA_EXCEEDED,
        ProxmoxMachineReason.HOST_DOWN,
        MachineErrorReason.HOST_MISSING,
        MachineErrorReason.HOST_UNREACHABLE,
        MachineErrorReason.NO_QUORUM,
        MachineErrorReason.STORAGE_FULL,
    }
)
# the same machine is not created before somebody changes something
CANNOT_BE_CREATED = frozenset(
    {
        ProxmoxMachineReason.NOT_OURS,
        ProxmoxMachineReason.REGION_UNKNOWN,
        ProxmoxMachineReason.VANISHED,
        MachineErrorReason.FAILURE_DOMAIN_NOT_FOUND,
        MachineErrorReason.INVALID,
        MachineErrorReason.INVALID_PARAMETER,
        MachineErrorReason.PERMISSION_DENIED,
        MachineErrorReason.START_FAILED,
        MachineErrorReason.TEMPLATE_AMBIGUOUS,
        MachineErrorReason.TEMPLATE_NOT_FOUND,
        MachineErrorReason.UNSUPPORTED,
    }
)
