"""Reads the storages of a node's region, and the StorageClasses of the node's cluster."""

from typing import Any

from moxwell.controllers.tenancy.storage_classes.plan import (
    CLASSES,
    CSI_DRIVERS,
    DEFAULT_CLASS,
    ObservedStorageClasses,
    VolumeStorage,
)
from moxwell.kube.reader import Reader
from moxwell.pve.regions import Region, Regions

Json = dict[str, Any]
REGION = "topology.kubernetes.io/region"


class StorageClassObserver:
    """
    Reads storages and classes.

    ``handled`` are the storages whose class exists or existed in this process; a pass without new
    storages costs no request.
    """

    def __init__(self, regions: Regions, driver: str) -> None:
        self._regions, self._driver = regions, driver
        self._has_driver = False
        self.handled: set[str] = set()

    async def see(self, node: Json, reader: Reader) -> ObservedStorageClasses:
        """The storages of the node's region that have no class yet."""
        name = (node["metadata"].get("labels") or {}).get(REGION, "")
        region = self._regions.find(name) if name else None
        if region is None:
            return ObservedStorageClasses()
        if not region.inventory.synced:
            return ObservedStorageClasses(synced=False)
        new = [s for s in _storages(region) if s.name not in self.handled]
        if not new and self._has_driver:
            return ObservedStorageClasses(synced=True)
        rows = (await reader.list(CLASSES)).items
        existing = {row["metadata"]["name"] for row in rows}
        self.handled |= {s.name for s in new if f"proxmox-{s.name}" in existing}
        self._has_driver = await reader.find(CSI_DRIVERS, self._driver) is not None
        return ObservedStorageClasses(
            synced=True,
            storages=tuple(s for s in new if s.name not in self.handled),
            has_driver=self._has_driver,
            has_default=any(_is_default(row) for row in rows),
        )


def _storages(region: Region) -> list[VolumeStorage]:
    found = {s.name: s for s in region.inventory.storages.values() if "images" in s.content}
    return [VolumeStorage(s.name, s.shared) for s in found.values()]


def _is_default(row: Json) -> bool:
    return bool((row["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true")
