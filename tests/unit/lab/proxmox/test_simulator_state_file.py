"""Loading a saved state: interrupted tasks are cleaned up, and old field names are read."""

import msgspec

from moxwell.lab.proxmox import state_file
from moxwell.lab.proxmox.state import (
    SimGuest,
    SimHaResource,
    SimRegion,
    SimSnapshot,
    SimStorage,
    SimVolume,
    StatdStatus,
)


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
