"""
What a Machine needs next and says of itself: pure.

``Seen`` holds what the providers and the tenant say. A tenant that cannot be asked leaves the node
unknown, which is neither there nor gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from moxwell.api.capi.core import (
    Machine,
    MachineDeletionStatus,
    MachineInitialization,
    MachineStatus,
    NodeRef,
)
from moxwell.api.capi.shared import UNINITIALIZED_TAINT, MachineAddress
from moxwell.api.conditions import Condition, Truth
from moxwell.embedded.clusterapi.references import condition, is_provisioned
from moxwell.runtime.move import Done, Wait

Json = dict[str, Any]
_TRUTHS: Mapping[str, Truth] = {"True": "True", "False": "False"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What there is of a machine."""

    cluster_deleting: bool = False
    bootstrap: Json | None = None
    infrastructure: Json | None = None
    node: Json | None = None
    tenant: bool = True  # the tenant's API answers
    pods: tuple[Json, ...] = ()  # that must leave the node before its end
    attachments: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """Write into the Machine what its providers have found out."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Greet:
    """The node has come: take the taint off, put the labels on."""

    node: str
    change: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Drain:
    """Cordon the node and ask pods to leave."""

    node: str
    pods: tuple[tuple[str, str], ...]  # namespace, name


@dataclass(frozen=True, slots=True)
class DeleteInfrastructure:
    """The guest goes."""


@dataclass(frozen=True, slots=True)
class DeleteBootstrap:
    """Its data goes."""


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """The Node object goes."""

    node: str


Move = Link | Greet | Drain | DeleteInfrastructure | DeleteBootstrap | DeleteNode | Wait | Done


def next_move(machine: Machine, seen: Seen, now: datetime) -> Move:
    """The one thing to do next."""
    if machine.deleting:
        return _unmake(machine, seen, now)
    if changes := _links(machine, seen):
        return Link(changes)
    if not is_provisioned(seen.infrastructure):
        return Wait("WaitingForInfrastructure", _said(seen.infrastructure))
    if seen.node is None:
        return Wait("WaitingForNode", f"no node with provider ID {machine.spec.provider_id} yet")
    change = _greeting(machine, seen.node)
    return Greet(seen.node["metadata"]["name"], change) if change else Done()


def _links(machine: Machine, seen: Seen) -> Json:
    changes: Json = {}
    secret = ((seen.bootstrap or {}).get("status") or {}).get("dataSecretName")
    if secret and machine.spec.bootstrap.data_secret_name is None:
        changes["bootstrap"] = {"dataSecretName": secret}
    infra = seen.infrastructure or {}
    provider = (infra.get("spec") or {}).get("providerID")
    if provider and provider != machine.spec.provider_id and is_provisioned(infra):
        changes["providerID"] = provider
    return changes


def _greeting(machine: Machine, node: Json) -> Json:
    taints = node["spec"].get("taints") or []
    kept = [t for t in taints if t["key"] != UNINITIALIZED_TAINT]
    wanted = {k: v for k, v in machine.metadata.labels.items() if is_synced(k)}
    labels = node["metadata"].get("labels") or {}
    change: Json = {}
    if len(kept) != len(taints):
        change["spec"] = {"taints": kept or None}
    if any(labels.get(k) != v for k, v in wanted.items()):
        change["metadata"] = {"labels": wanted}
    return change


def is_synced(label: str) -> bool:
    """Labels of a Machine that its Node gets: roles, and those of the node domains."""
    domain = label.partition("/")[0]
    return domain in {"node-role.kubernetes.io", "node.cluster.x-k8s.io"} or domain.endswith(
        ("node-restriction.kubernetes.io", ".node.cluster.x-k8s.io")
    )


def _unmake(machine: Machine, seen: Seen, now: datetime) -> Move:
    node = seen.node["metadata"]["name"] if seen.node else ""
    move = _drain(machine, seen, node, now)
    if move is not None:
        return move
    if seen.infrastructure is not None:
        return DeleteInfrastructure()
    if seen.bootstrap is not None:
        return DeleteBootstrap()
    if node and not seen.cluster_deleting:
        return DeleteNode(node)
    return Done()


def _drain(machine: Machine, seen: Seen, node: str, now: datetime) -> Move | None:
    """Pods first, then volumes; each no longer than the Machine says."""
    if seen.infrastructure is None or seen.cluster_deleting:
        return None
    limits, since = machine.spec.deletion, machine.status.deletion or MachineDeletionStatus()
    if not seen.tenant and machine.status.node_ref is not None:
        if _over(machine.metadata.deletion_timestamp, limits.node_drain_timeout_seconds, now):
            return None
        return Wait(
            "WaitingForCluster", "the cluster's API does not answer; its node is not drained"
        )
    if seen.pods and not _over(since.node_drain_start_time, limits.node_drain_timeout_seconds, now):
        names = tuple((p["metadata"]["namespace"], p["metadata"]["name"]) for p in seen.pods)
        return Drain(node, names)
    begun = since.wait_for_node_volume_detach_start_time
    if seen.attachments and not _over(begun, limits.node_volume_detach_timeout_seconds, now):
        return Wait("WaitingForVolumeDetach", f"{seen.attachments} volumes are still attached")
    return None


def _over(since: datetime | None, seconds: int | None, now: datetime) -> bool:
    if not seconds or since is None:
        return False
    return now - since > timedelta(seconds=seconds)


def describe(machine: Machine, seen: Seen, move: Move, now: datetime) -> MachineStatus:
    """The status, from scratch."""
    infra, known = seen.infrastructure or {}, machine.status
    status = infra.get("status") or {}
    node = seen.node
    return MachineStatus(
        conditions=_conditions(machine, seen, move),
        initialization=MachineInitialization(
            infrastructure_provisioned=is_provisioned(infra)
            or known.initialization.infrastructure_provisioned,
            bootstrap_data_secret_created=machine.spec.bootstrap.data_secret_name is not None
            or None,
        ),
        node_ref=NodeRef(name=node["metadata"]["name"]) if node else known.node_ref,
        node_info=(node.get("status") or {}).get("nodeInfo") if node else known.node_info,
        addresses=_addresses(status) or known.addresses,
        failure_domain=str(status.get("failureDomain") or machine.spec.failure_domain),
        phase=_phase(machine, seen),
        observed_generation=machine.metadata.generation,
        deletion=_deletion(machine, move, now),
    )


def _addresses(status: Json) -> tuple[MachineAddress, ...]:
    rows = status.get("addresses") or ()
    return tuple(MachineAddress(type=a["type"], address=a["address"]) for a in rows)


def _deletion(machine: Machine, move: Move, now: datetime) -> MachineDeletionStatus | None:
    if not machine.deleting:
        return None
    known, at = machine.status.deletion or MachineDeletionStatus(), now.replace(microsecond=0)
    drained = known.node_drain_start_time or (at if isinstance(move, Drain) else None)
    waits = isinstance(move, Wait) and move.reason == "WaitingForVolumeDetach"
    detached = known.wait_for_node_volume_detach_start_time or (at if waits else None)
    return MachineDeletionStatus(
        node_drain_start_time=drained, wait_for_node_volume_detach_start_time=detached
    )


def _phase(machine: Machine, seen: Seen) -> str:
    if machine.deleting:
        return "Deleting"
    if seen.node is not None:
        return "Running"
    if is_provisioned(seen.infrastructure):
        return "Provisioned"
    ready = machine.spec.bootstrap.data_secret_name is not None
    return "Provisioning" if ready else "Pending"


def _conditions(machine: Machine, seen: Seen, move: Move) -> tuple[Condition, ...]:
    infra, boot = is_provisioned(seen.infrastructure), machine.spec.bootstrap.data_secret_name
    node, node_says = _node_truth(seen)
    parts = (
        _say("BootstrapConfigReady", "True" if boot else "False", "Ready" if boot else "NotReady"),
        _say(
            "InfrastructureReady",
            "True" if infra else "False",
            "Ready" if infra else _reason(seen.infrastructure),
            "" if infra else _said(seen.infrastructure),
        ),
        _say("NodeHealthy", node, "NodeHealthy" if node == "True" else "NodeNotHealthy", node_says),
        _say("NodeReady", node, "NodeReady" if node == "True" else "NodeNotReady", node_says),
    )
    first = next((c for c in parts if c.status != "True"), None)
    if machine.deleting:
        text = move.message if isinstance(move, Wait) else type(move).__name__
        return (
            *parts,
            _say("Ready", "False", "Deleting"),
            _say("Deleting", "True", "Deleting", text),
        )
    if first is None:
        return (*parts, _say("Ready", "True", "Ready"), _say("Available", "True", "Available"))
    ready = _say("Ready", first.status, first.reason, first.message)
    return (*parts, ready, _say("Available", "False", "NotReady"))


def _node_truth(seen: Seen) -> tuple[Truth, str]:
    if not seen.tenant:
        return "Unknown", "the cluster's API does not answer"
    if seen.node is None:
        return "False", "there is no node yet"
    said = condition(seen.node, "Ready") or {}
    truth = _TRUTHS.get(str(said.get("status")), "Unknown")
    return truth, "" if truth == "True" else str(said.get("message") or "the node is not ready")


def _say(kind: str, status: Truth, reason: str, message: str = "") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message)


def _reason(obj: Json | None) -> str:
    return str((condition(obj, "Ready") or {}).get("reason") or "NotReady")


def _said(obj: Json | None) -> str:
    if obj is None:
        return "there is no infrastructure object yet"
    return str((condition(obj, "Ready") or {}).get("message") or "")
