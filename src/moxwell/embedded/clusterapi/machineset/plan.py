"""How many Machines to make or to let go, and what a set says of itself: pure."""

import hashlib
from collections.abc import Iterable, Sequence

from moxwell.api.capi.core import Bootstrap, Machine, MachineSpec
from moxwell.api.capi.machinesets import FleetStatus, MachineSet
from moxwell.api.capi.shared import (
    CLUSTER_NAME,
    DELETE_MACHINE,
    NO_NEW_MACHINES,
    SET_NAME,
    ContractRef,
)
from moxwell.api.kinds import own
from moxwell.api.meta import ObjectMeta
from moxwell.scheduling import rollout

LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def wanted(fleet: MachineSet) -> int:
    """How many it should have."""
    return 1 if fleet.spec.replicas is None else fleet.spec.replicas


def may_make(fleet: MachineSet) -> bool:
    """An old set that rolls on delete makes no machines; the new one makes them instead."""
    return NO_NEW_MACHINES not in fleet.metadata.annotations


def new_name(fleet: MachineSet, taken: Iterable[str]) -> str:
    """A name nobody in the set has or, as long as the set lives, had: numbered, then disguised."""
    taken = set(taken)
    number = len(taken)
    while True:
        name = f"{fleet.name}-{suffix(fleet.uid, number)}"
        if name not in taken:
            return name
        number += 1


def suffix(uid: str, number: int) -> str:
    """Five letters that depend on the set and the number."""
    digest = hashlib.sha256(f"{uid}/{number}".encode()).digest()
    return "".join(LETTERS[b % len(LETTERS)] for b in digest[:5])


def new_machine(fleet: MachineSet, name: str) -> Machine:
    """A Machine of the set; its bootstrap and infrastructure objects are called as it is."""
    template = fleet.spec.template
    labels = {
        **template.metadata.labels,
        **fleet.spec.selector.match_labels,
        CLUSTER_NAME: fleet.spec.cluster_name,
        SET_NAME: fleet.name,
    }
    spec = template.spec
    return Machine(
        metadata=ObjectMeta(
            name=name,
            namespace=fleet.namespace,
            labels=labels,
            annotations=template.metadata.annotations,
            owner_references=(own(fleet),),
        ),
        spec=MachineSpec(
            cluster_name=fleet.spec.cluster_name,
            bootstrap=Bootstrap(
                config_ref=_instance(spec.bootstrap.config_ref, name),
                data_secret_name=spec.bootstrap.data_secret_name,
            ),
            infrastructure_ref=_instance(spec.infrastructure_ref, name),
            version=spec.version,
            failure_domain=spec.failure_domain,
            deletion=spec.deletion,
            min_ready_seconds=spec.min_ready_seconds,
            taints=spec.taints,
        ),
    )


def _instance(ref: ContractRef | None, name: str) -> ContractRef | None:
    if ref is None:
        return None
    return ContractRef(api_group=ref.api_group, kind=ref.kind.removesuffix("Template"), name=name)


def member(machine: Machine) -> rollout.Member:
    """A Machine as the choice of leavers sees it."""
    created = machine.metadata.creation_timestamp
    return rollout.Member(
        name=machine.name,
        created=created.isoformat() if created else "",
        marked=DELETE_MACHINE in machine.metadata.annotations,
        healthy=not is_broken(machine),
        has_node=machine.status.node_ref is not None,
        deleting=machine.deleting,
    )


def is_broken(machine: Machine) -> bool:
    """A health check has given up on it."""
    return any(
        c.type == "OwnerRemediated" and c.status == "False" for c in machine.status.conditions
    )


def leaving(fleet: MachineSet, machines: Sequence[Machine]) -> tuple[str, ...]:
    """Broken ones, so that others take their place; then as many as are too many."""
    staying = [m for m in machines if not m.deleting]
    broken = [m.name for m in staying if is_broken(m)]
    excess = len(staying) - wanted(fleet)
    if excess <= 0:
        return tuple(broken)
    order = fleet.spec.deletion.order or "Random"
    return rollout.choose_leaving(map(member, staying), excess, order)


def is_ready(machine: Machine) -> bool:
    """Its own word."""
    return any(c.type == "Ready" and c.status == "True" for c in machine.status.conditions)


def describe(fleet: MachineSet, machines: Sequence[Machine]) -> FleetStatus:
    """The counts; leaving machines are still there, but not ready."""
    ready = sum(is_ready(m) and not m.deleting for m in machines)
    selector = ",".join(f"{k}={v}" for k, v in sorted(fleet.spec.selector.match_labels.items()))
    return FleetStatus(
        selector=selector,
        replicas=len(machines),
        ready_replicas=ready,
        available_replicas=ready,
        up_to_date_replicas=len(machines),
        observed_generation=fleet.metadata.generation,
    )
