"""Changes that one document of a plan causes in other objects, as values. Pure."""

from dataclasses import dataclass
from typing import Any

import msgspec

from moxwell.controllers.tenancy.cluster.diff import NodeGroupChange, ObjectChange
from moxwell.plan.report import DocumentAction, DocumentPlan, MachineChange

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Consequences:
    """What follows from a document beyond itself."""

    objects: tuple[ObjectChange, ...] = ()
    groups: tuple[NodeGroupChange, ...] = ()
    machines: tuple[MachineChange, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: "Consequences") -> "Consequences":
        return Consequences(
            self.objects + other.objects,
            self.groups + other.groups,
            self.machines + other.machines,
            self.notes + other.notes,
        )


def document_plan(
    action: DocumentAction, kind: str, identity: tuple[str, str], found: Consequences
) -> DocumentPlan:
    """The plan of a document with its name and namespace."""
    name, namespace = identity
    return DocumentPlan(
        kind=kind,
        name=name,
        namespace=namespace,
        action=action,
        notes=found.notes,
        objects=found.objects,
        groups=found.groups,
        machines=found.machines,
    )


def convert(tree: Json, kind: Any) -> Any:
    """A typed object of a dict."""
    return msgspec.convert(tree, kind, strict=False)


def as_deleted(tree: Json, kind: Any) -> Any:
    """The object as if it were being deleted."""
    meta = {"deletionTimestamp": "1970-01-01T00:00:00Z", **tree["metadata"]}
    return convert({**tree, "metadata": meta}, kind)
