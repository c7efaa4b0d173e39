"""
Backup archives: the configuration of a guest, with the content ids of its disks.

``config_text`` writes a configuration as PVE stores it: description as comment lines, then sorted
options; an archive of a VM also lists the disks that it contains.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from moxwell.lab.proxmox.config_schema.drives import Drive, find_drive, is_drive
from moxwell.lab.proxmox.state import Conf, SimVolume

_DECOMPRESS = {"zst": "zstd -q -d -c", "gz": "zcat", "lzo": "lzop -d -c"}


@dataclass(frozen=True, slots=True)
class GuestArchive:
    """What a backup contains."""

    kind: str  # qemu or lxc
    conf: Conf
    content_ids: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        saved = {"kind": self.kind, "conf": self.conf, "content_ids": dict(self.content_ids)}
        return json.dumps(saved).encode()


def read_archive(volume: SimVolume) -> GuestArchive:
    """The content of a backup volume."""
    saved = json.loads(volume.data or b"{}")
    content_ids = saved.get("content_ids") or saved.get("marks") or {}  # "marks": old archives
    return GuestArchive(saved.get("kind", ""), dict(saved.get("conf", {})), content_ids)


def saved_drives(conf: Conf) -> Iterator[Drive]:
    """The disks of a VM that a backup contains."""
    for slot in sorted(name for name in conf if is_drive(name)):
        drive = find_drive(slot, conf[slot])
        if drive is None or drive.storage is None or drive.is_cdrom_media:
            continue
        if drive.options.get("backup", "1") != "0":
            yield drive


def config_text(archive: GuestArchive) -> str:
    """The configuration file in an archive."""
    note = str(archive.conf.get("description", ""))
    lines = [f"#{line}" for line in note.split("\n")] if note else []
    options = sorted(name for name in archive.conf if name != "description")
    lines += [f"{name}: {archive.conf[name]}" for name in options]
    if archive.kind == "qemu":
        lines += [_map_line(drive) for drive in saved_drives(archive.conf)]
    return "".join(f"{line}\n" for line in lines)


def _map_line(drive: Drive) -> str:
    ending = drive.file.rpartition(".")[2]
    form = ending if ending in ("raw", "qcow2", "vmdk") else "raw"
    return f"#qmdump#map:{drive.slot}:drive-{drive.slot}:{drive.storage}:{form}:"


def extract_command(path: str, process: int) -> str:
    """The command that PVE runs to extract a VM from an archive."""
    folder, tool = f"/var/tmp/vzdumptmp{process}", _DECOMPRESS.get(path.rpartition(".")[2])
    if tool is None:
        return f"vma extract -v -r {folder}.fifo {path} {folder}"
    return f"set -o pipefail && {tool} {path} | vma extract -v -r {folder}.fifo - {folder}"
