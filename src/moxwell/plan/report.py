"""
The result of ``moxwell plan`` as values, and as text.

The CLI, the dashboard and ``moxwell explain`` print it with the same functions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from moxwell.controllers.tenancy.cluster.diff import NodeGroupChange, ObjectChange

DocumentAction = Literal["create", "update", "delete", "none"]
SYMBOLS = {"create": "+", "update": "~", "delete": "-"}
_OUTCOMES = {
    "create": "will be created",
    "update": "will be updated",
    "delete": "will be deleted",
    "none": "does not change",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChange:
    """A machine that is created, with its predicted host and addresses, or deleted."""

    action: Literal["create", "delete"]
    group: str
    name: str = ""  # of a machine that exists
    region: str = ""
    host: str = ""
    addresses: tuple[str, ...] = ()
    why_not: str = ""  # why no host can take it
    vmid: int = 0  # of a guest that exists
    disks: tuple[str, ...] = ()  # that are destroyed with it
    kept: tuple[str, ...] = ()  # disks of volumes, which are only detached

    def __str__(self) -> str:
        host = f"{self.region}/{self.host}" if self.host else self.why_not or "no host"
        text = f"{SYMBOLS[self.action]} {self.action} {self.name or 'machine'} on {host}"
        text += f" (VMID {self.vmid})" if self.vmid else ""
        text += f", {' '.join(self.addresses)}" if self.addresses else ""
        return f"{text}, disks {' '.join(self.disks)}" if self.disks else text


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentPlan:
    """What one manifest changes."""

    kind: str
    name: str
    namespace: str = ""
    action: DocumentAction = "none"
    fields: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    objects: tuple[ObjectChange, ...] = ()
    groups: tuple[NodeGroupChange, ...] = ()
    machines: tuple[MachineChange, ...] = ()

    def __str__(self) -> str:
        return "\n".join(lines(self))


@dataclass(frozen=True, slots=True)
class ManifestPlan:
    """What several manifests change; one part for each document."""

    parts: tuple[DocumentPlan, ...]


def lines(part: DocumentPlan) -> Iterable[str]:
    """A plan as lines of text: the document, its objects, its node groups with their machines."""
    place = f"{part.namespace}/" if part.namespace else ""
    fields = f" ({', '.join(part.fields)})" if part.fields else ""
    yield f"{part.kind} {place}{part.name} {_OUTCOMES[part.action]}{fields}"
    yield from change_lines(part.objects, part.groups, part.machines)
    yield from (f"note: {note}" for note in part.notes)


def change_lines(
    objects: Sequence[ObjectChange],
    groups: Sequence[NodeGroupChange],
    machines: Sequence[MachineChange],
) -> Iterable[str]:
    """The objects, then each node group that changes with its machines."""
    yield from (f"  {SYMBOLS[change.action]} {change}" for change in objects)
    for group in groups:
        if group.created or group.deleted or group.rolls:
            yield str(group)
            yield from (f"  {machine}" for machine in machines if machine.group == group.name)
    grouped = {group.name for group in groups}
    yield from (f"{machine}" for machine in machines if machine.group not in grouped)
