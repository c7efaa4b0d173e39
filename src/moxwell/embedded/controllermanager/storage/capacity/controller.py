"""Publishes the free capacity of the driver's storage classes as CSIStorageCapacity objects."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.resources import (
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    NODES,
    STORAGE_CLASSES,
)
from moxwell.embedded.controllermanager.storage.capacity.plan import (
    DRIVER_LABEL,
    NAMESPACE,
    ObservedCapacity,
    SegmentCapacity,
    next_move,
)
from moxwell.embedded.controllermanager.storage.plugin import CSIPlugin
from moxwell.embedded.controllermanager.storage.topology import segments
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.caches import Caches
from moxwell.runtime.watches import COALESCE_SECONDS, Watch

Json = dict[str, Any]


class CapacityController(WritingReconciler[Json, ObservedCapacity, Json]):
    """Reconciles StorageClasses of the driver; asks the driver for the capacity of each segment."""

    kind = STORAGE_CLASSES

    def __init__(self, kube: Kube, plugin: CSIPlugin, caches: Caches) -> None:
        super().__init__(kube)
        self._plugin, classes = plugin, caches.of(STORAGE_CLASSES)
        self._nodes, self._csi_nodes = caches.of(NODES), caches.of(CSI_NODES)
        self.watches: Sequence[Watch] = (
            Watch(CSI_NODES, lambda _: classes.keys(), delay=COALESCE_SECONDS),
        )

    def is_ours(self, storage_class: Json) -> bool:
        """Whether the driver provisions volumes of the class."""
        return bool(storage_class["provisioner"] == self._plugin.name)

    async def see(self, storage_class: Json, reader: Reader) -> ObservedCapacity:
        driver, name = self._plugin.name, storage_class["metadata"]["name"]
        page = await reader.list(CSI_STORAGE_CAPACITIES, NAMESPACE, labels={DRIVER_LABEL: driver})
        objects = [o for o in page.items if o["storageClassName"] == name]
        parameters, found = storage_class.get("parameters") or {}, []
        for segment in segments(self._nodes, self._csi_nodes, driver):
            free, largest = await self._plugin.capacity(parameters, segment)
            found.append(SegmentCapacity(segment, free, largest))
        return ObservedCapacity(driver, tuple(found), tuple(objects))

    def plan(self, storage_class: Json, seen: ObservedCapacity) -> WriteMove:
        return next_move(storage_class, seen)

    def describe(self, storage_class: Json, seen: ObservedCapacity, move: WriteMove) -> None:
        return None
