"""VMs: power, clone, snapshot, disk move, migrate, destroy."""

import pytest

from support.simulator_session import SimulatorSession, run_session

VM = "/nodes/n1/qemu/100"


async def start(sim: SimulatorSession, node: str = "n1") -> str:
    return (await sim.run_task("POST", f"/nodes/{node}/qemu/100/status/start")).status


START_REFUSED: list[tuple[str, dict[str, str], str]] = [
    ("more cores than the host", {"cores": "9"}, "MAX 4 vcpus allowed per VM on this node"),
    ("NUMA memory that does not add up", {"numa": "1", "numa0": "cpus=0,memory=64"},
     "total memory for NUMA nodes must be equal to vm static memory"),
    ("NUMA without memory", {"numa": "1", "numa0": "cpus=0"}, "missing NUMA node0 memory value"),
    ("a host node without policy", {"numa": "1", "numa0": "cpus=0,memory=512,hostnodes=0"},
     "you need to define a policy for hostnode 0"),
    ("a host node that is not there",
     {"numa": "1", "numa0": "cpus=0,memory=512,hostnodes=7,policy=bind"},
     "host NUMA node7 doesn't exist"),
    ("a CPU in no VM", {"numa": "1", "numa0": "cpus=5,memory=512"},
     "start failed: QEMU exited with code 1"),
    ("a range backwards", {"numa": "1", "numa0": "cpus=1-0,memory=512"},
     "invalid range: 1-0 (0 < 1)"),
    ("hugepages that do not divide", {"numa": "1", "hugepages": "1024"},
     "Memory size 512 is not a multiple of the requested hugepages size 1024"),
    ("memory hotplug without NUMA", {"hotplug": "memory"},
     "NUMA needs to be enabled for memory hotplug"),
    ("too little memory for hotplug", {"hotplug": "memory", "numa": "1"},
     "minimum memory must be 1024MB"),
    ("a CPU set the host lacks", {"affinity": "64"}, "start failed: QEMU exited with code 1"),
    ("a bridge that is not there", {"net0": "virtio,bridge=vmbr9"},
     "start failed: QEMU exited with code 1"),
]  # fmt: skip


