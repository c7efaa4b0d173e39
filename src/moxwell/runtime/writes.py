"""
Writes to a Kubernetes API as values: what a plan returns and ``perform`` executes.

A ``Writes`` is one move. Its writes are executed in order; a failure leaves the rest to the next
pass, so each write must be harmless when it is repeated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, NotFound


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object. ``resource`` names the resource of a dict; an existing one is kept."""

    obj: Any = field(repr=False)  # may be a Secret
    resource: Any = None

    async def perform(self, kube: Kube) -> Any:
        try:
            return await kube.create(self.obj, self.resource)
        except AlreadyExists:
            return None

    def __str__(self) -> str:
        return f"create {_name(self.obj)}"


@dataclass(frozen=True, slots=True)
class Merge:
    """A JSON merge patch of an object or, with ``subresource``, of a subresource of it."""

    kind: Any
    name: str
    change: Mapping[str, Any] = field(repr=False)
    namespace: str = ""
    subresource: str = ""
    missing_ok: bool = False

    async def perform(self, kube: Kube) -> Any:
        try:
            return await kube.merge(
                self.kind, self.name, self.change, self.namespace, subresource=self.subresource
            )
        except NotFound:
            if not self.missing_ok:
                raise
            return None

    def __str__(self) -> str:
        return f"patch {_kind(self.kind)} {self.name}"


@dataclass(frozen=True, slots=True)
class Apply:
    """A server-side apply."""

    obj: Any = field(repr=False)
    resource: Any = None
    manager: str = ""
    force: bool = False

    async def perform(self, kube: Kube) -> Any:
        return await kube.apply(self.obj, self.resource, manager=self.manager, force=self.force)

    def __str__(self) -> str:
        return f"apply {_name(self.obj)}"


@dataclass(frozen=True, slots=True)
class Delete:
    """A deletion; an object that is already gone is no error. ``uid`` excludes a namesake."""

    kind: Any
    name: str
    namespace: str = ""
    uid: str = ""
    grace_seconds: int | None = None

    async def perform(self, kube: Kube) -> None:
        options: Any = {} if self.grace_seconds is None else {"grace": self.grace_seconds}
        try:
            await kube.delete(self.kind, self.name, self.namespace, uid=self.uid, **options)
        except NotFound:
            return

    def __str__(self) -> str:
        return f"delete {_kind(self.kind)} {self.name}"


Write = Create | Merge | Apply | Delete


@dataclass(frozen=True, slots=True)
class Writes:
    """One move that consists of writes to the same Kubernetes API, executed in order."""

    writes: tuple[Write, ...]
    reason: str = ""  # of the condition while the writes are under way
    requeue_after: float | None = None

    async def perform(self, kube: Kube, kind: Any = None) -> Any:
        """Execute the writes; returns the object of ``kind``, the reconciled one, as patched."""
        patched = None
        for write in self.writes:
            result = await write.perform(kube)
            if kind is not None and isinstance(write, Merge) and write.kind == kind:
                patched = result
        return patched

    def __str__(self) -> str:
        return ", ".join(map(str, self.writes))


def _kind(kind: Any) -> str:
    resource = getattr(kind, "resource", kind)
    return str(getattr(resource, "kind", resource))


def _name(obj: Any) -> str:
    if isinstance(obj, dict):
        return f"{obj.get('kind', 'object')} {obj['metadata'].get('name', '')}".strip()
    return f"{_kind(type(obj))} {obj.metadata.name}"
