"""
Saving and resuming: the whole state in one JSON file, replaced at once.

Workers do not survive: a task that was running when the state was saved reads "unexpected status"
afterwards, as after a crash of its host.
"""

from pathlib import Path

import msgspec

from moxwell.lab.proxmox.state import Region
from moxwell.lab.proxmox.yaml_tree import BadFile


def dump(regions: dict[str, Region]) -> bytes:
    return msgspec.json.encode(regions)


def load(data: bytes, source: str = "state") -> dict[str, Region]:
    try:
        regions = msgspec.json.decode(data, type=dict[str, Region])
    except msgspec.DecodeError as problem:
        raise BadFile(f"{source}: not a saved state: {problem}") from problem
    for region in regions.values():
        for task in region.tasks.values():
            if task.running:
                task.exitstatus, task.endtime = "unexpected status", task.starttime
    return regions


def save_file(regions: dict[str, Region], path: Path) -> None:
    """Write beside and rename, so that a crash leaves the old state."""
    beside = path.with_suffix(path.suffix + ".new")
    beside.write_bytes(dump(regions))
    beside.replace(path)


def load_file(path: Path) -> dict[str, Region]:
    return load(path.read_bytes(), str(path))


HALF_MADE = frozenset({"clone", "create"})
PASSING = frozenset({"backup", "disk", "migrate", "rollback", "snapshot", "snapshot-delete"})


def mend(regions: dict[str, Region]) -> None:
    """As if each worker had failed tidily: for hosts that went on while only we were killed.

    A genuine worker that fails removes the guest it was making and gives up its lock.
    """
    for region in regions.values():
        for guest in list(region.guests.values()):
            if guest.lock in HALF_MADE:
                del region.guests[guest.vmid]
                _free(region, guest.vmid)
            elif guest.lock in PASSING:
                del guest.conf["lock"]


def _free(region: Region, vmid: int) -> None:
    for storage in region.storages.values():
        for shelf in storage.volumes.values():
            for name in [n for n, volume in shelf.items() if volume.vmid == vmid]:
                del shelf[name]
