"""
MachineDeployments as node groups of Cluster Autoscaler. Pure.

The annotations are those of its ``clusterapi`` provider: both providers see the same groups.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineTemplate
from moxwell.errors import Invalid, Missing

AUTOSCALER = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-"
DEPLOYMENT_NAME = "cluster.x-k8s.io/deployment-name"
DELETE_MACHINE = "cluster.x-k8s.io/delete-machine"
DELETING = "moxwell.dev/externalgrpc-deleting"  # machines whose deletion the replicas count already
UNNAMED = "machine://"  # the id of a machine without a provider id: namespace and name follow


class GroupLimitExceeded(Invalid):
    """The size asked for is outside of the limits of the node group."""

    reason = "GroupLimitExceeded"


@dataclass(frozen=True, slots=True)
class ScalableGroup:
    """A MachineDeployment that may be scaled, with its machines."""

    deployment: MachineDeployment
    least: int
    most: int
    machines: tuple[Machine, ...] = ()
    template: ProxmoxMachineTemplate | None = None

    @property
    def id(self) -> str:
        return f"{self.deployment.namespace}/{self.deployment.name}"

    @property
    def size(self) -> int:
        replicas = self.deployment.spec.replicas
        return 1 if replicas is None else replicas

    @property
    def described(self) -> str:
        """One line for the log of Cluster Autoscaler."""
        return (
            f"MachineDeployment {self.id}: {self.size} replicas of {self.least} to {self.most}, "
            f"{len(self.machines)} machines"
        )


@dataclass(frozen=True, slots=True)
class GroupInventory:
    """The node groups of a cluster at one moment."""

    groups: Mapping[str, ScalableGroup]
    proxmox: Mapping[str, ProxmoxMachine] = field(default_factory=dict)  # by namespace and name
    problems: tuple[str, ...] = ()

    def get(self, ident: str) -> ScalableGroup:
        found = self.groups.get(ident)
        if found is None:
            raise Missing(f"there is no node group {ident}")
        return found

    def of_node(self, provider_id: str, name: str) -> tuple[ScalableGroup, Machine] | None:
        """The group and the machine of a node; None if it belongs to no group."""
        for group in self.groups.values():
            for machine in group.machines:
                if is_machine_of(machine, provider_id, name):
                    return group, machine
        return None


def is_machine_of(machine: Machine, provider_id: str, name: str) -> bool:
    """Whether a machine is that of a node; one that has not joined is known by its id."""
    if provider_id:
        return provider_id in (machine.spec.provider_id, unnamed_id(machine))
    node = machine.status.node_ref
    return node is not None and node.name == name


def unnamed_id(machine: Machine) -> str:
    """The id of a machine that has no provider id yet."""
    return f"{UNNAMED}{machine.namespace}/{machine.name}"


def limits_of(deployment: MachineDeployment) -> tuple[int, int] | None:
    """The least and the largest size; None if the deployment is not to be scaled."""
    texts = [deployment.metadata.annotations.get(f"{AUTOSCALER}{n}-size") for n in ("min", "max")]
    if any(text is None for text in texts):
        return None
    least, most = (int(t) if t and t.isdecimal() else -1 for t in texts)
    if least < 0 or most < least:
        raise Invalid(
            f"MachineDeployment {deployment.namespace}/{deployment.name}: the annotations "
            f"{AUTOSCALER}min-size and max-size must be numbers, the first not above the second"
        )
    return least, most


def inventory(
    cluster: str,
    deployments: Iterable[MachineDeployment],
    machines: Iterable[Machine],
    templates: Iterable[ProxmoxMachineTemplate],
    proxmox: Iterable[ProxmoxMachine] = (),
) -> GroupInventory:
    """The groups of a cluster; a deployment with bad annotations is none and is reported."""
    known = {t.name: t for t in templates}
    by_group: dict[str, list[Machine]] = {}
    for machine in machines:
        by_group.setdefault(machine.metadata.labels.get(DEPLOYMENT_NAME, ""), []).append(machine)
    groups: dict[str, ScalableGroup] = {}
    problems: list[str] = []
    for each in deployments:
        try:
            limits = limits_of(each)
        except Invalid as error:
            problems.append(str(error))
            continue
        if limits is None or each.spec.cluster_name != cluster or each.deleting:
            continue
        ref = each.spec.template.spec.infrastructure_ref
        template = known.get(ref.name) if ref is not None else None
        group = ScalableGroup(each, *limits, tuple(by_group.get(each.name, ())), template)
        groups[group.id] = group
    return GroupInventory(groups, {f"{p.namespace}/{p.name}": p for p in proxmox}, tuple(problems))


def increased(group: ScalableGroup, delta: int) -> int:
    """The size after an increase."""
    if delta <= 0:
        raise Invalid(f"the size of {group.id} can be increased by a positive number only")
    if group.size + delta > group.most:
        raise GroupLimitExceeded(
            f"{group.id} has {group.size} replicas; {delta} more exceed its maximum {group.most}"
        )
    return group.size + delta


def decreased(group: ScalableGroup, delta: int) -> int:
    """The size without nodes that have not been made: none that joined is deleted."""
    if delta >= 0:
        raise Invalid(f"the target size of {group.id} can be decreased by a negative number only")
    joined = sum(1 for m in group.machines if m.status.node_ref is not None and not m.deleting)
    if group.size + delta < max(joined, group.least):
        raise GroupLimitExceeded(
            f"{group.id} has {group.size} replicas and {joined} nodes; {-delta} less would delete "
            f"nodes or fall below its minimum {group.least}"
        )
    return group.size + delta


@dataclass(frozen=True, slots=True)
class NodeDeletion:
    """Machines to mark, and the size and the record that are written together afterwards."""

    machines: tuple[Machine, ...]
    size: int
    recorded: tuple[str, ...]


def deletion(group: ScalableGroup, nodes: Iterable[tuple[str, str]]) -> NodeDeletion:
    """
    What deletes nodes, given by provider id and name.

    A machine that is recorded is counted by the size already, so that a call that is repeated
    after a lost answer decreases the size once.
    """
    present = {m.name for m in group.machines}
    text = group.deployment.metadata.annotations.get(DELETING, "")
    recorded = [name for name in text.split(",") if name in present]
    found = []
    for provider_id, name in nodes:
        machine = next((m for m in group.machines if is_machine_of(m, provider_id, name)), None)
        if machine is None:
            raise Missing(f"node {name} does not belong to the node group {group.id}")
        if not machine.deleting and machine.name not in recorded:
            found.append(machine)
    size = group.size - len(found)
    if size < group.least:
        raise GroupLimitExceeded(
            f"{group.id} has {group.size} replicas; without {len(found)} it falls below its "
            f"minimum {group.least}"
        )
    names = sorted({*recorded, *(m.name for m in found)})
    return NodeDeletion(tuple(found), size, tuple(names))
