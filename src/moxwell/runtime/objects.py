"""
Accessors that work on a typed object and on a dict alike.

Controllers use typed kinds; caches of kinds that Moxwell does not declare hold dicts.
"""

from typing import Any

import msgspec

from moxwell.api.kinds import Object, Resource
from moxwell.api.meta import ObjectMeta
from moxwell.runtime.key import Key

CLUSTER_LABEL = "cluster.x-k8s.io/cluster-name"
PAUSED_ANNOTATION = "cluster.x-k8s.io/paused"


def resource_of(kind: Any) -> Resource:
    """The Resource of a kind."""
    if isinstance(kind, Resource):
        return kind
    found: Resource = kind.resource
    return found


def key_of(obj: Any) -> Key:
    """The key of an object."""
    if isinstance(obj, Object):
        return Key(obj.metadata.namespace, obj.metadata.name)
    meta = obj["metadata"]
    return Key(meta.get("namespace", ""), meta["name"])


def version_of(obj: Any) -> str:
    """The resource version."""
    if isinstance(obj, Object):
        return obj.metadata.resource_version
    return str(obj["metadata"].get("resourceVersion", ""))


def meta_of(obj: Any) -> ObjectMeta:
    """The metadata, typed."""
    if isinstance(obj, Object):
        return obj.metadata
    return msgspec.convert(obj["metadata"], ObjectMeta)


def as_tree(obj: Any) -> dict[str, Any]:
    """The whole object as JSON values; read-only."""
    tree: dict[str, Any] = msgspec.to_builtins(obj) if isinstance(obj, msgspec.Struct) else obj
    return tree


def field_of(obj: Any, path: str) -> Any:
    """The value at a dotted path of JSON names (``spec.providerID``), or None."""
    value = obj
    for part in path.split("."):
        if isinstance(value, msgspec.Struct):
            value = getattr(value, _attribute(type(value), part), None)
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def _attribute(struct: type[msgspec.Struct], wire: str) -> str:
    """The attribute name of a JSON name."""
    for attribute, name in zip(
        struct.__struct_fields__, struct.__struct_encode_fields__, strict=True
    ):
        if name == wire:
            return attribute
    return wire


def is_newer(version: str, than: str) -> bool:
    """
    Whether one version of an object is later than another.

    Resource versions are compared as numbers; where they are not numbers, a different one counts as
    newer.
    """
    if version.isdigit() and than.isdigit():
        return int(version) > int(than)
    return version != than
