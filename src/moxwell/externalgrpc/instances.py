"""Machines of a node group as instances, and the errors of those that cannot be made. Pure."""

from dataclasses import dataclass
from enum import IntEnum

from moxwell.api.capi.core import Machine
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.machine_reasons import CANNOT_BE_CREATED, NO_CAPACITY
from moxwell.externalgrpc.node_groups import unnamed_id


class InstancePhase(IntEnum):
    """The values of ``InstanceStatus.InstanceState``."""

    RUNNING = 1
    CREATING = 2
    DELETING = 3


class ErrorClass(IntEnum):
    """The classes of Cluster Autoscaler: after the first it tries another group at once."""

    OUT_OF_RESOURCES = 1
    OTHER = 99


@dataclass(frozen=True, slots=True)
class GroupInstance:
    """A machine as Cluster Autoscaler sees it."""

    id: str
    phase: InstancePhase
    error: str = ""
    message: str = ""
    error_class: ErrorClass = ErrorClass.OTHER


def instance_of(machine: Machine, proxmox: ProxmoxMachine | None) -> GroupInstance:
    """A machine runs once its node has joined."""
    ident = machine.spec.provider_id or unnamed_id(machine)
    if machine.deleting:
        return GroupInstance(ident, InstancePhase.DELETING)
    if machine.status.node_ref is not None:
        return GroupInstance(ident, InstancePhase.RUNNING)
    conditions = proxmox.status.conditions if proxmox is not None else ()
    ready = next((c for c in conditions if c.type == "Ready" and c.status != "True"), None)
    if ready is None or ready.reason not in NO_CAPACITY | CANNOT_BE_CREATED:
        return GroupInstance(ident, InstancePhase.CREATING)
    kind = ErrorClass.OUT_OF_RESOURCES if ready.reason in NO_CAPACITY else ErrorClass.OTHER
    return GroupInstance(ident, InstancePhase.CREATING, ready.reason, ready.message, kind)
