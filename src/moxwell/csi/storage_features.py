"""
What a storage can do by itself for snapshots and clones.

In: the type of a storage and the name of a disk. Out: whether it takes snapshots that new disks can
be made of, also while a guest writes, and whether a clone of one stands on its own. The table is
that of Proxmox's storage plugins (``volume_has_feature``). The surprise: ZFS snapshots at once, but
Proxmox can make no new disk of a ZFS snapshot, so for us ZFS is a storage without its own means.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Means:
    """How snapshots and clones of a disk are made."""

    own: bool = False  # the storage's own snapshots; else full copies
    live: bool = False  # of one moment even while a guest writes
    free: bool = False  # a linked clone does not need its snapshot any more
    linked: bool = False  # new disks can be linked to a snapshot


_COPIES = Means()
_THIN = Means(own=True, live=True, free=True, linked=True)
_CEPH = Means(own=True, live=True, linked=True)
_QCOW2 = Means(own=True)
_BY_TYPE = {"lvmthin": _THIN, "rbd": _CEPH}


def means_of(type_: str, disk: str) -> Means:
    """The means for a disk on a storage of some type; nothing is assumed of unknown types."""
    if disk.endswith(".qcow2"):
        return _QCOW2
    if type_ == "btrfs" and disk.endswith(".raw"):
        return _THIN
    return _BY_TYPE.get(type_, _COPIES)
