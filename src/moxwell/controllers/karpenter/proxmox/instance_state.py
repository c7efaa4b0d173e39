"""
Where the machine of a node claim is in its life, from its Machine and ProxmoxMachine. Pure.

A guest that Proxmox has no room for fails at once, so that the autoscaler tries another offering.
Problems that pass (a region that does not answer, a task that is repeated) leave it pending.
"""

from moxwell.api.capi.core import Machine
from moxwell.api.conditions import Condition
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.controllers.karpenter.provider import InstanceState, LaunchFailure, NodeInstance
from moxwell.controllers.karpenter.proxmox.instance_record import (
    CLAIM_NAME,
    CLAIM_UID,
    InstanceRecord,
    record_of,
)

NO_CAPACITY = frozenset(
    {
        "InsufficientResources",
        "QuotaExceeded",
        "StorageFull",
        "HostDown",
        "HostMissing",
        "HostUnreachable",
        "NoQuorum",
    }
)
LOST = frozenset({"Vanished"})
IN_PROGRESS = frozenset(
    {
        "Bootstrapping",
        "Cloning",
        "Configuring",
        "Migrating",
        "Starting",
        "TaskRunning",
        "WaitingForClones",
    }
)  # a step that fails has the reason of its error instead
NOT_MADE = frozenset(
    {
        "FailureDomainNotFound",
        "Invalid",
        "InvalidParameter",
        "InvalidTemplate",
        "NotOurs",
        "PermissionDenied",
        "RegionUnknown",
        "StartFailed",
        "TemplateAmbiguous",
        "TemplateNotFound",
        "Unsupported",
        "Vanished",
    }
)


def instance_of(machine: Machine, proxmox: ProxmoxMachine | None) -> NodeInstance | None:
    """The instance of a Machine; None if its guest is deleted or it has no record."""
    record = record_of(machine)
    if record is None or (machine.deleting and proxmox is None):
        return None
    if machine.deleting or (proxmox is not None and proxmox.deleting):
        return _instance(machine, record, InstanceState.TERMINATING, proxmox)
    if proxmox is None:
        return _instance(machine, record, InstanceState.PENDING, None)
    ready = _condition(proxmox)
    if proxmox.spec.provider_id:
        lost = ready is not None and ready.status != "True" and ready.reason in LOST
        state = InstanceState.LOST if lost else InstanceState.LAUNCHED
        return _instance(machine, record, state, proxmox)
    failure = failure_of(ready)
    state = InstanceState.FAILED if failure else InstanceState.PENDING
    message = ready.message if ready else ""
    return _instance(machine, record, state, proxmox, failure, message)


def failure_of(ready: Condition | None) -> LaunchFailure | None:
    """Why a machine cannot be made, from its Ready condition; None if it may still be."""
    if ready is None or ready.status == "True":
        return None
    if ready.reason in NO_CAPACITY:
        return LaunchFailure.INSUFFICIENT_CAPACITY
    return LaunchFailure.LAUNCH_FAILED if ready.reason in NOT_MADE else None


def _condition(proxmox: ProxmoxMachine) -> Condition | None:
    return next((c for c in proxmox.status.conditions if c.type == "Ready"), None)


def _is_in_progress(proxmox: ProxmoxMachine | None) -> bool:
    ready = _condition(proxmox) if proxmox is not None else None
    return ready is not None and ready.status != "True" and ready.reason in IN_PROGRESS


def _instance(
    machine: Machine,
    record: InstanceRecord,
    state: InstanceState,
    proxmox: ProxmoxMachine | None,
    failure: LaunchFailure | None = None,
    message: str = "",
) -> NodeInstance:
    return NodeInstance(
        claim=machine.metadata.annotations.get(CLAIM_NAME, ""),
        uid=machine.metadata.labels.get(CLAIM_UID, ""),
        state=state,
        provider_id=proxmox.spec.provider_id if proxmox else "",
        image_id=record.image_id,
        labels=record.labels,
        capacity=record.capacity,
        allocatable=record.allocatable,
        failure=failure,
        message=message,
        in_progress=_is_in_progress(proxmox),
    )
