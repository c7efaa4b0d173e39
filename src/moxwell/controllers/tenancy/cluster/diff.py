"""
Changes of objects and of node groups as values that a plan prints. Pure.

A prediction assumes that every rollout completes; Cluster API then keeps the current MachineSet of
a group and one before it, and with them their templates.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import DEPLOYMENT_NAME, TEMPLATE_HASH
from moxwell.controllers.tenancy.apply_prediction import differences
from moxwell.scheduling.machine_rollout import OLD_MACHINE_SETS_KEPT, template_hash

Json = dict[str, Any]
ObjectName = tuple[str, str]  # kind, name
Action = Literal["create", "update", "delete"]
_NODE_FIELDS = ("spec.replicas", "spec.template")


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One object that is created, updated or deleted; ``waits_for`` is empty if it is due now."""

    action: Action
    kind: str
    name: str
    fields: tuple[str, ...] = ()
    waits_for: str = ""

    @property
    def changes_nodes(self) -> bool:
        """Whether machines are created, replaced or deleted because of it."""
        if self.kind != "MachineDeployment":
            return False
        return self.action != "update" or any(f.startswith(_NODE_FIELDS) for f in self.fields)

    @property
    def rolls_nodes(self) -> bool:
        """Whether existing machines are replaced because of it."""
        return self.changes_nodes and any(f.startswith("spec.template") for f in self.fields)

    def __str__(self) -> str:
        fields = f" ({', '.join(self.fields)})" if self.fields else ""
        after = f", after {self.waits_for}" if self.waits_for else ""
        return f"{self.action} {self.kind} {self.name}{fields}{after}"


@dataclass(frozen=True, slots=True)
class NodeGroupChange:
    """What happens to the nodes of a group, once every change is rolled out."""

    name: str  # of the MachineDeployment
    before: int
    after: int
    rolls: bool
    created: int
    deleted: int
    because: tuple[str, ...] = ()  # changed fields of the machine template
    waits_for: str = ""

    def __str__(self) -> str:
        change = "" if self.before == self.after else f"{self.before} -> "
        size = f"{change}{self.after} {'node' if self.after == 1 else 'nodes'}"
        after = f", after {self.waits_for}" if self.waits_for else ""
        if not self.rolls:
            return f"{self.name}: {size}; {self.created} created, {self.deleted} deleted{after}"
        because = f" because of {', '.join(self.because)}" if self.because else ""
        return f"{self.name}: {size}; {self.deleted} replaced one by one{because}{after}"


def name_of(obj: Json) -> ObjectName:
    """Kind and name of an object."""
    return obj["kind"], obj["metadata"]["name"]


def remaining_sets(
    deployments: Iterable[MachineDeployment], sets: Sequence[MachineSet]
) -> Iterable[MachineSet]:
    """The MachineSets that exist after every deployment has rolled out."""
    for deployment in deployments:
        current = template_hash(deployment)
        mine = [s for s in sets if s.metadata.labels.get(DEPLOYMENT_NAME) == deployment.name]
        yield from (s for s in mine if s.metadata.labels.get(TEMPLATE_HASH) == current)
        old = [s for s in mine if s.metadata.labels.get(TEMPLATE_HASH) != current]
        yield from sorted(old, key=lambda s: (_created(s), s.name))[-OLD_MACHINE_SETS_KEPT:]


def _created(machine_set: MachineSet) -> str:
    at = machine_set.metadata.creation_timestamp
    return at.isoformat() if at else ""


def node_group_change(
    name: str,
    before: Json | None,
    after: Json | None,
    sets: Sequence[MachineSet],
    waits_for: str = "",
) -> NodeGroupChange:
    """One MachineDeployment from before to after; ``after`` is None if it is deleted."""
    mine = [s for s in sets if s.metadata.labels.get(DEPLOYMENT_NAME) == name]
    existing = sum(_replicas(s) for s in mine)
    if after is None:
        return NodeGroupChange(name, existing, 0, False, 0, existing, (), waits_for)
    group = msgspec.convert(after, MachineDeployment, strict=False)
    wanted = 1 if group.spec.replicas is None else group.spec.replicas
    current = template_hash(group)
    kept = sum(_replicas(s) for s in mine if s.metadata.labels.get(TEMPLATE_HASH) == current)
    staying = min(kept, wanted)
    fields = tuple(_template_fields(before, after)) if before is not None else ()
    return NodeGroupChange(
        name,
        before=existing,
        after=wanted,
        rolls=existing > kept,
        created=wanted - staying,
        deleted=existing - staying,
        because=fields,
        waits_for=waits_for,
    )


def _replicas(machine_set: MachineSet) -> int:
    return 1 if machine_set.spec.replicas is None else machine_set.spec.replicas


def _template_fields(before: Json, after: Json) -> Iterable[str]:
    for field in differences(before, after):
        if field.startswith("spec.template.spec."):
            yield field.removeprefix("spec.template.spec.")
