"""``cloud.lifecycle``: deletes or taints nodes that are not Ready, by the state of their guest."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.controllers.cloud import loops
from moxwell.controllers.cloud.guest_lookup import GuestGone, GuestLookup
from moxwell.controllers.cloud.lifecycle.plan import (
    LifecycleMove,
    NodeLifecycleReason,
    ObservedNodeGuest,
    plan_lifecycle,
)
from moxwell.controllers.cloud.lifecycle.see import see_guest
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.move import Wait
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.writes import Writes

NAME = loops.LIFECYCLE
UNKNOWN_SECONDS = 30.0  # until the next lookup of an unknown guest; inventory changes come earlier


class NodeLifecycleReconciler(Reconciler[Node, ObservedNodeGuest, LifecycleMove, Any]):
    """One pass per node; a node that is Ready causes no request."""

    kind = Node

    def __init__(
        self, kube: Kube, lookup: GuestLookup, *, monitor_seconds: float = loops.MONITOR_SECONDS
    ) -> None:
        self._kube, self._lookup, self._monitor = kube, lookup, monitor_seconds

    async def see(self, obj: Node, reader: Reader) -> ObservedNodeGuest:
        return await see_guest(obj, self._lookup)

    def plan(self, obj: Node, seen: ObservedNodeGuest) -> LifecycleMove:
        return plan_lifecycle(obj, seen)

    async def act(self, move: LifecycleMove) -> None:
        if isinstance(move, Writes):
            await move.perform(self._kube)

    def describe(self, obj: Node, seen: ObservedNodeGuest, move: LifecycleMove) -> None:
        """The status of a Node is the kubelet's."""

    def events(self, obj: Node, seen: ObservedNodeGuest, move: LifecycleMove) -> Sequence[Note]:
        if isinstance(move, Wait):
            return (Note(move.reason, move.message, "Warning"),)
        if isinstance(seen.result, GuestGone):
            text = f"Deleting node: {seen.result.what} does not exist any more"
            return (Note(NodeLifecycleReason.DELETING_NODE, text),)
        return ()

    def requeue_after(
        self, obj: Node, seen: ObservedNodeGuest, move: LifecycleMove
    ) -> float | None:
        if isinstance(move, Wait):
            return max(UNKNOWN_SECONDS, self._monitor)
        return None if seen.result is None else self._monitor
