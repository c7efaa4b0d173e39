"""An object of any kind as JSON values, with the resource that it was read from."""

from dataclasses import dataclass
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.runtime.writes import Delete


@dataclass(frozen=True, slots=True)
class Unstructured:
    """An object that is not decoded to a type; its fields are read-only."""

    resource: Resource
    obj: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.obj["metadata"].get("namespace", ""))

    @property
    def uid(self) -> str:
        return str(self.obj["metadata"]["uid"])

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.obj["metadata"]

    @property
    def identity(self) -> tuple[str, str]:
        """The kind and the name, which are the same in another cluster."""
        return self.resource.kind, self.name

    def delete(self) -> Delete:
        """The write that deletes it."""
        return Delete(self.resource, self.name, self.namespace, uid=self.uid)

    def __repr__(self) -> str:
        return f"Unstructured({self.resource.kind} {self.name})"
