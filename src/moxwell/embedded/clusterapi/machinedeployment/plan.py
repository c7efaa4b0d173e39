"""
The next move and the status of a MachineDeployment. Pure.

The sizes during a rollout come from :mod:`moxwell.scheduling.rollout`. One pass does one kind of
step: create the new MachineSet, or scale, or delete old sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from moxwell.api.capi.machinesets import (
    MachineDeployment,
    MachineReplicaStatus,
    MachineSet,
    MachineSetSpec,
)
from moxwell.api.capi.shared import (
    CLUSTER_NAME,
    DEPLOYMENT_NAME,
    NO_NEW_MACHINES,
    REVISION,
    TEMPLATE_HASH,
)
from moxwell.api.kinds import owner_reference
from moxwell.api.meta import ObjectMeta
from moxwell.api.selectors import LabelSelector
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Create, Delete, Merge, Write, Writes
from moxwell.scheduling import rollout
from moxwell.scheduling.machine_rollout import (
    OLD_MACHINE_SETS_KEPT,
    rollout_policy,
    template_hash,
)

POLL_SECONDS = 5.0


class MachineDeploymentReason(StrEnum):
    """Reasons of the moves and events of a MachineDeployment."""

    CREATED = "SuccessfulCreate"
    SCALED = "SuccessfulScale"
    DELETING = "WaitingForMachineSetDeletion"


@dataclass(frozen=True, slots=True)
class ObservedMachineDeployment:
    """The MachineSets of a deployment."""

    sets: tuple[MachineSet, ...] = ()


def next_move(deployment: MachineDeployment, seen: ObservedMachineDeployment) -> WriteMove:
    """Set the cluster label, restrict old sets, and roll; or delete the sets."""
    if deployment.deleting:
        return _deletion(seen.sets)
    writes: list[Write] = []
    if deployment.metadata.labels.get(CLUSTER_NAME) != deployment.spec.cluster_name:
        change = {"metadata": {"labels": {CLUSTER_NAME: deployment.spec.cluster_name}}}
        writes.append(Merge(MachineDeployment, deployment.name, change, deployment.namespace))
    if not deployment.spec.paused:
        for name, value in creation_changes(deployment, seen.sets).items():
            note = {"metadata": {"annotations": {NO_NEW_MACHINES: value}}}
            writes.append(Merge(MachineSet, name, note, deployment.namespace))
        writes += _rollout(deployment, seen.sets)
    return Writes(tuple(writes)) if writes else Done()


def _deletion(sets: Sequence[MachineSet]) -> WriteMove:
    if not sets:
        return Done()
    there = [s for s in sets if not s.deleting]
    if there:
        deletes = tuple(Delete(MachineSet, s.name, s.namespace, uid=s.uid) for s in there)
        return Writes(deletes, MachineDeploymentReason.DELETING, POLL_SECONDS)
    return Wait(MachineDeploymentReason.DELETING, requeue_after=POLL_SECONDS)


def _rollout(deployment: MachineDeployment, sets: Sequence[MachineSet]) -> list[Write]:
    counts = replica_counts(deployment, sets)
    if not any(c.current for c in counts):
        return [Create(new_set(deployment, len(counts) + 1))]
    sizes = rollout.scale(rollout_policy(deployment), counts)
    if sizes:
        return [
            Merge(MachineSet, s.name, {"spec": {"replicas": s.replicas}}, deployment.namespace)
            for s in sizes
        ]
    surplus = rollout.sets_beyond_history(counts, OLD_MACHINE_SETS_KEPT)
    return [Delete(MachineSet, name, deployment.namespace) for name in surplus]


def selector(deployment: MachineDeployment) -> dict[str, str]:
    """The labels that select the Machines of this deployment."""
    return {
        **deployment.spec.selector.match_labels,
        DEPLOYMENT_NAME: deployment.name,
        CLUSTER_NAME: deployment.spec.cluster_name,
    }


def new_set(deployment: MachineDeployment, revision: int) -> MachineSet:
    """The MachineSet of the current template, with no replicas yet."""
    short = template_hash(deployment)
    labels = {**selector(deployment), TEMPLATE_HASH: short}
    template = deployment.spec.template
    meta = msgspec.structs.replace(template.metadata, labels={**template.metadata.labels, **labels})
    return MachineSet(
        metadata=ObjectMeta(
            name=f"{deployment.name}-{short}",
            namespace=deployment.namespace,
            labels=labels,
            annotations={REVISION: str(revision)},
            owner_references=(owner_reference(deployment),),
        ),
        spec=MachineSetSpec(
            cluster_name=deployment.spec.cluster_name,
            replicas=0,
            selector=LabelSelector(match_labels=labels),
            template=msgspec.structs.replace(template, metadata=meta),
            deletion=deployment.spec.deletion,
            machine_naming=deployment.spec.machine_naming,
        ),
    )


def replica_counts(
    deployment: MachineDeployment, sets: Sequence[MachineSet]
) -> list[rollout.ReplicaCounts]:
    """The desired, actual and available replicas of each MachineSet."""
    short = template_hash(deployment)
    return [
        rollout.ReplicaCounts(
            name=s.name,
            wanted=1 if s.spec.replicas is None else s.spec.replicas,
            actual=s.status.replicas or 0,
            available=s.status.available_replicas or 0,
            current=s.metadata.labels.get(TEMPLATE_HASH) == short,
            order=_created(s.metadata.creation_timestamp),
        )
        for s in sets
    ]


def creation_changes(
    deployment: MachineDeployment, sets: Sequence[MachineSet]
) -> dict[str, str | None]:
    """
    MachineSets whose ``disable-machine-create`` annotation must change; None removes it.

    With ``OnDelete`` an old set must not replace a deleted Machine: the new set does.
    """
    short = template_hash(deployment)
    on_delete = deployment.spec.rollout.strategy.type == "OnDelete"
    changes: dict[str, str | None] = {}
    for machine_set in sets:
        desired = on_delete and machine_set.metadata.labels.get(TEMPLATE_HASH) != short
        if desired != (NO_NEW_MACHINES in machine_set.metadata.annotations):
            changes[machine_set.name] = "true" if desired else None
    return changes


def _created(at: datetime | None) -> str:
    return at.isoformat() if at else ""


def describe(deployment: MachineDeployment, sets: Sequence[MachineSet]) -> MachineReplicaStatus:
    """The counts and the phase."""
    counts, desired = replica_counts(deployment, sets), rollout_policy(deployment).replicas
    updated = sum(c.actual for c in counts if c.current)
    total, available = sum(c.actual for c in counts), sum(c.available for c in counts)
    done = available == total == updated == desired
    return MachineReplicaStatus(
        selector=",".join(f"{k}={v}" for k, v in sorted(selector(deployment).items())),
        replicas=total,
        ready_replicas=available,
        available_replicas=available,
        up_to_date_replicas=updated,
        phase="Running" if done else "ScalingDown" if total > desired else "ScalingUp",
        observed_generation=deployment.metadata.generation,
    )
