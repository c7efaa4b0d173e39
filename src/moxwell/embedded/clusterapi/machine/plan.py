"""
The next move of a Machine. Pure.

A tenant API that does not answer leaves the node unknown, which is neither present nor gone.
Two facts must outlive a pass and the status: the name of the node and the start of the drain and
of the wait for volumes. They are annotations of the Machine (``NODE_NAME``, ``DRAIN_STARTED``,
``DETACH_STARTED``), so that ``clusterctl move`` keeps them; the status is derived from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.capi.shared import UNINITIALIZED_TAINT
from moxwell.api.meta import parse_time
from moxwell.embedded.clusterapi.references import (
    adoption,
    condition,
    is_provisioned,
)
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.unstructured import Unstructured
from moxwell.runtime.writes import Merge, Write, Writes

Json = dict[str, Any]
WAIT_SECONDS = 5.0
UNREACHABLE_GRACE = 1  # seconds for pods of a silent kubelet
NODE_CHECK_SECONDS = 20.0  # between two reads of the node of a running machine
NODE_NAME = "moxwell.dev/node-name"
DRAIN_STARTED = "moxwell.dev/node-drain-start-time"
DETACH_STARTED = "moxwell.dev/volume-detach-start-time"


class MachineReason(StrEnum):
    """Reasons of the conditions and moves of a Machine; Cluster API's words where it has them."""

    READY = "Ready"
    NOT_READY = "NotReady"
    AVAILABLE = "Available"
    NODE_HEALTHY = "NodeHealthy"
    NODE_NOT_HEALTHY = "NodeNotHealthy"
    NODE_READY = "NodeReady"
    NODE_NOT_READY = "NodeNotReady"
    DELETING = "Deleting"
    WAITING_FOR_INFRASTRUCTURE = "WaitingForInfrastructure"
    WAITING_FOR_NODE = "WaitingForNode"
    WAITING_FOR_CLUSTER = "WaitingForCluster"
    DRAINING_NODE = "DrainingNode"
    WAITING_FOR_VOLUME_DETACH = "WaitingForVolumeDetach"
    DELETING_INFRASTRUCTURE = "WaitingForInfrastructureDeletion"
    DELETING_BOOTSTRAP = "WaitingForBootstrapDeletion"
    DELETING_NODE = "DeletingNode"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedMachine:
    """The parts of a Machine."""

    now: datetime
    cluster_deleting: bool = False
    bootstrap: Unstructured | None = None
    infrastructure: Unstructured | None = None
    node: Json | None = None
    tenant_answers: bool = True
    answer_awaited: bool = False  # what was known of the node stays for a while
    pods: tuple[tuple[str, str], ...] = ()  # namespace and name; to be evicted before deletion
    attachments: int = 0

    @property
    def infrastructure_body(self) -> Json | None:
        return self.infrastructure.obj if self.infrastructure else None

    @property
    def node_name(self) -> str:
        return str(self.node["metadata"]["name"]) if self.node else ""


@dataclass(frozen=True, slots=True)
class InitializeNode:
    """Remove the uninitialized taint, set labels, and record the node's name on the Machine."""

    tenant: Key
    node: str
    change: Mapping[str, Any]
    record: Merge | None


def is_unreachable(node: Json | None) -> bool:
    """Whether the kubelet of a node is silent: its pods never end, its volumes are not detached."""
    return (condition(node, "Ready") or {}).get("status") == "Unknown"


@dataclass(frozen=True, slots=True)
class Drain:
    """Cordon the node and evict its pods; ``record`` stores the start time on the Machine."""

    tenant: Key
    node: str
    pods: tuple[tuple[str, str], ...] = field(repr=False)
    record: Merge | None = None
    grace: int | None = None  # seconds; None: as each pod asks
    reason: str = MachineReason.DRAINING_NODE
    requeue_after: float = WAIT_SECONDS


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Delete the Node object in the tenant cluster."""

    tenant: Key
    node: str
    reason: str = MachineReason.DELETING_NODE


MachineMove = Writes | InitializeNode | Drain | DeleteNode | Wait | Done


def next_move(machine: Machine, seen: ObservedMachine) -> MachineMove:
    """Connect the providers' objects and the node, or delete them in order."""
    if machine.deleting:
        return _deletion(machine, seen)
    if writes := _links(machine, seen):
        return Writes(writes)
    if not is_provisioned(seen.infrastructure_body):
        reason = MachineReason.WAITING_FOR_INFRASTRUCTURE
        return Wait(reason, infrastructure_message(seen), WAIT_SECONDS)
    if seen.node is None:
        message = f"no node with provider ID {machine.spec.provider_id} yet"
        return Wait(MachineReason.WAITING_FOR_NODE, message, WAIT_SECONDS)
    change, record = _node_change(machine, seen.node), _record(machine, NODE_NAME, seen.node_name)
    if change or record:
        return InitializeNode(tenant_key(machine), seen.node_name, change, record)
    return Done(NODE_CHECK_SECONDS)


def tenant_key(machine: Machine) -> Key:
    return Key(machine.namespace, machine.spec.cluster_name)


def infrastructure_message(seen: ObservedMachine) -> str:
    """The message of the provider's Ready condition."""
    if seen.infrastructure is None:
        return "the infrastructure object does not exist yet"
    return str((condition(seen.infrastructure.obj, "Ready") or {}).get("message") or "")


