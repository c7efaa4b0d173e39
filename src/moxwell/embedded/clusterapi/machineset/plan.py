"""
The next move and the status of a MachineSet. Pure.

A machine's name is derived from the set's UID and a number, so a pass that is repeated after a
crash creates the same Machine again instead of a second one.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from moxwell.api.capi.core import Bootstrap, Machine, MachineSpec
from moxwell.api.capi.machinesets import MachineReplicaStatus, MachineSet
from moxwell.api.capi.shared import (
    CLUSTER_NAME,
    MACHINE_FINALIZER,
    NO_NEW_MACHINES,
    SET_NAME,
    ContractRef,
)
from moxwell.api.kinds import Resource, owner_reference
from moxwell.api.meta import ObjectMeta
from moxwell.embedded.clusterapi.machines import is_ready
from moxwell.embedded.clusterapi.references import from_template, instance_ref
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Create, Delete, Write, Writes
from moxwell.scheduling import rollout
from moxwell.scheduling.machine_rollout import deletion_candidate, is_broken

Json = dict[str, Any]
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
BATCH = 16  # Machines created in one pass
POLL_SECONDS = 5.0


class MachineSetReason(StrEnum):
    """Reasons of the moves and events of a MachineSet."""

    CREATED = "SuccessfulCreate"
    DELETING = "WaitingForMachineDeletion"


@dataclass(frozen=True, slots=True)
class MissingPart:
    """An object that a Machine references, that does not exist, and the template to create it."""

    machine: Machine
    name: str
    resource: Resource
    template_ref: ContractRef
    template: Json


@dataclass(frozen=True, slots=True)
class ObservedMachineSet:
    """The Machines of a set, and the objects they still lack."""

    machines: tuple[Machine, ...] = ()
    missing: tuple[MissingPart, ...] = ()


def next_move(owner: MachineSet, seen: ObservedMachineSet) -> WriteMove:
    """Delete surplus and broken Machines, create missing ones and the objects they reference."""
    if owner.deleting:
        return _deletion(seen.machines)
    chosen = set(deletions(owner, seen.machines))
    writes: tuple[Write, ...] = (
        *_deletes(m for m in seen.machines if m.name in chosen),
        *(new_part(part) for part in seen.missing),
        *(Create(new_machine(owner, name)) for name in new_names(owner, seen.machines)),
    )
    return Writes(writes) if writes else Done()


def _deletion(machines: Sequence[Machine]) -> WriteMove:
    if not machines:
        return Done()
    if writes := _deletes(machines):
        return Writes(writes, MachineSetReason.DELETING, POLL_SECONDS)
    return Wait(MachineSetReason.DELETING, requeue_after=POLL_SECONDS)


def _deletes(machines: Iterable[Machine]) -> tuple[Delete, ...]:
    there = (m for m in machines if not m.deleting)
    return tuple(Delete(Machine, m.name, m.namespace, uid=m.uid) for m in there)


def desired_replicas(owner: MachineSet) -> int:
    return 1 if owner.spec.replicas is None else owner.spec.replicas


def may_create(owner: MachineSet) -> bool:
    """False for an old set of an ``OnDelete`` rollout: the new set replaces deleted Machines."""
    return NO_NEW_MACHINES not in owner.metadata.annotations


def new_names(owner: MachineSet, machines: Sequence[Machine]) -> tuple[str, ...]:
    """The names of the Machines to create now."""
    if not may_create(owner):
        return ()
    active = sum(not m.deleting for m in machines)
    used, created = [m.name for m in machines], []
    for _ in range(min(BATCH, desired_replicas(owner) - active)):
        name = new_name(owner, used)
        used.append(name)
        created.append(name)
    return tuple(created)


def new_name(owner: MachineSet, used: Iterable[str]) -> str:
    """The first derived name that no Machine of the set has."""
    used = set(used)
    number = len(used)
    while (name := f"{owner.name}-{suffix(owner.uid, number)}") in used:
        number += 1
    return name


def suffix(uid: str, number: int) -> str:
    """Five letters that depend on the set and the number."""
    digest = hashlib.sha256(f"{uid}/{number}".encode()).digest()
    return "".join(LETTERS[b % len(LETTERS)] for b in digest[:5])


def new_machine(owner: MachineSet, name: str) -> Machine:
    """A Machine of the set; its bootstrap and infrastructure objects have the same name."""
    template = owner.spec.template
    labels = {
        **template.metadata.labels,
        **owner.spec.selector.match_labels,
        CLUSTER_NAME: owner.spec.cluster_name,
        SET_NAME: owner.name,
    }
    spec = template.spec
    return Machine(
        metadata=ObjectMeta(
            name=name,
            namespace=owner.namespace,
            labels=labels,
            annotations=template.metadata.annotations,
            owner_references=(owner_reference(owner),),
            finalizers=(MACHINE_FINALIZER,),
        ),
        spec=MachineSpec(
            cluster_name=owner.spec.cluster_name,
            bootstrap=Bootstrap(
                config_ref=instance_ref(spec.bootstrap.config_ref, name),
                data_secret_name=spec.bootstrap.data_secret_name,
            ),
            infrastructure_ref=instance_ref(spec.infrastructure_ref, name),
            version=spec.version,
            failure_domain=spec.failure_domain,
            deletion=spec.deletion,
            min_ready_seconds=spec.min_ready_seconds,
            taints=spec.taints,
        ),
    )


def new_part(part: MissingPart) -> Create:
    """The bootstrap or infrastructure object of a Machine, from the template of the set."""
    machine = part.machine
    meta = {
        "name": part.name,
        "namespace": machine.namespace,
        "labels": {**machine.metadata.labels, CLUSTER_NAME: machine.spec.cluster_name},
        "ownerReferences": [msgspec.to_builtins(owner_reference(machine))],
    }
    return from_template(part.template_ref, part.template, part.resource, meta)


def deletions(owner: MachineSet, machines: Sequence[Machine]) -> tuple[str, ...]:
    """Machines marked by a MachineHealthCheck, then as many as exceed the replicas."""
    active = [m for m in machines if not m.deleting]
    broken = [m.name for m in active if is_broken(m)]
    excess = len(active) - desired_replicas(owner)
    if excess <= 0:
        return tuple(broken)
    order = owner.spec.deletion.order or "Random"
    return rollout.choose_deletions(map(deletion_candidate, active), excess, order)


def describe(owner: MachineSet, machines: Sequence[Machine]) -> MachineReplicaStatus:
    """The counts; a Machine that is being deleted counts as a replica, but not as ready."""
    ready = sum(is_ready(m) and not m.deleting for m in machines)
    selector = ",".join(f"{k}={v}" for k, v in sorted(owner.spec.selector.match_labels.items()))
    return MachineReplicaStatus(
        selector=selector,
        replicas=len(machines),
        ready_replicas=ready,
        available_replicas=ready,
        up_to_date_replicas=len(machines),
        observed_generation=owner.metadata.generation,
    )
