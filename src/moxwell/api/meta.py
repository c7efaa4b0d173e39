"""
What every Kubernetes object carries: names, labels, owners, finalizers, versions.

All nouns of :mod:`moxwell.api` are frozen msgspec Structs with three habits: keyword-only, defaults
left out on the wire, wire names written by hand (``templateID`` is not what camel-casing gives).
A Struct holds the fields we use; unknown ones are skipped when reading. So nothing typed is ever
written back whole: writers send patches of what they changed (:mod:`moxwell.kube.patch`).
``managedFields`` is such a skipped field: objects read as dicts have it, typed ones do not.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import Struct, field


class Value(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The habits of every noun; subclasses repeat ``frozen=True, kw_only=True`` for checkers."""


class OwnerReference(Value, frozen=True, kw_only=True):
    """Who this object belongs to, and goes with."""

    api_version: str = field(name="apiVersion")
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = field(name="blockOwnerDeletion", default=None)

    @property
    def group(self) -> str:
        """The API group; versions change over an owner's life, groups do not."""
        return self.api_version.rpartition("/")[0]


class ObjectMeta(Value, frozen=True, kw_only=True):
    """The metadata of one object."""

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
        """The one owner that manages this object, if any."""
        return next((o for o in self.owner_references if o.controller), None)

    @property
    def key(self) -> str:
        """``namespace/name``, or the bare name of what lives in no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ListMeta(Value, frozen=True, kw_only=True):
    """The metadata of one page of a list."""

    resource_version: str = field(name="resourceVersion", default="")
    continue_: str = field(name="continue", default="")
    remaining_item_count: int | None = field(name="remainingItemCount", default=None)


class TemplateMeta(Value, frozen=True, kw_only=True):
    """The metadata that a template gives to what is made from it."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def micro_time(at: datetime) -> str:
    """A Kubernetes MicroTime: always six digits, a genuine apiserver refuses fewer."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Any RFC 3339 time that Kubernetes writes, in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)
