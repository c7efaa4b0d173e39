"""
The next move and the status of a TalosControlPlane. Pure.

The Machines are made one after the other. The UID of the first one is recorded in an annotation,
and then Talos on it is asked to begin etcd: again and again until it has a node, because Talos
keeps the request in memory, and answers that etcd has data once it has. No other machine is asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from moxwell.api.capi.core import Cluster, Machine, MachineDeletion
from moxwell.api.capi.shared import CLUSTER_NAME, CONTROL_PLANE_LABEL
from moxwell.api.capi.talos import (
    TalosConfig,
    TalosControlPlane,
    TalosControlPlaneStatus,
)
from moxwell.api.conditions import ConditionStatus, LegacyCondition
from moxwell.api.kinds import owner_reference
from moxwell.api.meta import ObjectMeta
from moxwell.bootstrap.talos_secrets import TalosSecrets
from moxwell.embedded.clusterapi.control_plane_machines import (
    POLL_SECONDS,
    MachineDesign,
    deletion,
    has_joined,
    has_node,
    new_machine,
)
from moxwell.embedded.clusterapi.machines import is_ready
from moxwell.embedded.clusterapi.machineset.plan import MissingPart, new_part
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Create, Merge, Write, Writes

Json = dict[str, Any]
AVAILABLE = "Available"
RENEW_SECONDS = 12 * 3600.0
ETCD_MACHINE = "moxwell.dev/etcd-machine"  # annotation: the UID of the Machine where etcd begins
LOST = (
    "the machine on which etcd began is gone, and no other has a member of it; to begin an empty "
    f"cluster remove the annotation {ETCD_MACHINE}"
)


class TalosControlPlaneReason(StrEnum):
    """Reasons of ``Available`` and of the moves of a TalosControlPlane."""

    AVAILABLE = "Available"
    NOT_AVAILABLE = "NotAvailable"
    WAITING_FOR_CLUSTER = "WaitingForCluster"
    WAITING_FOR_INFRASTRUCTURE = "WaitingForInfrastructure"
    WAITING_FOR_MACHINE = "WaitingForMachine"
    ETCD_LOST = "EtcdLost"
    SCALE_DOWN_NOT_SUPPORTED = "ScaleDownNotSupported"
    DELETING = "WaitingForMachinesDeletion"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTalosControlPlane:
    """``due`` are the Secrets to write: missing, or not as they must be; by name."""

    now: datetime
    cluster: Cluster | None = None
    secrets: TalosSecrets | None = None
    due: tuple[Json, ...] = field(default=(), repr=False)
    machines: tuple[Machine, ...] = ()
    missing: tuple[MissingPart, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateSecrets:
    """Create the secrets of the cluster."""

    owner: TalosControlPlane = field(repr=False)
    cluster: Cluster = field(repr=False)
    now: datetime
    requeue_after: float = 0.0


@dataclass(frozen=True, slots=True)
class WriteSecrets:
    """Create or change Secrets that follow from the secrets of the cluster."""

    secrets: tuple[Json, ...] = field(repr=False)
    requeue_after: float = 0.0


@dataclass(frozen=True, slots=True)
class BeginEtcd:
    """Ask Talos on the only machine to begin etcd."""

    address: str
    secrets: TalosSecrets
    now: datetime
    requeue_after: float = POLL_SECONDS


TalosControlPlaneMove = CreateSecrets | WriteSecrets | BeginEtcd | Writes | Wait | Done


def next_move(owner: TalosControlPlane, seen: ObservedTalosControlPlane) -> TalosControlPlaneMove:
    """Secrets, then one Machine after the other."""
    if owner.deleting:
        return deletion(seen.machines, TalosControlPlaneReason.DELETING)
    cluster = seen.cluster
    if cluster is None:
        reason = TalosControlPlaneReason.WAITING_FOR_CLUSTER
        return Wait(reason, "no Cluster owns this control plane yet", POLL_SECONDS)
    if seen.secrets is None:
        return CreateSecrets(owner, cluster, seen.now)
    provisioned = cluster.status.initialization.infrastructure_provisioned
    if not provisioned or not cluster.spec.control_plane_endpoint:
        reason = TalosControlPlaneReason.WAITING_FOR_INFRASTRUCTURE
        return Wait(reason, "the cluster has no infrastructure or no endpoint yet", POLL_SECONDS)
    if seen.due:
        return WriteSecrets(seen.due)
    return _machines(owner, cluster, seen.secrets, seen)


def _machines(
    owner: TalosControlPlane,
    cluster: Cluster,
    secrets: TalosSecrets,
    seen: ObservedTalosControlPlane,
) -> TalosControlPlaneMove:
    parts: tuple[Write, ...] = tuple(_new_part(owner, part) for part in seen.missing)
    if parts:
        return Writes(parts)
    wanted, machines = desired_replicas(owner), seen.machines
    if len(machines) > wanted:
        message = f"{len(machines)} machines exist; members of etcd are not removed"
        return Wait(TalosControlPlaneReason.SCALE_DOWN_NOT_SUPPORTED, message, RENEW_SECONDS)
    if is_lost(owner, machines):
        return Wait(TalosControlPlaneReason.ETCD_LOST, LOST, RENEW_SECONDS)
    if len(machines) == 1 and (address := _may_begin(machines[0])):
        return _begin(owner, machines[0], BeginEtcd(address, secrets, seen.now))
    if waiting := [m.name for m in machines if not has_joined(m)]:
        message = f"waiting for machine {', '.join(waiting)}"
        return Wait(TalosControlPlaneReason.WAITING_FOR_MACHINE, message, POLL_SECONDS)
    if len(machines) < wanted:
        return Writes((Create(new_machine(owner, cluster, machines, _design(owner))),))
    return Done(RENEW_SECONDS)


def is_lost(owner: TalosControlPlane, machines: Sequence[Machine]) -> bool:
    """Whether the machine on which etcd began is gone, and no other has a member of it."""
    recorded = owner.metadata.annotations.get(ETCD_MACHINE)
    known = {m.uid for m in machines}
    return bool(recorded) and recorded not in known and not any(map(has_node, machines))


def _begin(owner: TalosControlPlane, machine: Machine, move: BeginEtcd) -> TalosControlPlaneMove:
    """Record the machine, then ask it."""
    if ETCD_MACHINE in owner.metadata.annotations:
        return move
    change = {"metadata": {"annotations": {ETCD_MACHINE: machine.uid}}}
    return Writes((Merge(TalosControlPlane, owner.name, change, owner.namespace),))


def _may_begin(machine: Machine) -> str:
    """The address at which Talos is asked to begin etcd; empty if it is not asked."""
    found = addresses([machine])
    return "" if has_node(machine) or machine.deleting or not found else found[0]


def addresses(machines: Sequence[Machine]) -> tuple[str, ...]:
    """The addresses of the machines, in order."""
    kinds = ("InternalIP", "ExternalIP")
    found = (a.address for m in machines for a in m.status.addresses if a.type in kinds)
    return tuple(dict.fromkeys(found))


def desired_replicas(owner: TalosControlPlane) -> int:
    return 1 if owner.spec.replicas is None else owner.spec.replicas


def _design(owner: TalosControlPlane) -> MachineDesign:
    return MachineDesign(
        version=owner.spec.version,
        template=owner.spec.template_ref,
        bootstrap=TalosConfig.resource,
        labels={},
        annotations={},
        deletion=MachineDeletion(),
    )


def _new_part(owner: TalosControlPlane, part: MissingPart) -> Create:
    """The infrastructure object from its template, or the TalosConfig from this object."""
    if part.resource != TalosConfig.resource:
        return new_part(part)
    machine = part.machine
    meta = ObjectMeta(
        name=part.name,
        namespace=machine.namespace,
        labels=machine.metadata.labels,
        owner_references=(owner_reference(machine),),
    )
    return Create(TalosConfig(metadata=meta, spec=owner.spec.control_plane_config.controlplane))


def describe(
    owner: TalosControlPlane, seen: ObservedTalosControlPlane, move: TalosControlPlaneMove
) -> TalosControlPlaneStatus:
    """The status, from that of the Machines."""
    initialized = any(map(has_node, seen.machines))
    ready = sum(is_ready(m) and not m.deleting for m in seen.machines)
    reason, message = TalosControlPlaneReason.AVAILABLE, ""
    if not ready:
        reason = TalosControlPlaneReason.NOT_AVAILABLE
    if isinstance(move, Wait):
        reason, message = TalosControlPlaneReason(move.reason), move.message
    status: ConditionStatus = "True" if ready else "False"
    available = LegacyCondition(type=AVAILABLE, status=status, reason=reason, message=message)
    name = seen.cluster.name if seen.cluster else ""
    return TalosControlPlaneStatus(
        conditions=(available,),
        initialized=initialized,
        bootstrapped=ETCD_MACHINE in owner.metadata.annotations,
        ready=ready > 0,
        replicas=len(seen.machines),
        ready_replicas=ready,
        unavailable_replicas=max(desired_replicas(owner) - ready, 0),
        selector=f"{CLUSTER_NAME}={name},{CONTROL_PLANE_LABEL}=" if name else "",
        observed_generation=owner.metadata.generation,
    )