@pytest.mark.parametrize("case", START_REFUSED, ids=[case[0] for case in START_REFUSED])
def test_rejected_starts(case: tuple[str, dict[str, str], str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(memory="512")
        assert (await sim.put(f"{VM}/config", **case[1])).status == 200
        assert await start(sim) == case[2]

    run_session(body)


def test_version_9_names_the_missing_bridge() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(net0="virtio,bridge=vmbr9")
        assert await start(sim) == "bridge 'vmbr9' does not exist"

    run_session(body, "9.2.11")


def test_two_vms_cannot_open_one_image() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1")
        await sim.vm(101, scsi1="shared:100/vm-100-disk-0.raw")
        assert await start(sim) == "OK"
        ended = await sim.run_task("POST", "/nodes/n1/qemu/101/status/start")
        assert ended.status == "start failed: QEMU exited with code 1"

    run_session(body)


def test_hotplug_of_an_open_image_is_ignored() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1")
        await sim.vm(101)
        await start(sim)
        await sim.run_task("POST", "/nodes/n1/qemu/101/status/start")
        path = "/nodes/n1/qemu/101/config"
        assert (await sim.put(path, scsi1="shared:100/vm-100-disk-0.raw")).status == 200
        answer = await sim.put(path, delete="scsi1")
        assert "error on hot-unplugging device 'scsi1'" in answer.errors["scsi1"]

    run_session(body)


def test_a_guest_that_ignores_acpi_is_shut_down_only_by_force() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        await start(sim)
        ended = await sim.run_task("POST", f"{VM}/status/shutdown", timeout="7")
        assert ended.status == "VM quit/powerdown failed - got timeout"
        assert ended.seconds == pytest.approx(7)
        ended = await sim.run_task("POST", f"{VM}/status/shutdown", timeout="7", forceStop="1")
        assert ended.status == "OK"
        assert (await sim.get(f"{VM}/status/current"))["status"] == "stopped"

    run_session(body)


def test_pause_and_resume() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        assert (await sim.post(f"{VM}/status/suspend")).message == "VM 100 not running"
        await start(sim)
        await sim.run_task("POST", f"{VM}/status/suspend")
        assert (await sim.get(f"{VM}/status/current"))["qmpstatus"] == "paused"
        assert (await sim.post(f"{VM}/status/shutdown")).message == "VM is paused - cannot shutdown"
        await sim.run_task("POST", f"{VM}/status/resume")
        assert (await sim.get(f"{VM}/status/current"))["qmpstatus"] == "running"

    run_session(body)


def test_suspend_to_disk() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1")
        await start(sim)
        assert (await sim.run_task("POST", f"{VM}/status/suspend", todisk="1")).status == "OK"
        conf = await sim.config()
        assert conf["lock"] == "suspended"
        assert conf["vmstate"].startswith("shared:100/vm-100-state-suspend-")
        assert (await sim.run_task("POST", f"{VM}/status/resume")).status == "OK"
        assert {"lock", "vmstate"} & set(await sim.config()) == set()
        assert len(await sim.get("/nodes/n1/storage/shared/content", content="images")) == 1

    run_session(body)


def test_version_8_waits_for_the_lock_of_a_clone() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:0.5")
        upid = (await sim.post(f"{VM}/clone", newid="101")).data
        await sim.clock.sleep(0.1)
        conf = await sim.config(101)
        assert (conf["lock"], conf["description"]) == ("clone", " qmclone temporary file")
        again = await sim.post(f"{VM}/clone", newid="101")
        assert again.message == "unable to create VM 101: config file already exists"
        before = sim.clock.monotonic()
        assert (await sim.put("/nodes/n1/qemu/101/config", cores="2")).status == 200
        assert sim.clock.monotonic() - before > 4
        assert (await sim.engine.runtimes["r1"].workers.wait(upid)).exitstatus == "OK"

    run_session(body)


def test_version_9_rejects_requests_during_a_clone() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1")
        await sim.post(f"{VM}/clone", newid="101")
        await sim.clock.sleep(0.1)
        answer = await sim.put("/nodes/n1/qemu/101/config", cores="2")
        assert answer.message == "VM is locked (clone)"

    run_session(body, "9.2.11")


def test_a_config_update_times_out_on_the_lock() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:4")
        await sim.post(f"{VM}/clone", newid="101")
        await sim.clock.sleep(0.1)
        answer = await sim.put("/nodes/n1/qemu/101/config", cores="2")
        file = "/var/lock/qemu-server/lock-101.conf"
        assert answer.message == f"can't lock file '{file}' - got timeout"

    run_session(body)


def test_a_clone_has_its_own_identity() -> None:
    async def body(sim: SimulatorSession) -> None:
        old = await sim.vm(
            name="a",
            net0="virtio,bridge=vmbr0",
            smbios1="uuid=" + "1" * 8 + "-1111" * 3 + "-" + "1" * 12 + ",serial=YQ==,base64=1",
            protection="1",
        )
        await sim.run_task("POST", f"{VM}/clone", newid="101", description="mine")
        new = await sim.config(101)
        assert new["name"] == "Copy-of-VM-a"
        assert (new["description"], new["protection"]) == ("mine", 1)
        assert new["net0"] != old["net0"]
        assert new["smbios1"].startswith("base64=1,serial=YQ==,uuid=")
        assert new["meta"] == old["meta"]

    run_session(body)


def test_a_clone_cannot_use_a_vmid_of_another_node() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        await sim.run_task("POST", "/nodes/n2/qemu", vmid="101")
        ended = await sim.run_task("POST", f"{VM}/clone", newid="101")
        assert ended.status.endswith("failed: File exists")
        assert sim.region.guests[101].node == "n2"

    run_session(body)


def test_an_interrupted_clone_leaves_no_guest() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1")
        upid = (await sim.post(f"{VM}/clone", newid="101")).data
        await sim.clock.sleep(1)
        sim.engine.runtimes["r1"].workers.stop(upid)
        await sim.clock.sleep(1)
        assert 101 not in sim.region.guests
        assert len(await sim.get("/nodes/n1/storage/shared/content", content="images")) == 1

    run_session(body)


def test_snapshots_and_rollback() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="tank:1", cores="1")
        await sim.run_task("POST", f"{VM}/snapshot", snapname="one")
        await sim.put(f"{VM}/config", cores="3")
        await sim.run_task("PUT", f"{VM}/resize", disk="scsi0", size="2G")
        await sim.run_task("POST", f"{VM}/snapshot", snapname="two")
        refused = await sim.run_task("POST", f"{VM}/snapshot/one/rollback")
        assert "is not most recent snapshot" in refused.status
        await sim.run_task("DELETE", f"{VM}/snapshot/two")
        assert (await sim.run_task("POST", f"{VM}/snapshot/one/rollback")).status == "OK"
        conf = await sim.config()
        assert (conf["cores"], conf["parent"], conf["scsi0"]) == (
            1,
            "one",
            "tank:vm-100-disk-0,size=1G",
        )

    run_session(body)


def test_moving_a_disk_keeps_the_old_one_by_default() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1,format=qcow2")
        await sim.run_task("POST", f"{VM}/move_disk", disk="scsi0", storage="thin")
        conf = await sim.config()
        assert conf["scsi0"] == "thin:vm-100-disk-0,size=1G"
        assert conf["unused0"] == "shared:100/vm-100-disk-0.qcow2"
        await sim.run_task("POST", f"{VM}/move_disk", disk="scsi0", storage="tank", delete="1")
        assert await sim.get("/nodes/n1/storage/thin/content") == []

    run_session(body)


def test_a_disk_can_change_its_guest() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi1="shared:1")
        await sim.vm(101)
        form = {"disk": "scsi1", "target-vmid": "101", "target-disk": "scsi3"}
        assert (await sim.run_task("POST", f"{VM}/move_disk", **form)).status == "OK"
        assert "scsi1" not in await sim.config()
        assert (await sim.config(101))["scsi3"] == "shared:101/vm-101-disk-0.raw,size=1G"

    run_session(body)


