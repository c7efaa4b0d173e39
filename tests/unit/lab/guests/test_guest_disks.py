"""The disks a simulated guest sees, and that it takes none for another."""

import pytest

from moxwell.lab.guests import disks
from moxwell.lab.guests.volumes import node_row

CONF = {
    "scsi0": "ceph:vm-100-disk-0,size=8G",
    "scsi2": "ceph:vm-9999-pvc-a,backup=0,serial=pvc1,size=10G,wwn=0x5A",
    "scsi1": "none,media=cdrom",
    "scsihw": "virtio-scsi-single",
    "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
}


def test_disks_are_those_on_the_scsi_bus() -> None:
    found = disks.list_disks(CONF)
    assert [d.slot for d in found] == ["scsi0", "scsi2"]
    assert (found[1].wwn, found[1].serial, found[1].size) == ("0x5a", "pvc1", 10 << 30)


@pytest.mark.parametrize(
    ("attached", "expected"),
    [
        pytest.param({"wwn": "0x5a", "serial": "pvc1"}, "scsi2", id="both fit"),
        pytest.param({"wwn": "0x5b", "serial": "pvc1"}, disks.NoDisk, id="not there yet"),
        pytest.param({"wwn": "0x5a", "serial": "pvc2"}, disks.WrongDisk, id="another's serial"),
        pytest.param({}, disks.NoDisk, id="nothing said"),
    ],
)
def test_a_volume_is_found_by_what_it_is(attached: dict[str, str], expected: object) -> None:
    seen = disks.list_disks(CONF)
    if isinstance(expected, str):
        assert disks.find_disk(seen, attached).slot == expected
    else:
        with pytest.raises(expected):  # type: ignore[call-overload]
            disks.find_disk(seen, attached)


def test_two_disks_of_one_name_are_refused() -> None:
    twin = {**CONF, "scsi3": CONF["scsi2"]}
    with pytest.raises(disks.WrongDisk):
        disks.find_disk(disks.list_disks(twin), {"wwn": "0x5a"})


def test_the_limit_leaves_room_for_what_else_sits_there() -> None:
    more = {**CONF, "scsi5": "ceph:vm-100-disk-1,size=1G"}
    assert disks.most_volumes(disks.list_disks(CONF)) == 30
    assert disks.most_volumes(disks.list_disks(more)) == 29


def test_a_node_registers_when_it_was_placed() -> None:
    place = {"topology.kubernetes.io/region": "r1", "topology.kubernetes.io/zone": "h1"}
    node = {"metadata": {"name": "n", "labels": place}, "spec": {"providerID": "proxmox://r1/101"}}
    row = node_row(node, 30)
    assert row is not None
    assert (row["nodeID"], row["allocatable"]) == ("proxmox://r1/101", {"count": 30})
    by_uuid = {**node, "spec": {"providerID": "proxmox://0000-1111"}}
    assert (node_row(by_uuid, 30) or {})["nodeID"] == "n"
    assert node_row({"metadata": {"name": "n"}, "spec": {}}, 30) is None
