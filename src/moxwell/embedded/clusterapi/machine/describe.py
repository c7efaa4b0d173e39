"""The status of a Machine. Pure; derived from its parts and annotations, never from itself."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from moxwell.api.capi.core import (
    Machine,
    MachineDeletionStatus,
    MachineInitialization,
    MachineNodeReference,
    MachineStatus,
)
from moxwell.api.capi.shared import MachineAddress
from moxwell.api.conditions import Condition, ConditionStatus
from moxwell.embedded.clusterapi.machine.plan import (
    DETACH_STARTED,
    DRAIN_STARTED,
    NODE_NAME,
    Drain,
    MachineMove,
    MachineReason,
    ObservedMachine,
    infrastructure_message,
    started,
)
from moxwell.embedded.clusterapi.references import condition, is_provisioned
from moxwell.runtime.move import Wait

Json = dict[str, Any]
_TRUTHS: Mapping[str, ConditionStatus] = {"True": "True", "False": "False"}


def describe(machine: Machine, seen: ObservedMachine, move: MachineMove) -> MachineStatus | None:
    """The status; an unreachable tenant leaves the node reference as recorded."""
    if seen.answer_awaited:
        return None
    infrastructure = seen.infrastructure_body
    reported = (infrastructure or {}).get("status") or {}
    node = seen.node_name or machine.metadata.annotations.get(NODE_NAME, "")
    return MachineStatus(
        conditions=_conditions(machine, seen, move),
        initialization=MachineInitialization(
            infrastructure_provisioned=is_provisioned(infrastructure),
            bootstrap_data_secret_created=machine.spec.bootstrap.data_secret_name is not None
            or None,
        ),
        node_ref=MachineNodeReference(name=node) if node else None,
        node_info=((seen.node or {}).get("status") or {}).get("nodeInfo"),
        addresses=_addresses(reported),
        failure_domain=str(reported.get("failureDomain") or machine.spec.failure_domain),
        phase=_phase(machine, seen),
        observed_generation=machine.metadata.generation,
        deletion=_deletion(machine, move, seen.now) if machine.deleting else None,
    )


def _addresses(reported: Json) -> tuple[MachineAddress, ...]:
    found = reported.get("addresses") or ()
    return tuple(MachineAddress(type=a["type"], address=a["address"]) for a in found)


def _deletion(machine: Machine, move: MachineMove, now: datetime) -> MachineDeletionStatus:
    at = now.replace(microsecond=0)
    waits = getattr(move, "reason", "") == MachineReason.WAITING_FOR_VOLUME_DETACH
    return MachineDeletionStatus(
        node_drain_start_time=started(machine, DRAIN_STARTED)
        or (at if isinstance(move, Drain) else None),
        wait_for_node_volume_detach_start_time=started(machine, DETACH_STARTED)
        or (at if waits else None),
    )


def _phase(machine: Machine, seen: ObservedMachine) -> str:
    if machine.deleting:
        return "Deleting"
    if seen.node is not None:
        return "Running"
    if is_provisioned(seen.infrastructure_body):
        return "Provisioned"
    ready = machine.spec.bootstrap.data_secret_name is not None
    return "Provisioning" if ready else "Pending"


def _conditions(
    machine: Machine, seen: ObservedMachine, move: MachineMove
) -> tuple[Condition, ...]:
    parts = _parts(machine, seen)
    if machine.deleting:
        reason = getattr(move, "reason", "") or MachineReason.DELETING
        message = move.message if isinstance(move, Wait) else ""
        return (
            *parts,
            _condition("Ready", "False", MachineReason.DELETING),
            _condition("Deleting", "True", reason, message),
        )
    first = next((c for c in parts if c.status != "True"), None)
    if first is None:
        ready = _condition("Ready", "True", MachineReason.READY)
        return (*parts, ready, _condition("Available", "True", MachineReason.AVAILABLE))
    ready = _condition("Ready", first.status, first.reason, first.message)
    return (*parts, ready, _condition("Available", "False", MachineReason.NOT_READY))


def _parts(machine: Machine, seen: ObservedMachine) -> tuple[Condition, ...]:
    infrastructure, bootstrap = seen.infrastructure_body, machine.spec.bootstrap.data_secret_name
    provisioned, (node, message) = is_provisioned(infrastructure), _node_truth(seen)
    reported = condition(infrastructure, "Ready") or {}
    healthy, ready = MachineReason.NODE_HEALTHY, MachineReason.NODE_READY
    if node != "True":
        healthy, ready = MachineReason.NODE_NOT_HEALTHY, MachineReason.NODE_NOT_READY
    return (
        _ready("BootstrapConfigReady", bool(bootstrap), MachineReason.NOT_READY),
        _ready(
            "InfrastructureReady",
            provisioned,
            str(reported.get("reason") or MachineReason.NOT_READY),
            infrastructure_message(seen),
        ),
        _condition("NodeHealthy", node, healthy, message),
        _condition("NodeReady", node, ready, message),
    )


def _ready(kind: str, true: bool, otherwise: str, message: str = "") -> Condition:
    if true:
        return _condition(kind, "True", MachineReason.READY)
    return _condition(kind, "False", otherwise, message)


def _node_truth(seen: ObservedMachine) -> tuple[ConditionStatus, str]:
    if not seen.tenant_answers:
        return "Unknown", "the API of the cluster does not answer"
    if seen.node is None:
        return "False", "the node does not exist yet"
    reported = condition(seen.node, "Ready") or {}
    truth = _TRUTHS.get(str(reported.get("status")), "Unknown")
    return truth, "" if truth == "True" else str(reported.get("message") or "the node is not ready")


def _condition(kind: str, status: ConditionStatus, reason: str, message: str = "") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message)
