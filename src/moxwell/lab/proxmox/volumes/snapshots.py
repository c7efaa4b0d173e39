"""
Snapshots of single volumes.

In a volume chain (PVE 9) each snapshot is a volume of its own, which occupies its full size on LVM;
elsewhere a snapshot shares the space of its volume.
"""

from moxwell.lab.proxmox.state import SimStorage, SimVolume
from moxwell.lab.proxmox.volumes import names
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore, blank_used


def add(store: VolumeStore, volid: str, name: str) -> None:
    """Take a snapshot; raises the error of a storage without room."""
    volume, storage = store.get(volid), store.get_storage(volid.partition(":")[0])
    if needed := _layer(storage, volume):
        store.check_room(storage, needed, names.path_of(storage, volume.name), volume.format)
        store.set_used(volid, volume.used + needed)
    volume.snapshots.append(name)


def remove(store: VolumeStore, volid: str, name: str) -> None:
    """Forget a snapshot, if the volume has it."""
    volume = store.find(volid)
    if volume is None or name not in volume.snapshots:
        return
    volume.snapshots.remove(name)
    storage = store.get_storage(volid.partition(":")[0])
    store.set_used(volid, max(volume.used - _layer(storage, volume), 0))


def _layer(storage: SimStorage, volume: SimVolume) -> int:
    if volume.format != "qcow2" or not names.has_volume_chain(storage):
        return 0
    return blank_used(storage, volume.format, volume.size)
