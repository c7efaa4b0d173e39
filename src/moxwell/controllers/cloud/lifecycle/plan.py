"""What happens to a node whose kubelet does not report. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from moxwell.api.core.nodes import Node
from moxwell.controllers.cloud.guest_lookup import (
    GuestFound,
    GuestGone,
    GuestUnknown,
    LookupResult,
)
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Delete, Merge, Writes

SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"


class NodeLifecycleReason(StrEnum):
    """Reasons of events and waits."""

    DELETING_NODE = "DeletingNode"
    GUEST_UNKNOWN = "GuestUnknown"


@dataclass(frozen=True, slots=True)
class ObservedNodeGuest:
    """The lookup of the node's guest; None for a node that is Ready."""

    result: LookupResult | None = None


LifecycleMove = Writes | Wait | Done


def has_shutdown_taint(node: Node) -> bool:
    """Whether the node is tainted because its guest was stopped."""
    return any(t.key == SHUTDOWN for t in node.spec.taints)


def plan_lifecycle(node: Node, seen: ObservedNodeGuest) -> LifecycleMove:
    """Delete the node, change its shutdown taint, or wait."""
    result = seen.result
    if result is None:
        return _untaint(node)
    if isinstance(result, GuestGone):
        return Writes((Delete(Node, node.name, uid=node.uid),), NodeLifecycleReason.DELETING_NODE)
    if isinstance(result, GuestUnknown):
        return Wait(NodeLifecycleReason.GUEST_UNKNOWN, result.why)
    if isinstance(result, GuestFound) and result.guest.status == "stopped":
        return _taint(node)
    return Done()


def _taint(node: Node) -> LifecycleMove:
    if has_shutdown_taint(node):
        return Done()
    taints = [msgspec.to_builtins(t) for t in node.spec.taints]
    return _set_taints(node, [*taints, {"key": SHUTDOWN, "effect": "NoSchedule"}])


def _untaint(node: Node) -> LifecycleMove:
    if not has_shutdown_taint(node):
        return Done()
    kept = [msgspec.to_builtins(t) for t in node.spec.taints if t.key != SHUTDOWN]
    return _set_taints(node, kept)


def _set_taints(node: Node, taints: list[dict[str, Any]]) -> Writes:
    change = {
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "spec": {"taints": taints or None},
    }
    return Writes((Merge(Node, node.name, change),))
