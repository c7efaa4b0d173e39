"""Which MachineSet belongs to the template asked for, and its first form: pure."""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime

import msgspec

from moxwell.api.capi.machinesets import FleetStatus, MachineDeployment, MachineSet, MachineSetSpec
from moxwell.api.capi.shared import (
    CLUSTER_NAME,
    DEPLOYMENT_NAME,
    NO_NEW_MACHINES,
    REVISION,
    TEMPLATE_HASH,
)
from moxwell.api.kinds import own
from moxwell.api.meta import ObjectMeta
from moxwell.api.selectors import LabelSelector
from moxwell.scheduling import rollout

HISTORY = 1


def template_hash(group: MachineDeployment) -> str:
    """What a template means, without what may change in place: labels, annotations, timeouts."""
    spec = msgspec.to_builtins(group.spec.template.spec)
    for in_place in ("deletion", "minReadySeconds", "taints"):
        spec.pop(in_place, None)
    after = group.spec.rollout.after
    text = json.dumps([spec, after.isoformat() if after else ""], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def selector(group: MachineDeployment) -> dict[str, str]:
    """The labels that tell this group's machines from others'."""
    return {
        **group.spec.selector.match_labels,
        DEPLOYMENT_NAME: group.name,
        CLUSTER_NAME: group.spec.cluster_name,
    }


def new_set(group: MachineDeployment, revision: int) -> MachineSet:
    """The set for the current template, still empty."""
    short = template_hash(group)
    labels = {**selector(group), TEMPLATE_HASH: short}
    template = group.spec.template
    meta = msgspec.structs.replace(template.metadata, labels={**template.metadata.labels, **labels})
    return MachineSet(
        metadata=ObjectMeta(
            name=f"{group.name}-{short}",
            namespace=group.namespace,
            labels=labels,
            annotations={REVISION: str(revision)},
            owner_references=(own(group),),
        ),
        spec=MachineSetSpec(
            cluster_name=group.spec.cluster_name,
            replicas=0,
            selector=LabelSelector(match_labels=labels),
            template=msgspec.structs.replace(template, metadata=meta),
            deletion=group.spec.deletion,
            machine_naming=group.spec.machine_naming,
        ),
    )


def parts(group: MachineDeployment, sets: Sequence[MachineSet]) -> list[rollout.Part]:
    """The sets as the rollout sees them."""
    short = template_hash(group)
    return [
        rollout.Part(
            name=s.name,
            wanted=1 if s.spec.replicas is None else s.spec.replicas,
            actual=s.status.replicas or 0,
            available=s.status.available_replicas or 0,
            current=s.metadata.labels.get(TEMPLATE_HASH) == short,
            order=_created(s.metadata.creation_timestamp),
        )
        for s in sets
    ]


def reins(group: MachineDeployment, sets: Sequence[MachineSet]) -> dict[str, str | None]:
    """Sets whose permission to make machines must change: the note to write, None to take it off.

    A set cannot know that what was deleted from it is to come back from another template.
    """
    short, held = template_hash(group), group.spec.rollout.strategy.type == "OnDelete"
    found: dict[str, str | None] = {}
    for fleet in sets:
        wanted = held and fleet.metadata.labels.get(TEMPLATE_HASH) != short
        if wanted != (NO_NEW_MACHINES in fleet.metadata.annotations):
            found[fleet.name] = "true" if wanted else None
    return found


def _created(at: datetime | None) -> str:
    return at.isoformat() if at else ""


def policy(group: MachineDeployment) -> rollout.Policy:
    """How the group rolls; Cluster API's defaults are one more and none fewer."""
    strategy = group.spec.rollout.strategy
    rolling = strategy.rolling_update
    surge = 1 if rolling.max_surge is None else rolling.max_surge
    fewer = 0 if rolling.max_unavailable is None else rolling.max_unavailable
    wanted = 1 if group.spec.replicas is None else group.spec.replicas
    return rollout.policy(wanted, surge, fewer, strategy.type)


def describe(group: MachineDeployment, known: Sequence[rollout.Part]) -> FleetStatus:
    """The counts and the phase."""
    wanted = policy(group).replicas
    updated = sum(p.actual for p in known if p.current)
    total, available = sum(p.actual for p in known), sum(p.available for p in known)
    done = available == total == updated == wanted
    return FleetStatus(
        selector=",".join(f"{k}={v}" for k, v in sorted(selector(group).items())),
        replicas=total,
        ready_replicas=available,
        available_replicas=available,
        up_to_date_replicas=updated,
        phase="Running" if done else "ScalingDown" if total > wanted else "ScalingUp",
        observed_generation=group.metadata.generation,
    )
