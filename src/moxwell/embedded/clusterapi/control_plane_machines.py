"""
The Machines of control planes on machines, whichever system they run. Pure but for reading parts.

They are made one after the other, each when the Machines before it have nodes and their bootstrap
has succeeded, because etcd accepts one new member at a time. That a Machine has had a node is
recorded in an annotation of it, so the control plane stays initialized while its API does not
answer.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from moxwell.api.capi.core import Bootstrap, Cluster, Machine, MachineDeletion, MachineSpec
from moxwell.api.capi.shared import BOOTSTRAP, CLUSTER_NAME, CONTROL_PLANE_LABEL, ContractRef
from moxwell.api.kinds import Object, Resource, owner_reference
from moxwell.api.meta import ObjectMeta
from moxwell.embedded.clusterapi.machine.plan import NODE_NAME
from moxwell.embedded.clusterapi.machineset.plan import MissingPart, suffix
from moxwell.embedded.clusterapi.references import ReferenceResolver, instance_ref
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Delete, Writes

POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineDesign:
    """What the Machines of a control plane have in common."""

    version: str
    template: ContractRef  # of the infrastructure
    bootstrap: Resource  # TalosConfig, for example
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    deletion: MachineDeletion


def owner_of_kind(machine: Machine, kind: str) -> list[Key]:
    """The key of the control plane of a kind that controls a Machine."""
    owner = machine.metadata.controller
    owned = owner is not None and owner.kind == kind
    return [Key(machine.namespace, owner.name)] if owner and owned else []


def has_node(machine: Machine) -> bool:
    """Whether the machine has, or has had, a node."""
    return NODE_NAME in machine.metadata.annotations


def has_joined(machine: Machine) -> bool:
    """Whether the machine has its node and its infrastructure reports success."""
    ready = any(
        c.type == "InfrastructureReady" and c.status == "True" for c in machine.status.conditions
    )
    return has_node(machine) and ready and not machine.deleting


def deletion(machines: Sequence[Machine], reason: StrEnum) -> Writes | Wait | Done:
    """Delete all Machines and wait until they are gone."""
    if not machines:
        return Done()
    deletes = [Delete(Machine, m.name, m.namespace, m.uid) for m in machines if not m.deleting]
    if deletes:
        return Writes(tuple(deletes), reason, POLL_SECONDS)
    return Wait(reason, requeue_after=POLL_SECONDS)


def new_machine(
    owner: Object, cluster: Cluster, machines: Sequence[Machine], design: MachineDesign
) -> Machine:
    """The next Machine; the objects that it names have the same name."""
    number, used = len(machines), {m.name for m in machines}
    while (name := f"{owner.name}-{suffix(owner.uid, number)}") in used:
        number += 1
    labels = {
        **design.labels,
        CLUSTER_NAME: cluster.name,
        CONTROL_PLANE_LABEL: "",
        "cluster.x-k8s.io/control-plane-name": owner.name,
    }
    config = ContractRef(api_group=BOOTSTRAP, kind=design.bootstrap.kind, name=name)
    return Machine(
        metadata=ObjectMeta(
            name=name,
            namespace=owner.namespace,
            labels=labels,
            annotations=design.annotations,
            owner_references=(owner_reference(owner),),
        ),
        spec=MachineSpec(
            cluster_name=cluster.name,
            bootstrap=Bootstrap(config_ref=config),
            infrastructure_ref=instance_ref(design.template, name),
            version=design.version,
            failure_domain=failure_domain(cluster, machines),
            deletion=design.deletion,
        ),
    )


def failure_domain(cluster: Cluster, machines: Sequence[Machine]) -> str:
    """The failure domain for control planes with the fewest machines; empty if there is none."""
    domains = [d.name for d in cluster.status.failure_domains if d.control_plane is not False]
    count = Counter(m.spec.failure_domain for m in machines)
    return min(domains, key=lambda name: (count[name], name), default="")


async def missing_parts(
    reader: Reader,
    resolver: ReferenceResolver,
    machines: Sequence[Machine],
    bootstrap: Resource,
    source: ContractRef,
) -> tuple[MissingPart, ...]:
    """The objects that Machines name and that do not exist."""
    missing = []
    for machine in machines:
        done = machine.status.initialization  # a part that has done its work is not read again
        if machine.deleting:
            continue
        ref = machine.spec.bootstrap.config_ref
        if not done.bootstrap_data_secret_created and await _lacks(reader, resolver, machine, ref):
            missing.append(MissingPart(machine, machine.name, bootstrap, source, {}))
        ref = machine.spec.infrastructure_ref
        if not done.infrastructure_provisioned and await _lacks(reader, resolver, machine, ref):
            found = await reader.get(resolver.resource(source), source.name, machine.namespace)
            resource = resolver.resource(instance_ref(source, machine.name) or source)
            missing.append(MissingPart(machine, machine.name, resource, source, found))
    return tuple(missing)


async def _lacks(
    reader: Reader, resolver: ReferenceResolver, machine: Machine, ref: ContractRef | None
) -> bool:
    return ref is not None and not await resolver.exists(reader, ref, machine.namespace)
