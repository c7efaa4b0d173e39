"""The loop over nodes that do not report."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.controllers.cloud.guest_lookup import Answer, Found, Lookup
from moxwell.controllers.cloud.lifecycle import plan
from moxwell.kube.client import Kube
from moxwell.runtime.move import Wait
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

NAME = "cloud.lifecycle"
MONITOR_SECONDS = 5.0
SILENT_SECONDS = 30.0  # when nobody can say; changes of the inventory wake it sooner


class CloudLifecycle:
    """One pass for each node; Ready ones cost nothing."""

    kind = Node
    finalizer = ""
    watches: Sequence[Watch] = ()

    def __init__(
        self, kube: Kube, lookup: Lookup, *, monitor_seconds: float = MONITOR_SECONDS
    ) -> None:
        self._kube, self._lookup, self._monitor = kube, lookup, monitor_seconds

    async def reconcile(self, node: Node) -> Outcome[Any]:
        ready = node.status.is_true("Ready")
        answer = None if ready else await self._ask(node)
        move = plan.next_move(node, answer)
        match move:
            case plan.Delete(why):
                await self._kube.delete(Node, node.name, uid=node.uid)
                return Outcome(None, notes=(Note("DeletingNode", f"Deleting node: {why}"),))
            case plan.SetTaints(taints):
                change = {
                    "metadata": {"resourceVersion": node.metadata.resource_version},
                    "spec": {"taints": list(taints) or None},
                }
                await self._kube.merge(Node, node.name, change)
            case Wait(reason, message):
                told = Note(reason, message, "Warning")
                later = max(SILENT_SECONDS, self._monitor)
                return Outcome(None, again=later, notes=(told,))
        return Outcome(None, again=None if ready else self._monitor)

    async def _ask(self, node: Node) -> Answer:
        """Before a node is marked as shut down, its guest's host is asked."""
        answer = await self._lookup.find(node)
        if isinstance(answer, Found) and answer.guest.status == "stopped":
            return answer if plan.is_tainted(node) else await self._lookup.confirm(answer)
        return answer
