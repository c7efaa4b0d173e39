"""
An index over a storage's volumes: who owns which, and how much they occupy together.

``Storage.volumes`` stays the truth. The index follows the changes that :class:`.stock.Stock` makes
and is built anew when the shelf has another length than expected, so that changes from elsewhere
cost a scan, not correctness.
"""

from typing import Any

from moxwell.lab.proxmox.state import Storage, Volume


class Shelf:
    """The volumes of one storage as one node sees them."""

    def __init__(self, volumes: dict[str, Volume]) -> None:
        self.volumes = volumes
        self.used = 0
        self._owned: dict[int, set[str]] = {}
        self._count = -1

    def fresh(self) -> "Shelf":
        if self._count != len(self.volumes):
            self._owned, self.used, self._count = {}, 0, len(self.volumes)
            for volume in self.volumes.values():
                self._note(volume)
        return self

    def _note(self, volume: Volume) -> None:
        self.used += volume.used
        if volume.vmid is not None:
            self._owned.setdefault(volume.vmid, set()).add(volume.name)

    def put(self, volume: Volume) -> None:
        if volume.name in self.volumes:
            self.take(volume.name)
        self.volumes[volume.name] = volume
        self._count += 1
        self._note(volume)

    def take(self, name: str) -> Volume:
        """Remove a volume."""
        volume = self.volumes.pop(name)
        self._count -= 1
        self.used -= volume.used
        if volume.vmid is not None:
            names = self._owned.get(volume.vmid, set())
            names.discard(name)
            if not names:
                self._owned.pop(volume.vmid, None)
        return volume

    def grow(self, volume: Volume, amount: int) -> None:
        """A volume occupies so many bytes more."""
        volume.used += amount
        self.used += amount

    def owned(self, vmid: int) -> set[str]:
        return self._owned.get(vmid, set())


def shelf(extras: dict[str, Any], storage: Storage, node: str) -> Shelf:
    """The indexed shelf; ``extras`` keeps it while the simulator runs."""
    kept: dict[tuple[str, str], Shelf] = extras.setdefault("shelves", {})
    volumes = storage.shelf(node)
    key = (storage.name, "" if storage.shared else node)
    found = kept.get(key)
    if found is None or found.volumes is not volumes:
        found = kept[key] = Shelf(volumes)
    return found.fresh()
