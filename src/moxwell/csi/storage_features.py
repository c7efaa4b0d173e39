"""
Which snapshot and clone features each Proxmox storage type has. Pure.

The table follows ``volume_has_feature`` of Proxmox's storage plugins. ZFS counts as a storage
without native snapshots, because Proxmox cannot create a new disk from a ZFS snapshot.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StorageFeatures:
    """The features that decide how snapshots and clones of a disk are made."""

    native: bool = False  # snapshots of the storage itself; otherwise full copies
    consistent: bool = False  # a snapshot is crash-consistent while a guest writes to the disk
    independent_clones: bool = False  # a linked clone does not depend on its snapshot
    linked_clones: bool = False  # a new disk can be a linked clone of a snapshot


_NONE = StorageFeatures()
_THIN = StorageFeatures(native=True, consistent=True, independent_clones=True, linked_clones=True)
_CEPH = StorageFeatures(native=True, consistent=True, linked_clones=True)
_QCOW2 = StorageFeatures(native=True)
_BY_STORAGE_TYPE = {"lvmthin": _THIN, "rbd": _CEPH}


def features_of(type_: str, disk: str) -> StorageFeatures:
    """The features for a disk on a storage of this type; unknown types have none."""
    if disk.endswith(".qcow2"):
        return _QCOW2
    if type_ == "btrfs" and disk.endswith(".raw"):
        return _THIN
    return _BY_STORAGE_TYPE.get(type_, _NONE)
