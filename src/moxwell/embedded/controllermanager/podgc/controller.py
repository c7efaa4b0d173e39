"""The pod garbage collector: deletes pods whose node does not exist any more."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.podgc.plan import next_move
from moxwell.embedded.controllermanager.pods_by_node import pods_on
from moxwell.embedded.controllermanager.resources import NODES, PODS
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.watches import Watch

Json = dict[str, Any]


class PodGCController(WritingReconciler[Json, bool, Json]):
    """Reconciles pods; sees whether the node exists, live if the cache does not have it."""

    kind = PODS

    def __init__(self, kube: Kube, nodes: Cache[Any], pods: Cache[Any]) -> None:
        super().__init__(kube)
        self._nodes = nodes
        self.watches: Sequence[Watch] = (Watch(NODES, pods_on(pods), lambda old, new: new is None),)

    async def see(self, pod: Json, reader: Reader) -> bool:
        name = pod["spec"].get("nodeName") or ""
        if not name or self._nodes.find(Key("", name)) is not None:
            return True
        return await reader.find(NODES, name) is not None

    def plan(self, pod: Json, seen: bool) -> WriteMove:
        return next_move(pod, seen)

    def describe(self, pod: Json, seen: bool, move: WriteMove) -> None:
        return None
