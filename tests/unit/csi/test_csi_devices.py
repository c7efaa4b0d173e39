"""Block devices are identified by WWN and serial from sysfs."""

from pathlib import Path

import pytest

from moxwell.csi.devices import BlockDevice, SysfsDevices, choose_device
from moxwell.csi.errors import DeviceMismatch
from moxwell.csi.ids import VolumeId

ID = VolumeId("r", "", "s", "vm-9999-pvc-1").identity
OTHER = VolumeId("r", "", "s", "vm-9999-pvc-2").identity
LEGACY = "0x5056432d49443031"
MINE = BlockDevice("/dev/sdb", ID.wwn, ID.serial)


@pytest.mark.parametrize(
    ("devices", "expected", "found"),
    [
        pytest.param((MINE,), "", MINE, id="both fit"),
        pytest.param(
            (BlockDevice("/dev/sdb", OTHER.wwn, OTHER.serial),), "", None, id="another volume"
        ),
        pytest.param(
            (BlockDevice("/dev/sdc", LEGACY),),
            LEGACY,
            BlockDevice("/dev/sdc", LEGACY),
            id="the Go driver's",
        ),
        pytest.param(
            (BlockDevice("/dev/sdc", LEGACY),), "", None, id="the Go driver's, unasked for"
        ),
        pytest.param(
            (BlockDevice("/dev/sdc", OTHER.wwn),),
            OTHER.wwn,
            None,
            id="a context cannot name another",
        ),
    ],
)
def test_chooses_the_device_of_the_volume(
    devices: tuple[BlockDevice, ...], expected: str, found: BlockDevice | None
) -> None:
    assert choose_device(devices, ID, expected) == found


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param((MINE, BlockDevice("/dev/sdc", ID.wwn, ID.serial)), id="two say they are it"),
        pytest.param(
            (BlockDevice("/dev/sdb", ID.wwn, OTHER.serial),), id="the serial is another's"
        ),
    ],
)
def test_an_ambiguous_device_is_refused(devices: tuple[BlockDevice, ...]) -> None:
    with pytest.raises(DeviceMismatch):
        choose_device(devices, ID)


def test_reads_devices_from_sysfs(tmp_path: Path) -> None:
    for slot, vendor in (("2:0:0:1", "QEMU    "), ("3:0:0:0", "ATA     ")):
        entry = tmp_path / "bus/scsi/devices" / slot
        (entry / "block/sdb").mkdir(parents=True)
        (entry / "vendor").write_text(vendor)
        (entry / "wwid").write_text(f"naa.{ID.wwn[2:]}\n")
        (entry / "vpd_pg80").write_bytes(b"\0\x80\0\x14" + ID.serial.encode())
        (entry / "block/sdb/size").write_text("2048\n")
    assert SysfsDevices(tmp_path).read() == (BlockDevice("/dev/sdb", ID.wwn, ID.serial, 1 << 20),)
