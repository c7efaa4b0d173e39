"""
``tenancy.storageclass``: creates the StorageClasses of a tenant cluster, node by node.

Passes must not run concurrently (``per_shard=1``), because only one class becomes the default.
"""

from typing import Any

from moxwell.api.kinds import Resource
from moxwell.controllers.tenancy.storage_classes.plan import (
    CLASSES,
    ObservedStorageClasses,
    StorageClassMove,
    plan_classes,
)
from moxwell.controllers.tenancy.storage_classes.see import StorageClassObserver
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.pve.regions import Regions
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.writes import Create, Writes

NAME = "tenancy.storageclass"
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
Json = dict[str, Any]


class StorageClassReconciler(Reconciler[Json, ObservedStorageClasses, StorageClassMove, Json]):
    """One pass per node of a tenant cluster; ``kube`` is a client of that cluster."""

    kind = NODES

    def __init__(self, kube: Kube, regions: Regions, driver: str) -> None:
        self._kube, self._driver = kube, driver
        self._observer = StorageClassObserver(regions, driver)

    async def see(self, obj: Json, reader: Reader) -> ObservedStorageClasses:
        return await self._observer.see(obj, reader)

    def plan(self, obj: Json, seen: ObservedStorageClasses) -> StorageClassMove:
        return plan_classes(seen, self._driver)

    async def act(self, move: StorageClassMove) -> None:
        if not isinstance(move, Writes):
            return
        await move.perform(self._kube)
        for write in move.writes:
            if isinstance(write, Create) and write.resource == CLASSES:
                self._observer.handled.add(write.obj["parameters"]["storage"])

    def describe(
        self, obj: Json, seen: ObservedStorageClasses, move: StorageClassMove
    ) -> Json | None:
        """The status of a Node is the kubelet's."""
        return None
