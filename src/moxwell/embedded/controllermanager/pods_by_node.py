"""An index of the pods of each node."""

from collections.abc import Callable
from typing import Any

from moxwell.runtime.cache import Cache
from moxwell.runtime.index import by_field
from moxwell.runtime.key import Key
from moxwell.runtime.objects import key_of

Json = dict[str, Any]
BY_NODE = "embedded.node_name"


def pods_on_node(pods: Cache[Any], node: str) -> tuple[Json, ...]:
    """The cached pods of a node."""
    pods.add_index(BY_NODE, by_field("spec.nodeName"))
    return pods.by(BY_NODE, node)


def pods_on(pods: Cache[Any]) -> Callable[[Json], list[Key]]:
    """A function from a Node to the keys of its pods."""

    def keys(node: Json) -> list[Key]:
        return [key_of(p) for p in pods_on_node(pods, node["metadata"]["name"])]

    return keys
