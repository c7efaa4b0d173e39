"""
The base of a controller whose every move is a set of writes to one Kubernetes API.

Most controllers of ``embedded`` are of this form: they read, decide, and write Kubernetes objects.
"""

from typing import Any, Generic, TypeVar

from moxwell.kube.client import Kube
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.writes import Writes

K = TypeVar("K")
Seen = TypeVar("Seen")
S = TypeVar("S")
Json = dict[str, Any]
WriteMove = Writes | Wait | Done


class WritingReconciler(Reconciler[K, Seen, WriteMove, S], Generic[K, Seen, S]):
    """A reconciler that executes ``Writes`` with its client."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def act(self, move: WriteMove) -> Any:
        if isinstance(move, Writes):
            return await move.perform(self._kube, self.kind)
        return None
