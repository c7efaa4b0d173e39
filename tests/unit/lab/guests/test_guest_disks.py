"""The SCSI disks of a simulated guest, and the CSINode entry of its node."""

import pytest

from moxwell.lab.guests import disks
from moxwell.lab.guests.volumes import csi_node_driver

CONF = {
    "scsi0": "ceph:vm-100-disk-0,size=8G",
    "scsi2": "ceph:vm-9999-pvc-a,backup=0,serial=pvc1,size=10G,wwn=0x5A",
    "scsi1": "none,media=cdrom",
    "scsihw": "virtio-scsi-single",
    "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
}


def test_only_scsi_disks_are_listed() -> None:
    found = disks.list_disks(CONF)
    assert [d.slot for d in found] == ["scsi0", "scsi2"]
    assert (found[1].wwn, found[1].serial, found[1].size) == ("0x5a", "pvc1", 10 << 30)


@pytest.mark.parametrize(
    ("attached", "expected"),
    [
        pytest.param({"wwn": "0x5a", "serial": "pvc1"}, "scsi2", id="both fit"),
        pytest.param({"wwn": "0x5b", "serial": "pvc1"}, disks.DiskNotFound, id="not there yet"),
        pytest.param({"wwn": "0x5a", "serial": "pvc2"}, disks.DiskMismatch, id="another's serial"),
        pytest.param({}, disks.DiskNotFound, id="no identifiers"),
    ],
)
def test_a_disk_is_found_by_wwn_and_serial(attached: dict[str, str], expected: object) -> None:
    seen = disks.list_disks(CONF)
    if isinstance(expected, str):
        assert disks.find_disk(seen, attached).slot == expected
    else:
        with pytest.raises(expected):  # type: ignore[call-overload]
            disks.find_disk(seen, attached)


def test_duplicate_wwns_are_rejected() -> None:
    twin = {**CONF, "scsi3": CONF["scsi2"]}
    with pytest.raises(disks.DiskMismatch):
        disks.find_disk(disks.list_disks(twin), {"wwn": "0x5a"})


def test_other_disks_reduce_the_volume_limit() -> None:
    more = {**CONF, "scsi5": "ceph:vm-100-disk-1,size=1G"}
    assert disks.max_volumes(disks.list_disks(CONF)) == 30
    assert disks.max_volumes(disks.list_disks(more)) == 29


def test_csi_node_driver_requires_topology_labels() -> None:
    labels = {"topology.kubernetes.io/region": "r1", "topology.kubernetes.io/zone": "h1"}
    node = {"metadata": {"name": "n", "labels": labels}, "spec": {"providerID": "proxmox://r1/101"}}
    row = csi_node_driver(node, 30)
    assert row is not None
    assert (row["nodeID"], row["allocatable"]) == ("proxmox://r1/101", {"count": 30})
    by_uuid = {**node, "spec": {"providerID": "proxmox://0000-1111"}}
    assert (csi_node_driver(by_uuid, 30) or {})["nodeID"] == "n"
    assert csi_node_driver({"metadata": {"name": "n"}, "spec": {}}, 30) is None
