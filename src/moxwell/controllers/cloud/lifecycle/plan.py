"""What becomes of a node that does not report: pure."""

from dataclasses import dataclass
from typing import Any

import msgspec

from moxwell.api.core.nodes import Node
from moxwell.controllers.cloud.guest_lookup import Answer, Found, Gone, Unknown
from moxwell.runtime.move import Done, Wait

SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"


@dataclass(frozen=True, slots=True)
class Delete:
    """The guest is gone; so is the node."""

    why: str


@dataclass(frozen=True, slots=True)
class SetTaints:
    """The shutdown taint is put on or taken off."""

    taints: tuple[dict[str, Any], ...]


Move = Delete | SetTaints | Wait | Done


def is_tainted(node: Node) -> bool:
    """It was seen to be shut down."""
    return any(t.key == SHUTDOWN for t in node.spec.taints)


def next_move(node: Node, answer: Answer | None) -> Move:
    """``answer`` is None for a node that is Ready: nobody was asked."""
    if node.status.is_true("Ready") or answer is None:
        return _untaint(node)
    if isinstance(answer, Gone):
        return Delete(f"{answer.what} is not there any more")
    if isinstance(answer, Unknown):
        return Wait("GuestUnknown", answer.why)
    if isinstance(answer, Found) and answer.guest.status == "stopped":
        return _taint(node)
    return Done()


def _taint(node: Node) -> Move:
    if is_tainted(node):
        return Done()
    rows = [msgspec.to_builtins(t) for t in node.spec.taints]
    return SetTaints((*rows, {"key": SHUTDOWN, "effect": "NoSchedule"}))


def _untaint(node: Node) -> Move:
    if not is_tainted(node):
        return Done()
    kept = [msgspec.to_builtins(t) for t in node.spec.taints if t.key != SHUTDOWN]
    return SetTaints(tuple(kept))
