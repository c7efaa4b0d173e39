"""Loading a saved state: interrupted tasks are cleaned up, and old field names are read."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from moxwell.lab.proxmox import state_file
from moxwell.lab.proxmox.state import (
    FileData,
    SimGuest,
    SimHaResource,
    SimRegion,
    SimSnapshot,
    SimStorage,
    SimVolume,
    StatdStatus,
)
from moxwell.lab.proxmox.yaml_tree import InvalidFile


def region() -> SimRegion:
    made = SimRegion(name="one")
    locks = {1: "clone", 2: "create", 3: "migrate", 4: "suspended", 5: ""}
    for vmid, lock in locks.items():
        conf: dict[str, str | int | float] = {"name": f"g{vmid}"}
        if lock:
            conf["lock"] = lock
        made.guests[vmid] = SimGuest(vmid, "qemu", "a", conf)
    disks = {f"vm-{n}-disk-0": n for n in locks}
    volumes = {name: SimVolume(name, "raw", "images", 1, vmid=vmid) for name, vmid in disks.items()}
    made.storages["s"] = SimStorage("s", "nfs", volumes={"": volumes})
    return made


def test_guests_of_interrupted_create_tasks_are_deleted() -> None:
    regions = state_file.load(state_file.dump({"one": region()}))
    state_file.clean_interrupted(regions)
    found = regions["one"]
    assert {vmid: g.lock for vmid, g in found.guests.items()} == {3: "", 4: "suspended", 5: ""}
    assert sorted(found.storages["s"].volumes[""]) == [f"vm-{n}-disk-0" for n in (3, 4, 5)]


def test_locks_remain_without_cleanup() -> None:
    found = state_file.load(state_file.dump({"one": region()}))["one"]
    assert found.guests[1].lock == "clone"


def test_a_state_with_old_field_names_is_read() -> None:
    new = region()
    new.statd_status[3], new.status_updated_at = StatdStatus("qemu", "a", "running"), 5.0
    new.ha.resources["vm:3"] = SimHaResource(
        "vm:3", "vm", crm_state="started", state_changed_at=7.0, maintenance_node="b"
    )
    new.storages["s"].volumes[""]["vm-3-disk-0"].content_id = "abc"
    new.guests[3].special = {"unattached:scsi1": 1, "ciuser": "joe"}
    disks = {"s:vm-3-disk-0": {"size": 1, "content_id": "abc"}}
    new.guests[3].snapshots["one"] = SimSnapshot("one", {}, disks=disks)
    old = state_file.dump({"one": new}).decode()
    names = {name: was for kind in state_file.OLD_FIELDS.values() for was, name in kind.items()}
    for name, was in names.items():
        old = old.replace(f'"{name}":', f'"{was}":')
    old = old.replace("unattached:", "ghost:")
    assert "crm_state" not in old
    assert state_file.load(old.encode()) == {"one": new}


def test_a_state_with_current_field_names_is_not_converted() -> None:
    data = state_file.dump({"one": region()})
    assert state_file.upgrade(data) is data
    assert msgspec.json.decode(data)["one"]["name"] == "one"


def test_the_content_of_a_file_is_written_once_and_removed_with_its_volumes(tmp_path: Path) -> None:
    path, made = tmp_path / "state.json", region()
    shelf = made.storages["s"].volumes[""]
    for name in ("a.iso", "b.iso"):
        shelf[name] = SimVolume(name, "iso", "iso", 3, data=FileData(b"abc"))
    state_file.save_file({"one": made}, path)
    (written,) = state_file.files_of(path).iterdir()
    before = written.stat().st_mtime_ns
    del shelf["a.iso"]
    state_file.save_file({"one": made}, path)
    assert b"YWJj" not in path.read_bytes()
    assert written.stat().st_mtime_ns == before
    assert state_file.load_file(path) == {"one": made}
    del shelf["b.iso"]
    state_file.save_file({"one": made}, path)
    assert list(state_file.files_of(path).iterdir()) == []


def test_a_state_with_the_contents_inside_is_read(tmp_path: Path) -> None:
    path, made = tmp_path / "state.json", region()
    made.storages["s"].volumes[""]["a.iso"] = SimVolume("a", "iso", "iso", 3, data=FileData(b"abc"))
    path.write_bytes(state_file.dump({"one": made}))
    assert state_file.load_file(path) == {"one": made}


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"x")])
def test_a_file_that_is_not_the_saved_one_is_named(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    path, made = tmp_path / "state.json", region()
    made.storages["s"].volumes[""]["a.iso"] = SimVolume("a", "iso", "iso", 3, data=FileData(b"abc"))
    state_file.save_file({"one": made}, path)
    (written,) = state_file.files_of(path).iterdir()
    damage(written)
    with pytest.raises(InvalidFile, match=r"state\.json: not a saved state"):
        state_file.load_file(path)
