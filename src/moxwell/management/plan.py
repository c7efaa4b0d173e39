"""
The next move of a bootstrap, forward and back. Pure.

Everything is derived from objects: what exists in the temporary API, whether the kubeconfig is
kept there, whether a Cluster is being moved, and what the management cluster has. So a bootstrap
that was killed continues where it was.

=====================  ====================  =======================================
Cluster in temp. API   kubeconfig kept       state
=====================  ====================  =======================================
no                     no                    nothing made, or everything removed
yes                    no or yes             being made
yes, moving            yes                   being moved
no                     yes                   moved
=====================  ====================  =======================================
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from moxwell.api.capi.core import Cluster
from moxwell.api.kinds import Resource
from moxwell.management import transfer
from moxwell.management.manifests import ManifestStage
from moxwell.management.observed import ObservedManagement, ObservedTarget
from moxwell.management.spec import ManagementSpec
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.unstructured import Unstructured
from moxwell.runtime.writes import Delete, Merge

Json = dict[str, Any]
POLL_SECONDS = 5.0
PAUSABLE = {"ProxmoxMachine", "ProxmoxCluster"}  # they report that they pause


class BootstrapReason(StrEnum):
    """What a bootstrap waits for."""

    WAITING_FOR_CONTROL_PLANE = "WaitingForControlPlane"
    WAITING_FOR_MACHINES = "WaitingForMachines"
    WAITING_FOR_NODES = "WaitingForNodes"
    WAITING_FOR_COMPONENTS = "WaitingForComponents"
    WAITING_FOR_PAUSE = "WaitingForPause"
    WAITING_FOR_API = "WaitingForManagementCluster"
    WAITING_FOR_DELETION = "WaitingForDeletion"
    IN_USE = "ManagementClusterInUse"


@dataclass(frozen=True, slots=True)
class CreateClusterObjects:
    """Create the objects of the cluster in the temporary API."""

    objects: tuple[tuple[Resource, Json], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeepKubeconfig:
    """Copy the kubeconfig beside the objects that are moved."""

    secret: Json = field(repr=False)


@dataclass(frozen=True, slots=True)
class InstallStage:
    """Apply manifests in the management cluster."""

    stage: ManifestStage


@dataclass(frozen=True, slots=True)
class PatchSource:
    """Pause a Cluster of the temporary API, or end the pause."""

    write: Merge
    requeue_after: float = 1.0


@dataclass(frozen=True, slots=True)
class PatchTarget:
    """Pause the Cluster in the management cluster, or end the pause."""

    write: Merge


@dataclass(frozen=True, slots=True)
class MoveForward:
    """Create in the management cluster what it does not have yet."""

    objects: tuple[Unstructured, ...]


@dataclass(frozen=True, slots=True)
class DeleteMoved:
    """Delete from the temporary API what was moved; the guests stay."""

    objects: tuple[Unstructured, ...]


@dataclass(frozen=True, slots=True)
class MoveBack:
    """Create in the temporary API what was moved."""

    objects: tuple[Unstructured, ...]


@dataclass(frozen=True, slots=True)
class ForgetKubeconfig:
    """Delete the kept kubeconfig: from now on the temporary API alone decides."""


@dataclass(frozen=True, slots=True)
class DeleteCluster:
    """Delete the Cluster in the temporary API; its controllers remove the guests."""

    write: Delete
    requeue_after: float = POLL_SECONDS


BootstrapMove = (
    CreateClusterObjects
    | KeepKubeconfig
    | InstallStage
    | PatchSource
    | PatchTarget
    | MoveForward
    | DeleteMoved
    | MoveBack
    | ForgetKubeconfig
    | DeleteCluster
    | Wait
    | Done
)


def next_move(spec: ManagementSpec, seen: ObservedManagement, *, undo: bool) -> BootstrapMove:
    """Towards a management cluster that manages itself, or back to nothing."""
    if undo:
        return _undo(spec, seen)
    if seen.cluster is None and seen.recorded:
        return _moved(seen.target)
    if transfer.is_moving(seen.cluster):
        return _move(seen)
    if seen.missing:
        return CreateClusterObjects(seen.missing)
    return _install(spec, seen)


def _wait(reason: BootstrapReason, message: str) -> Wait:
    return Wait(reason, message, POLL_SECONDS)


def _no_answer() -> Wait:
    text = "the API of the management cluster does not answer"
    return _wait(BootstrapReason.WAITING_FOR_API, text)


def _install(spec: ManagementSpec, seen: ObservedManagement) -> BootstrapMove:
    target = seen.target
    if target is None:
        return _wait(BootstrapReason.WAITING_FOR_CONTROL_PLANE, _problems(seen))
    if not seen.recorded and seen.kubeconfig is not None:
        return KeepKubeconfig(seen.kubeconfig)
    if target.stage is not None:
        return InstallStage(target.stage)
    if len(seen.machines()) < spec.replicas or not all(map(_is_settled, _guests(seen))):
        return _wait(BootstrapReason.WAITING_FOR_MACHINES, _problems(seen))
    if target.nodes < spec.replicas:
        text = f"{target.nodes} of {spec.replicas} nodes are ready"
        return _wait(BootstrapReason.WAITING_FOR_NODES, text)
    if target.waiting:
        return _wait(BootstrapReason.WAITING_FOR_COMPONENTS, target.waiting)
    return PatchSource(transfer.begin(seen.cluster or {}))


def _guests(seen: ObservedManagement) -> list[Unstructured]:
    return seen.of_kind("ProxmoxMachine")


def _is_settled(guest: Unstructured) -> bool:
    """Whether a ProxmoxMachine is ready and its controller has nothing left to do."""
    status = guest.obj.get("status") or {}
    return _condition(guest, "Ready").get("status") == "True" and not status.get("nextMove")


def _condition(found: Unstructured, kind: str) -> Json:
    conditions = (found.obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), {})


def _problems(seen: ObservedManagement) -> str:
    """What the machines, or the infrastructure of the cluster, report."""
    found = []
    for each in (*seen.of_kind("ProxmoxCluster"), *_guests(seen)):
        ready = _condition(each, "Ready")
        if ready.get("status") != "True":
            detail = ready.get("message") or ready.get("reason") or "not reconciled yet"
            found.append(f"{each.resource.kind} {each.name}: {detail}")
    for each in seen.of_kind("TalosControlPlane"):
        if message := _condition(each, "Available").get("message"):
            found.append(f"TalosControlPlane {each.name}: {message}")
    joined = f"{len(seen.machines())} machines exist"
    return "; ".join(found) or joined


def _move(seen: ObservedManagement) -> BootstrapMove:
    if seen.target is None:
        return _no_answer()
    if not all(transfer.is_paused(o) for o in seen.objects if o.resource.kind in PAUSABLE):
        text = "the controllers have not paused all objects yet"
        return _wait(BootstrapReason.WAITING_FOR_PAUSE, text)
    if transfer.absent(seen.objects, seen.target.objects):
        return MoveForward(seen.objects)
    return DeleteMoved(seen.objects)


def _moved(target: ObservedTarget | None) -> BootstrapMove:
    if target is None:
        return _no_answer()
    if target.cluster is not None and transfer.is_moving(target.cluster):
        return PatchTarget(transfer.end(target.cluster))
    return Done()


def _undo(spec: ManagementSpec, seen: ObservedManagement) -> BootstrapMove:
    cluster = seen.cluster
    moving = transfer.is_moving(cluster)
    if seen.recorded and (cluster is None or moving):
        return _bring_back(seen)
    if moving:
        return PatchSource(transfer.end(cluster or {}))
    if seen.recorded:
        return ForgetKubeconfig()
    if cluster is None and not _guests(seen):  # templates, and what a kill left without Cluster
        return DeleteMoved(seen.objects) if seen.objects else Done()
    if cluster is None or "deletionTimestamp" in cluster["metadata"]:
        names = ", ".join(o.name for o in _guests(seen))
        return _wait(BootstrapReason.WAITING_FOR_DELETION, f"deleting {names or spec.name}")
    return DeleteCluster(Delete(Cluster.resource, spec.name, spec.namespace))


def _bring_back(seen: ObservedManagement) -> BootstrapMove:
    """The objects of a cluster that was moved, or was being moved, in the temporary API again."""
    target = seen.target
    if target is None:
        return _no_answer()
    if target.others:
        listed = ", ".join(target.others[:5])
        text = f"delete what the management cluster has made first: {listed}"
        return _wait(BootstrapReason.IN_USE, text)
    if target.cluster is not None and not transfer.is_moving(target.cluster):
        return PatchTarget(transfer.begin(target.cluster))
    if transfer.absent(target.objects, seen.objects):
        return MoveBack(target.objects)
    return ForgetKubeconfig()
