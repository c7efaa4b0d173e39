"""Index functions of informer caches: from an object to index values."""

from collections.abc import Callable, Iterable
from typing import Any

from moxwell.api.kinds import Object
from moxwell.runtime.objects import field_of, meta_of

Indexer = Callable[[Any], Iterable[str]]


def by_owner(obj: Any) -> Iterable[str]:
    """The UIDs of all owners."""
    if isinstance(obj, Object):
        return [owner.uid for owner in obj.metadata.owner_references]
    return [owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()]


def by_uid(obj: Any) -> Iterable[str]:
    """The UID."""
    return (meta_of(obj).uid,)


def by_label(name: str) -> Indexer:
    """The value of one label."""

    def values(obj: Any) -> Iterable[str]:
        meta = obj.metadata.labels if isinstance(obj, Object) else obj["metadata"].get("labels")
        value = (meta or {}).get(name)
        return () if value is None else (value,)

    return values


def by_field(path: str) -> Indexer:
    """The value at a dotted path of JSON names; absent and empty values are not indexed."""

    def values(obj: Any) -> Iterable[str]:
        value = field_of(obj, path)
        return () if value in (None, "") else (str(value),)

    return values


by_provider_id = by_field("spec.providerID")