def _links(machine: Machine, seen: ObservedMachine) -> tuple[Write, ...]:
    """Adoption of the providers' objects, and what they have found out, copied to the Machine."""
    changes: Json = {}
    bootstrap = seen.bootstrap.obj if seen.bootstrap else {}
    secret = (bootstrap.get("status") or {}).get("dataSecretName")
    if secret and machine.spec.bootstrap.data_secret_name is None:
        changes["bootstrap"] = {"dataSecretName": secret}
    infrastructure = seen.infrastructure_body or {}
    provider = (infrastructure.get("spec") or {}).get("providerID")
    if provider and provider != machine.spec.provider_id and is_provisioned(infrastructure):
        changes["providerID"] = provider
    parts = (seen.bootstrap, seen.infrastructure)
    writes: list[Write | None] = [adoption(p, machine, machine.spec.cluster_name) for p in parts]
    if changes:
        writes.append(Merge(Machine, machine.name, {"spec": changes}, machine.namespace))
    return tuple(w for w in writes if w is not None)


def _node_change(machine: Machine, node: Json) -> Json:
    taints = node["spec"].get("taints") or []
    kept = [t for t in taints if t["key"] != UNINITIALIZED_TAINT]
    desired = {k: v for k, v in machine.metadata.labels.items() if is_synced(k)}
    labels = node["metadata"].get("labels") or {}
    change: Json = {}
    if len(kept) != len(taints):
        change["spec"] = {"taints": kept or None}
    if any(labels.get(k) != v for k, v in desired.items()):
        change["metadata"] = {"labels": desired}
    return change


def is_synced(label: str) -> bool:
    """Labels that Cluster API copies from the Machine to the Node: roles and node domains."""
    domain = label.partition("/")[0]
    return domain in {"node-role.kubernetes.io", "node.cluster.x-k8s.io"} or domain.endswith(
        ("node-restriction.kubernetes.io", ".node.cluster.x-k8s.io")
    )


def _record(machine: Machine, annotation: str, value: str) -> Merge | None:
    if machine.metadata.annotations.get(annotation) == value:
        return None
    change = {"metadata": {"annotations": {annotation: value}}}
    return Merge(Machine, machine.name, change, machine.namespace)


def _deletion(machine: Machine, seen: ObservedMachine) -> MachineMove:
    """Drain, then the infrastructure, the bootstrap configuration and the Node."""
    if (move := _drain(machine, seen)) is not None:
        return move
    if seen.infrastructure is not None:
        return _delete(seen.infrastructure, MachineReason.DELETING_INFRASTRUCTURE)
    if seen.bootstrap is not None:
        return _delete(seen.bootstrap, MachineReason.DELETING_BOOTSTRAP)
    if seen.node_name and not seen.cluster_deleting:
        return DeleteNode(tenant_key(machine), seen.node_name)
    return Done()


def _delete(part: Unstructured, reason: MachineReason) -> MachineMove:
    if part.deleting:
        return Wait(reason, f"{part.resource.kind} {part.name} is being deleted", WAIT_SECONDS)
    return Writes((part.delete(),), reason, WAIT_SECONDS)


def _drain(machine: Machine, seen: ObservedMachine) -> MachineMove | None:
    """Evict pods, then wait for volumes; each no longer than the Machine's timeouts."""
    if seen.infrastructure is None or seen.cluster_deleting:
        return None
    limits = machine.spec.deletion
    if not seen.tenant_answers and NODE_NAME in machine.metadata.annotations:
        since = machine.metadata.deletion_timestamp
        if _is_over(since, limits.node_drain_timeout_seconds, seen.now):
            return None
        message = "the API of the cluster does not answer; the node is not drained"
        return Wait(MachineReason.WAITING_FOR_CLUSTER, message, WAIT_SECONDS)
    begun = started(machine, DRAIN_STARTED)
    if seen.pods and not _is_over(begun, limits.node_drain_timeout_seconds, seen.now):
        record = None if begun else _record(machine, DRAIN_STARTED, stamp(seen.now))
        grace = UNREACHABLE_GRACE if is_unreachable(seen.node) else None
        return Drain(tenant_key(machine), seen.node_name, seen.pods, record, grace)
    begun = started(machine, DETACH_STARTED)
    if seen.attachments and not _is_over(
        begun, limits.node_volume_detach_timeout_seconds, seen.now
    ):
        return _wait_for_detach(machine, seen, begun)
    return None


def _wait_for_detach(
    machine: Machine, seen: ObservedMachine, begun: datetime | None
) -> MachineMove:
    reason = MachineReason.WAITING_FOR_VOLUME_DETACH
    record = None if begun else _record(machine, DETACH_STARTED, stamp(seen.now))
    if record is not None:
        return Writes((record,), reason, WAIT_SECONDS)
    return Wait(reason, f"{seen.attachments} volumes are still attached", WAIT_SECONDS)


def stamp(at: datetime) -> str:
    """A time as the annotations store it."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def started(machine: Machine, annotation: str) -> datetime | None:
    """The time that an annotation of the Machine records."""
    text = machine.metadata.annotations.get(annotation, "")
    return parse_time(text) if text else None


def _is_over(since: datetime | None, seconds: int | None, now: datetime) -> bool:
    if not seconds or since is None:
        return False
    return now - since > timedelta(seconds=seconds)
