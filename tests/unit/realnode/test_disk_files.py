"""The data of volumes: kept while a volume moves, copied for snapshots and clones."""

from dataclasses import replace
from pathlib import Path

from moxwell.lab.proxmox.state import SimVolume
from realnode.disks import DiskFiles

MIB = 1 << 20


def volume(name: str, **more: object) -> SimVolume:
    fields = {"format": "raw", "content": "images", "size": MIB, "ctime": 7, **more}
    return SimVolume(name=name, **fields)  # type: ignore[arg-type]


def write(file: Path, text: bytes) -> None:
    with file.open("r+b") as data:
        data.write(text)


def test_a_snapshot_keeps_what_was_written_before_it(tmp_path: Path) -> None:
    files, disk = DiskFiles(tmp_path), volume("vm-1-disk-0", content_id="new")
    write(files.open("ceph", "", disk), b"before")
    content = files.content_id("ceph", "", disk)
    write(files.open("ceph", "", disk), b"after!")
    clone = volume("vm-2-disk-0", content_id=content)
    assert files.open("ceph", "", clone).read_bytes()[:6] == b"before"
    assert files.open("ceph", "", disk).read_bytes()[:6] == b"after!"


def test_a_disk_that_nobody_wrote_to_keeps_its_content(tmp_path: Path) -> None:
    disk = volume("vm-1-disk-0", content_id="template")
    assert DiskFiles(tmp_path).content_id("ceph", "", disk) == "template"


def test_a_disk_grows_and_keeps_its_data(tmp_path: Path) -> None:
    files, disk = DiskFiles(tmp_path), volume("vm-1-disk-0")
    write(files.open("ceph", "", disk), b"data")
    grown = files.open("ceph", "", replace(disk, size=2 * MIB)).read_bytes()
    assert (grown[:4], len(grown)) == (b"data", 2 * MIB)


def test_a_new_disk_with_an_old_name_is_empty(tmp_path: Path) -> None:
    files, disk = DiskFiles(tmp_path), volume("vm-1-disk-0")
    write(files.open("lvm", "pve1", disk), b"data")
    assert not any(files.open("lvm", "pve1", replace(disk, ctime=8)).read_bytes())
    assert not any(files.open("lvm", "pve2", disk).read_bytes())
