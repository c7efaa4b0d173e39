"""
An index over the volumes of a storage, by owner and with the total usage.

Follows the changes of :class:`.volume_store.VolumeStore` and is rebuilt when the number of volumes
differs from the expected one, so changes made elsewhere cost a scan but not correctness.
"""

from typing import Any

from moxwell.lab.proxmox.state import SimStorage, SimVolume


class VolumeIndex:
    """The volumes of one storage that one node sees."""

    def __init__(self, volumes: dict[str, SimVolume]) -> None:
        self.volumes = volumes
        self.used = 0
        self._owned: dict[int, set[str]] = {}
        self._count = -1

    def rebuilt(self) -> "VolumeIndex":
        if self._count != len(self.volumes):
            self._owned, self.used, self._count = {}, 0, len(self.volumes)
            for volume in self.volumes.values():
                self._add(volume)
        return self

    def _add(self, volume: SimVolume) -> None:
        self.used += volume.used
        if volume.vmid is not None:
            self._owned.setdefault(volume.vmid, set()).add(volume.name)

    def put(self, volume: SimVolume) -> None:
        if volume.name in self.volumes:
            self.remove(volume.name)
        self.volumes[volume.name] = volume
        self._count += 1
        self._add(volume)

    def remove(self, name: str) -> SimVolume:
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

    def grow(self, volume: SimVolume, amount: int) -> None:
        """Add to the usage of a volume."""
        volume.used += amount
        self.used += amount

    def owned(self, vmid: int) -> set[str]:
        return self._owned.get(vmid, set())


def volume_index(module_data: dict[str, Any], storage: SimStorage, node: str) -> VolumeIndex:
    """The index of a storage; ``module_data`` caches it while the simulator runs."""
    indexes: dict[tuple[str, str], VolumeIndex] = module_data.setdefault("volume_indexes", {})
    volumes = storage.volumes_on(node)
    key = (storage.name, "" if storage.shared else node)
    found = indexes.get(key)
    if found is None or found.volumes is not volumes:
        found = indexes[key] = VolumeIndex(volumes)
    return found.rebuilt()