def test_offline_migration_copies_local_disks() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="thin:1", ide2="thin:cloudinit")
        ended = await sim.run_task("POST", f"{VM}/migrate", target="n2")
        assert ended.status == "OK"
        assert (await sim.config(node="n2"))["scsi0"] == "thin:vm-100-disk-0,size=1G"
        assert await sim.get("/nodes/n1/storage/thin/content") == []
        assert len(await sim.get("/nodes/n2/storage/thin/content")) == 2

    run_session(body)


MIGRATION_REFUSED: list[tuple[str, dict[str, str], dict[str, str], str]] = [
    ("a local disk online", {"scsi0": "thin:1"}, {"online": "1"},
     "can't live migrate attached local disks without with-local-disks option"),
    ("a local ISO", {"ide2": "local:iso/a.iso,media=cdrom"}, {"online": "1"}, "local cdrom image"),
]  # fmt: skip


@pytest.mark.parametrize("case", MIGRATION_REFUSED, ids=[case[0] for case in MIGRATION_REFUSED])
def test_a_migration_fails_for(case: tuple[str, dict[str, str], dict[str, str], str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        form = {"url": "http://x/a.iso", "filename": "a.iso", "content": "iso"}
        await sim.run_task("POST", "/nodes/n1/storage/local/download-url", **form)
        await sim.vm(**case[1])
        await start(sim)
        ended = await sim.run_task("POST", f"{VM}/migrate", target="n2", **case[2])
        assert ended.status == "migration aborted"
        assert any(case[3] in line for line in ended.log)
        assert (await sim.get(f"{VM}/status/current"))["status"] == "running"
        assert "lock" not in await sim.config()

    run_session(body)


def test_online_migration() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1")
        await start(sim)
        assert (await sim.post(f"{VM}/migrate", target="n2")).message == (
            "can't migrate running VM without --online"
        )
        assert (await sim.run_task("POST", f"{VM}/migrate", target="n2", online="1")).status == "OK"
        assert (await sim.get("/nodes/n2/qemu/100/status/current"))["status"] == "running"

    run_session(body)


DESTROY_REFUSED: list[tuple[str, dict[str, str], str]] = [
    ("protection", {"protection": "1"}, "can't remove VM 100 - protection mode enabled"),
    ("a lock, inside the task", {"lock": "backup"}, "VM is locked (backup)"),
]


@pytest.mark.parametrize("case", DESTROY_REFUSED, ids=[case[0] for case in DESTROY_REFUSED])
def test_destroy_is_rejected(case: tuple[str, dict[str, str], str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        await sim.put(f"{VM}/config", **case[1])
        answer = await sim.request("DELETE", VM)
        if answer.status == 200:
            task = await sim.engine.runtimes["r1"].workers.wait(answer.data)
            assert task.exitstatus == case[2]
        else:
            assert answer.message == case[2]
        assert 100 in sim.region.guests

    run_session(body)


def test_unreferenced_disks_are_destroyed_only_on_request() -> None:
    async def body(sim: SimulatorSession) -> None:
        path = "/nodes/n1/storage/shared/content"
        for asked, left in (("0", 1), ("1", 0)):
            await sim.vm(scsi0="shared:1")
            await sim.post(path, vmid="100", filename="vm-100-extra.raw", size="1G")
            await sim.run_task("DELETE", VM, **{"destroy-unreferenced-disks": asked})
            assert len(await sim.get(path, vmid="100", content="images")) == left

    run_session(body)


def test_concurrent_clones_share_the_lock_of_their_source() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:0.2")
        upids = [(await sim.post(f"{VM}/clone", newid=str(n))).data for n in (101, 102, 103)]
        await sim.clock.sleep(0.1)
        before = sim.clock.monotonic()
        assert (await sim.put(f"{VM}/config", cores="2")).status == 200
        three_copies = 3 * 0.2 * 1024 / 100  # they share the bandwidth of the storage
        assert sim.clock.monotonic() - before == pytest.approx(three_copies, abs=0.5)
        for upid in upids:
            assert (await sim.engine.runtimes["r1"].workers.wait(upid)).exitstatus == "OK"

    run_session(body)
