"""
Object metadata: names, labels, owner references, finalizers, resource versions.

All API types are frozen, keyword-only msgspec Structs that omit defaults and spell out their JSON
names. A Struct holds the fields that Moxwell uses; unknown fields are skipped when decoding. A
decoded object is therefore never written back whole; writers send patches
(:mod:`moxwell.kube.patch`). ``managedFields`` is such a skipped field.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import Struct, field


class Value(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all API types; subclasses repeat ``frozen=True, kw_only=True`` for type checkers."""


class OwnerReference(Value, frozen=True, kw_only=True):
    """An owner reference; the garbage collector deletes the object with its owner."""

    api_version: str = field(name="apiVersion")
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = field(name="blockOwnerDeletion", default=None)

    @property
    def group(self) -> str:
        """The API group of the owner; unlike the version, it never changes."""
        return self.api_version.rpartition("/")[0]


class ObjectMeta(Value, frozen=True, kw_only=True):
    """The metadata of an object."""

    name: str = ""
    generate_name: str = field(name="generateName", default="")
    namespace: str = ""
    uid: str = ""
    resource_version: str = field(name="resourceVersion", default="")
    generation: int = 0
    creation_timestamp: datetime | None = field(name="creationTimestamp", default=None)
    deletion_timestamp: datetime | None = field(name="deletionTimestamp", default=None)
    deletion_grace_period_seconds: int | None = field(
        name="deletionGracePeriodSeconds", default=None
    )
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = field(name="ownerReferences", default=())
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference of the managing controller, if any."""
        return next((o for o in self.owner_references if o.controller), None)

    @property
    def key(self) -> str:
        """``namespace/name``, or the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ListMeta(Value, frozen=True, kw_only=True):
    """The metadata of a page of a list."""

    resource_version: str = field(name="resourceVersion", default="")
    continue_: str = field(name="continue", default="")
    remaining_item_count: int | None = field(name="remainingItemCount", default=None)


class TemplateMeta(Value, frozen=True, kw_only=True):
    """The labels and annotations that a template sets on created objects."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def micro_time(at: datetime) -> str:
    """Format a MicroTime with six digits; a kube-apiserver rejects fewer."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Parse an RFC 3339 time to UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)
