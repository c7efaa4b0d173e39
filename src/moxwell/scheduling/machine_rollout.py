"""
How a Cluster API MachineDeployment rolls: template hash, strategy, deletion priority. Pure.

The embedded Cluster API acts on it and ``moxwell plan`` predicts with it, so both agree.
"""

import hashlib
import json

import msgspec

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.capi.shared import DELETE_MACHINE
from moxwell.scheduling import rollout

OLD_MACHINE_SETS_KEPT = 1  # empty MachineSets of earlier templates, as Cluster API keeps them


def template_hash(deployment: MachineDeployment) -> str:
    """
    A short hash of the machine template; another hash means a rollout.

    Labels, annotations, deletion timeouts and taints change in place and are not part of it.
    """
    spec = msgspec.to_builtins(deployment.spec.template.spec)
    for in_place in ("deletion", "minReadySeconds", "taints"):
        spec.pop(in_place, None)
    after = deployment.spec.rollout.after
    text = json.dumps([spec, after.isoformat() if after else ""], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def rollout_policy(deployment: MachineDeployment) -> rollout.RolloutPolicy:
    """The rollout strategy; Cluster API's defaults are maxSurge 1 and maxUnavailable 0."""
    strategy = deployment.spec.rollout.strategy
    rolling = strategy.rolling_update
    surge = 1 if rolling.max_surge is None else rolling.max_surge
    unavailable = 0 if rolling.max_unavailable is None else rolling.max_unavailable
    replicas = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    return rollout.rollout_policy(replicas, surge, unavailable, strategy.type)


def deletion_candidate(machine: Machine) -> rollout.DeletionCandidate:
    """A Machine with what decides how early it is deleted."""
    created = machine.metadata.creation_timestamp
    return rollout.DeletionCandidate(
        name=machine.name,
        created=created.isoformat() if created else "",
        marked=DELETE_MACHINE in machine.metadata.annotations,
        healthy=not is_broken(machine),
        has_node=machine.status.node_ref is not None,
        deleting=machine.deleting,
    )


def is_broken(machine: Machine) -> bool:
    """A MachineHealthCheck has marked the machine for remediation."""
    return any(
        c.type == "OwnerRemediated" and c.status == "False" for c in machine.status.conditions
    )
