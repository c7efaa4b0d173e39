"""A saved estate taken up again: half-made guests go, passing locks go, all else stays."""

from moxwell.lab.proxmox import state_file
from moxwell.lab.proxmox.state import Guest, Region, Storage, Volume


def region() -> Region:
    made = Region(name="one")
    locks = {1: "clone", 2: "create", 3: "migrate", 4: "suspended", 5: ""}
    for vmid, lock in locks.items():
        conf: dict[str, str | int | float] = {"name": f"g{vmid}"}
        if lock:
            conf["lock"] = lock
        made.guests[vmid] = Guest(vmid, "qemu", "a", conf)
    disks = {f"vm-{n}-disk-0": n for n in locks}
    shelf = {name: Volume(name, "raw", "images", 1, vmid=vmid) for name, vmid in disks.items()}
    made.storages["s"] = Storage("s", "nfs", volumes={"": shelf})
    return made


def test_what_a_killed_worker_was_making_goes_and_nothing_else() -> None:
    regions = state_file.load(state_file.dump({"one": region()}))
    state_file.mend(regions)
    found = regions["one"]
    assert {vmid: g.lock for vmid, g in found.guests.items()} == {3: "", 4: "suspended", 5: ""}
    assert sorted(found.storages["s"].volumes[""]) == [f"vm-{n}-disk-0" for n in (3, 4, 5)]


def test_without_mending_the_locks_stay_as_after_a_crash_of_hosts() -> None:
    found = state_file.load(state_file.dump({"one": region()}))["one"]
    assert found.guests[1].lock == "clone"
