"""The table of storage features against the simulated storage plugins."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.csi.ids import SnapshotId, VolumeId, find_snapshot, find_volume, proxmox_snapshot_name
from moxwell.csi.storage_features import StorageFeatures, features_of
from moxwell.lab.proxmox.state import SimStorage
from moxwell.lab.proxmox.volumes import names

DISKS = [
    ("lvmthin", "vm-9999-pvc-1"),
    ("lvm", "vm-9999-pvc-1"),
    ("zfspool", "vm-9999-pvc-1"),
    ("rbd", "vm-9999-pvc-1"),
    ("drbd", "vm-9999-pvc-1"),
    ("dir", "9999/vm-9999-pvc-1.raw"),
    ("dir", "9999/vm-9999-pvc-1.qcow2"),
    ("nfs", "9999/vm-9999-pvc-1.qcow2"),
    ("cifs", "9999/vm-9999-pvc-1.raw"),
    ("btrfs", "9999/vm-9999-pvc-1.raw"),
]


@pytest.mark.parametrize(("kind", "disk"), DISKS)
def test_the_feature_table_matches_the_storage_plugins(kind: str, disk: str) -> None:
    storage, features = SimStorage("s", kind), features_of(kind, disk)

    def offers(feature: str, snapshot: str | None = None) -> bool:
        return names.has_feature(storage, feature, disk, snapshot)

    assert offers("copy")  # every storage supports full copies
    assert features.native == (offers("snapshot") and offers("copy", "snap"))
    assert features.linked_clones == (offers("snapshot") and offers("clone", "snap"))
    assert features.native or not (
        features.consistent or features.independent_clones or features.linked_clones
    )


def test_an_unknown_storage_type_has_no_features() -> None:
    assert features_of("vendor-plugin", "vm-9999-pvc-1") == StorageFeatures()


NAMES = st.text(min_size=1, max_size=128)


@given(NAMES, NAMES)
def test_snapshot_names_are_valid_and_distinct(one: str, two: str) -> None:
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{1,39}", proxmox_snapshot_name(one))
    assert not proxmox_snapshot_name(one).startswith("clone-")
    assert (proxmox_snapshot_name(one) == proxmox_snapshot_name(two)) == (one == two)


@pytest.mark.parametrize("name", ["current", "pending", "clone-me", "s-x", "x", "-x", "a.b", "ä"])
def test_a_reserved_snapshot_name_is_changed(name: str) -> None:
    assert proxmox_snapshot_name(name) != name


def test_snapshot_ids_round_trip() -> None:
    volume = VolumeId("r1", "", "ceph", "vm-9999-pvc-1")
    snapshot = SnapshotId(volume, "snapshot-1")
    assert find_snapshot(str(snapshot)) == snapshot
    assert find_snapshot(str(volume)) is None
    assert find_volume(str(snapshot)) != volume
