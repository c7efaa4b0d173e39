"""
Saves the state of all regions to one JSON file, written atomically, and loads it.

The contents of uploaded files are kept in a folder beside it, each under its digest, because they
do not change and the state is saved often.

Workers are not saved: a task that was running has the exit status "unexpected status" after a load,
as after a crash of its host.
"""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from moxwell.atomic_file import write_private
from moxwell.lab.proxmox.state import FileData, SimRegion
from moxwell.lab.proxmox.yaml_tree import InvalidFile

DIGEST = "sha256:"  # begins the name of a file in the folder; base64 has no colon


def files_of(path: Path) -> Path:
    """The folder with the contents of the files that a saved state refers to."""
    return path.with_name(f"{path.name}.files")


def _inline(data: FileData) -> str:
    return base64.b64encode(data).decode()


def dump(regions: dict[str, SimRegion], name: Callable[[FileData], str] = _inline) -> bytes:
    """Encode the state; ``name`` says what stands for the content of a file."""
    return msgspec.json.encode(regions, enc_hook=name)


def load(data: bytes, source: str = "state", folder: Path | None = None) -> dict[str, SimRegion]:
    """Decode a state, with the contents of its files from ``folder``."""

    def content(_: type, text: str) -> FileData:
        if folder is None or not text.startswith(DIGEST):
            return FileData(base64.b64decode(text))
        found = FileData((folder / text.removeprefix(DIGEST)).read_bytes())
        if DIGEST + found.digest != text:
            raise ValueError(f"{folder / found.digest} has another content")
        return found

    try:
        regions = msgspec.json.decode(upgrade(data), type=dict[str, SimRegion], dec_hook=content)
    except (msgspec.DecodeError, ValueError, OSError) as problem:
        raise InvalidFile(f"{source}: not a saved state: {problem}") from problem
    for region in regions.values():
        for task in region.tasks.values():
            if task.running:
                task.exitstatus, task.endtime = "unexpected status", task.starttime
    return regions


OLD_FIELDS = {
    "region": {"reports": "statd_status", "reported_at": "status_updated_at"},
    "ha": {
        "shown": "crm_state",
        "since": "state_changed_at",
        "moving_to": "migration_target",
        "home": "maintenance_node",
    },
    "volume": {"mark": "content_id"},
}


def upgrade(data: bytes) -> bytes:
    """Rename the fields of a state that an older version saved; other data is returned as it is."""
    if b'"reports":' not in data:
        return data
    regions = msgspec.json.decode(data)
    for region in regions.values():
        _rename(region, "region")
        for resource in region.get("ha", {}).get("resources", {}).values():
            _rename(resource, "ha")
        for storage in region.get("storages", {}).values():
            for volumes in storage.get("volumes", {}).values():
                for volume in volumes.values():
                    _rename(volume, "volume")
        for guest in region.get("guests", {}).values():
            _upgrade_guest(guest)
    return msgspec.json.encode(regions)


def _upgrade_guest(guest: dict[str, Any]) -> None:
    special = guest.get("special", {})
    guest["special"] = {k.replace("ghost:", "unattached:"): v for k, v in special.items()}
    for snapshot in guest.get("snapshots", {}).values():
        for row in snapshot.get("disks", {}).values():
            _rename(row, "volume")


def _rename(row: dict[str, Any], kind: str) -> None:
    for old, new in OLD_FIELDS[kind].items():
        if old in row:
            row[new] = row.pop(old)


def save_file(regions: dict[str, SimRegion], path: Path) -> None:
    """Replace the file in one step; does not wait for the disk, because it is saved often."""
    folder, used = files_of(path), dict[str, FileData]()

    def name(data: FileData) -> str:
        used[data.digest] = data
        return DIGEST + data.digest

    encoded = dump(regions, name)
    stored = {file.name for file in folder.iterdir()} if folder.exists() else set()
    for digest in used.keys() - stored:
        write_private(folder / digest, used[digest], durable=False)
    write_private(path, encoded, durable=False)
    for digest in stored - used.keys():
        (folder / digest).unlink()


def load_file(path: Path) -> dict[str, SimRegion]:
    """Load a state; one that is replaced meanwhile, and whose files may be gone, is read again."""
    data = path.read_bytes()
    try:
        return load(data, str(path), files_of(path))
    except InvalidFile:
        newer = path.read_bytes()
        if newer == data:
            raise
        return load(newer, str(path), files_of(path))


CREATION_LOCKS = frozenset({"clone", "create"})
TASK_LOCKS = frozenset({"backup", "disk", "migrate", "rollback", "snapshot", "snapshot-delete"})


def clean_interrupted(regions: dict[str, SimRegion]) -> None:
    """
    Clean up after interrupted workers, when the simulator was killed but not its hosts.

    As a worker that fails does: deletes the guest that it was creating, and removes its lock.
    """
    for region in regions.values():
        for guest in list(region.guests.values()):
            if guest.lock in CREATION_LOCKS:
                del region.guests[guest.vmid]
                _free(region, guest.vmid)
            elif guest.lock in TASK_LOCKS:
                del guest.conf["lock"]


def _free(region: SimRegion, vmid: int) -> None:
    for storage in region.storages.values():
        for volumes in storage.volumes.values():
            for name in [n for n, volume in volumes.items() if volume.vmid == vmid]:
                del volumes[name]
