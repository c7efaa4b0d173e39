"""
Where the machine of a node claim is in its life, from its Machine and ProxmoxMachine. Pure.

A guest that Proxmox has no room for fails at once, so that the autoscaler tries another offering.
Problems that pass (a region that does not answer, a task that is repeated) leave it pending.
"""

from moxwell.api.capi.core import Machine
from moxwell.api.conditions import Condition
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.machine_reasons import (
    CANNOT_BE_CREATED,
    NO_CAPACITY,
    ProxmoxMachineReason,
)
from moxwell.controllers.karpenter.provider import InstanceState, LaunchFailure, NodeInstance
from moxwell.controllers.karpenter.proxmox.instance_record import (
    CLAIM_NAME,
    CLAIM_UID,
    InstanceRecord,
    record_of,
)

IN_PROGRESS = frozenset(
    {
        ProxmoxMachineReason.BOOTSTRAPPING,
        ProxmoxMachineReason.CLONING,
        ProxmoxMachineReason.CONFIGURING,
        ProxmoxMachineReason.MIGRATING,
        ProxmoxMachineReason.STARTING,
        ProxmoxMachineReason.TASK_RUNNING,
        ProxmoxMachineReason.WAITING_FOR_CLONES,
    }
)  # a step that fails has the reason of its error instead


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
        state = InstanceState.LOST if _is_lost(ready) else InstanceState.LAUNCHED
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
    return LaunchFailure.LAUNCH_FAILED if ready.reason in CANNOT_BE_CREATED else None


def _condition(proxmox: ProxmoxMachine) -> Condition | None:
    return next((c for c in proxmox.status.conditions if c.type == "Ready"), None)


def _is_lost(ready: Condition | None) -> bool:
    if ready is None or ready.status == "True":
        return False
    return ready.reason == ProxmoxMachineReason.VANISHED


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
