"""Rules of qemu-server: the order of checks, their texts, and what a refused request leaves."""

from typing import Any

import pytest

from support.simulator_session import ApiResponse, SimulatorSession, run_session

VM = "/nodes/n1/qemu/100"
CONF = f"{VM}/config"
MODIFIED = "detected modified configuration - file changed by other user? Try again."


def text_of(answer: ApiResponse) -> str:
    return answer.message + "".join(answer.errors.values())


async def started(sim: SimulatorSession) -> None:
    assert (await sim.run_task("POST", f"{VM}/status/start")).status == "OK"


Case = tuple[str, dict[str, str], str]

CREATED: list[Case] = [
    ("the clipboard needs a display", {"vga": "serial0,clipboard=vnc"},
     "unable to create VM 101 - vga type serial0 is not compatible with VNC clipboard"),
    ("an IOMMU of Intel needs q35", {"machine": "pc,viommu=intel"},
     "unable to create VM 101 - to use Intel vIOMMU please set the machine type to q35"),
    ("an address width needs an IOMMU", {"machine": "q35,aw-bits=39"},
     "unable to create VM 101 - cannot set aw-bits if no vIOMMU is configured"),
    ("q35 has an IOMMU", {"machine": "q35,viommu=intel"}, "OK"),
]  # fmt: skip


@pytest.mark.parametrize("case", CREATED, ids=[case[0] for case in CREATED])
def test_a_worker_checks_machine_and_display(case: Case) -> None:
    async def body(sim: SimulatorSession) -> None:
        ended = await sim.run_task("POST", "/nodes/n1/qemu", vmid="101", **case[1])
        assert ended.status == case[2]
        answer = await sim.request("GET", "/nodes/n1/qemu/101/config")
        assert answer.status == (200 if case[2] == "OK" else 500)

    run_session(body, "9.2.11")


def test_the_machine_version_of_windows_is_pinned() -> None:
    async def body(sim: SimulatorSession) -> None:
        assert (await sim.vm(ostype="win11", machine="q35"))["machine"].startswith("pc-q35-")
        assert "machine" not in await sim.vm(101, ostype="l26")
        await sim.put("/nodes/n1/qemu/101/config", ostype="win10")
        assert (await sim.config(101))["machine"].startswith("pc-i440fx-")
        assert (await sim.vm(102, cpuunits="20000"))["cpuunits"] == 10000

    run_session(body)


REFUSED: list[Case] = [
    ("display", {"vga": "none,clipboard=vnc"},
     "vga type none is not compatible with VNC clipboard"),
    ("machine", {"machine": "pc,viommu=intel"},
     "to use Intel vIOMMU please set the machine type to q35"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_an_update_checks_machine_and_display(case: Case) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        answer = await sim.put(CONF, **case[1])
        assert (answer.status, answer.message) == (500, case[2])

    run_session(body)


def test_a_volume_of_a_snapshot_cannot_be_deleted_with_force() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1,format=qcow2")
        await sim.run_task("POST", f"{VM}/snapshot", snapname="one")
        answer = await sim.put(CONF, delete="scsi0", force="1")
        volid = "shared:100/vm-100-disk-0.qcow2"
        assert answer.status == 400
        assert answer.errors["scsi0"].strip() == (
            f"unable to apply pending change scsi0 : unable to delete '{volid}'"
            " - volume is still in use (snapshot?)"
        )
        assert (await sim.get(CONF, current="1"))["scsi0"].startswith(volid)

    run_session(body)


def test_a_replicated_guest_refuses_volumes_that_cannot_be_replicated() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="tank:1")
        made = await sim.post("/cluster/replication", id="100-0", target="n2", type="local")
        assert made.status == 200, made
        answer = await sim.put(CONF, scsi1="local:1")
        wanted = "cannot add non-replicatable volume to a replicated VM"
        assert (answer.status, answer.message) == (500, wanted)
        assert (await sim.put(CONF, scsi1="local:1,replicate=0")).status == 200
        assert (await sim.put(CONF, scsi2="tank:1")).status == 200

    run_session(body)


AGENT: list[tuple[str, str, str, bool]] = [
    ("a trim after clones", "1", "1,fstrim_cloned_disks=1", False),
    ("another type", "1", "1,type=isa", True),
    ("no freeze", "1", "1,freeze-fs=0", True),
    ("disabled", "1", "0", True),
]


@pytest.mark.parametrize("case", AGENT, ids=[case[0] for case in AGENT])
def test_options_of_the_agent_that_need_a_restart(case: tuple[str, str, str, bool]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(agent=case[1])
        await started(sim)
        assert (await sim.put(CONF, agent=case[2])).status == 200
        current = (await sim.get(CONF, current="1"))["agent"]
        assert current == (case[1] if case[3] else case[2])

    run_session(body, "9.2.11")


def test_a_running_guest_keeps_its_bridge_if_the_new_one_is_missing() -> None:
    async def body(sim: SimulatorSession) -> None:
        net = (await sim.vm(net0="virtio,bridge=vmbr0"))["net0"]
        await started(sim)
        answer = await sim.put(CONF, net0=net.replace("vmbr0", "vmbr9"))
        wanted = "hotplug problem - bridge 'vmbr9' is neither a linux nor an OVS bridge!"
        assert (answer.status, answer.errors["net0"].strip()) == (400, wanted)

    run_session(body)


def test_a_suspended_guest_loses_its_lock_with_its_state() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1", net0="virtio,bridge=vmbr0")
        await started(sim)
        assert (await sim.run_task("POST", f"{VM}/status/suspend", todisk="1")).status == "OK"
        conf = await sim.config()
        state = {"lock", "vmstate", "runningmachine", "runningcpu", "running-nets-host-mtu"}
        assert state <= set(conf)
        assert (await sim.put(CONF, cores="2")).message == "VM is locked (suspended)"
        assert (await sim.put(CONF, delete="vmstate")).status == 200
        assert not state & set(await sim.config())
        rows = await sim.get("/nodes/n1/storage/shared/content", content="images")
        assert [row["volid"] for row in rows] == ["shared:100/vm-100-disk-0.raw"]

    run_session(body, "9.2.11")


STATUS: list[tuple[str, str, str]] = [
    ("internal-error", "VM 100 qmp command 'cont' failed"
     " - Resetting the Virtual Machine is required", "internal-error"),
    ("io-error", "OK", "running"),
    ("shutdown", "OK", "running"),
]  # fmt: skip


@pytest.mark.parametrize("case", STATUS, ids=[case[0] for case in STATUS])
def test_resume_continues_what_qemu_can_continue(case: tuple[str, str, str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        await started(sim)
        sim.region.guests[100].fault_status = case[0]
        assert (await sim.run_task("POST", f"{VM}/status/resume")).status == case[1]
        assert (await sim.get(f"{VM}/status/current"))["qmpstatus"] == case[2]

    run_session(body)


def test_a_reset_of_a_broken_guest_waits_for_resume() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        await started(sim)
        sim.region.guests[100].fault_status = "internal-error"
        assert (await sim.run_task("POST", f"{VM}/status/reset")).status == "OK"
        assert (await sim.get(f"{VM}/status/current"))["qmpstatus"] == "prelaunch"
        assert (await sim.post(f"{VM}/status/shutdown")).message == "VM is paused - cannot shutdown"
        assert (await sim.run_task("POST", f"{VM}/status/resume")).status == "OK"
        assert (await sim.get(f"{VM}/status/current"))["qmpstatus"] == "running"

    run_session(body)


def test_resize_and_move_name_what_they_refuse() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(ide2="none,media=cdrom", scsi0="local:1,format=vmdk", scsi1="thin:1")
        resize = f"{VM}/resize"
        for disk, wanted in (
            ("ide2", "unable to parse volume ID 'none'"),
            ("scsi0", "can't resize this image format"),
            ("scsi9", "disk 'scsi9' does not exist"),
        ):
            assert (await sim.run_task("PUT", resize, disk=disk, size="+1G")).status == wanted
        moved: dict[str, Any] = {"disk": "scsi0", "storage": "shared", "digest": "0" * 40}
        answer = await sim.post(f"{VM}/move_disk", **moved)
        assert (answer.status, answer.message) == (500, MODIFIED)

    run_session(body)


def test_a_snapshot_with_memory_keeps_the_hardware() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1,format=qcow2", ide2="shared:cloudinit")
        await sim.run_task("POST", f"{VM}/snapshot", snapname="cold")
        await started(sim)
        await sim.run_task("POST", f"{VM}/snapshot", snapname="warm", vmstate="1")
        warm = await sim.get(f"{VM}/snapshot/warm/config")
        assert {"runningmachine", "runningcpu", "vmstate"} <= set(warm)
        assert (await sim.put(f"{VM}/snapshot/none/config")).status == 200
        await sim.run_task("POST", f"{VM}/snapshot/warm/rollback")
        assert "runningmachine" not in await sim.config()
        assert (await sim.get(f"{VM}/status/current"))["status"] == "running"

    run_session(body)


def test_a_rollback_frees_the_cloud_init_drive_that_came_later() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1,format=qcow2")
        await sim.run_task("POST", f"{VM}/snapshot", snapname="one")
        await sim.put(CONF, ide2="shared:cloudinit")
        await sim.run_task("POST", f"{VM}/snapshot/one/rollback")
        conf = await sim.config()
        assert "ide2" not in conf
        assert "unused0" not in conf
        rows = await sim.get("/nodes/n1/storage/shared/content", content="images")
        assert [row["volid"] for row in rows] == ["shared:100/vm-100-disk-0.qcow2"]

    run_session(body)


def test_a_snapshot_whose_volume_is_gone_stays_locked_without_force() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1,format=qcow2")
        await sim.run_task("POST", f"{VM}/snapshot", snapname="one")
        await sim.put(CONF, delete="scsi0")
        del sim.region.storages["shared"].volumes_on("n1")["100/vm-100-disk-0.qcow2"]
        ended = await sim.run_task("DELETE", f"{VM}/snapshot/one")
        assert ended.status.startswith("command '/usr/bin/qemu-img snapshot -d one ")
        assert (await sim.config())["lock"] == "snapshot-delete"
        assert (await sim.get(f"{VM}/snapshot/one/config"))["snapstate"] == "delete"

    run_session(body)


def test_a_restore_checks_the_guest_in_its_task() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="local:1", ide2="local:cloudinit", vmgenid="0", protection="1")
        await sim.run_task("POST", "/nodes/n1/vzdump", vmid="100", storage="shared")
        rows = await sim.get("/nodes/n1/storage/shared/content", content="backup")
        form = {"vmid": "100", "archive": rows[0]["volid"], "force": "1"}
        ended = await sim.run_task("POST", "/nodes/n1/qemu", **form)
        assert ended.status == "unable to restore VM 100 - - protection mode enabled"
        await sim.put(CONF, delete="protection")
        await started(sim)
        ended = await sim.run_task("POST", "/nodes/n1/qemu", **form)
        assert ended.status == "unable to restore VM 100 - vm is running"
        await sim.run_task("POST", f"{VM}/status/stop")
        await sim.put(CONF, scsi5="local:1", lock="backup")
        answer = await sim.post("/nodes/n1/qemu", **form)
        assert answer.message == "unable to restore VM 100 - VM is locked (backup)"
        await sim.put(CONF, delete="lock", skiplock="1")
        assert (await sim.run_task("POST", "/nodes/n1/qemu", **form, storage="shared")).status == (
            "OK"
        )
        conf = await sim.config()
        assert conf["scsi0"].startswith("shared:100/")
        assert conf["ide2"].startswith("shared:100/")
        assert conf["unused0"].startswith("local:100/")
        assert conf["vmgenid"] == "0"

    run_session(body)


def test_a_restore_is_never_live_without_a_backup_server() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="local:1")
        await sim.run_task("POST", "/nodes/n1/vzdump", vmid="100", storage="shared")
        rows = await sim.get("/nodes/n1/storage/shared/content", content="backup")
        form = {"vmid": "101", "archive": rows[0]["volid"], "live-restore": "1"}
        ended = await sim.run_task("POST", "/nodes/n1/qemu", **form)
        assert ended.status == (
            "live-restore is only compatible with backup images from a Proxmox Backup Server"
        )

    run_session(body)


MAPS: list[tuple[str, str, str]] = [
    ("two targets", "local:shared,local:thin", "duplicate mapping for source 'local'"),
    ("two defaults", "shared,thin", "default target ID can only be provided once"),
    ("identity and others", "1,shared",
     "identity mapping cannot be combined with other mappings"),
]  # fmt: skip


@pytest.mark.parametrize("case", MAPS, ids=[case[0] for case in MAPS])
def test_a_storage_map_is_unambiguous(case: tuple[str, str, str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="local:1")
        answer = await sim.post(f"{VM}/migrate", target="n2", targetstorage=case[1])
        wanted = f"failed to parse storage map: {case[2]}"
        assert (answer.status, answer.errors["targetstorage"].strip()) == (400, wanted)

    run_session(body)


def test_a_guest_migrates_where_its_devices_are() -> None:
    async def body(sim: SimulatorSession) -> None:
        pci = "node=n1,path=0000:01:00.0,id=8086:1521"
        await sim.post("/cluster/mapping/pci", id="card", map=pci)
        await sim.vm(hostpci0="mapping=card")
        found = await sim.get(f"{VM}/migrate")
        assert found["allowed_nodes"] == []
        assert found["not_allowed_nodes"]["n2"] == {"unavailable-resources": ["hostpci0"]}
        assert found["mapped-resource-info"] == {"hostpci0": {"name": "card"}}

    run_session(body, "9.2.11")


def test_a_replicated_guest_moves_online_only_to_its_copies() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="tank:1")
        await started(sim)
        sim.region.replication["100-0"] = {"guest": 100, "target": "n3", "type": "local"}
        answer = await sim.post(f"{VM}/migrate", target="n2", online="1")
        assert (answer.status, answer.message) == (
            500,
            "Cannot live-migrate replicated VM to node 'n2' - not a replication target."
            " Use 'force' to override.",
        )

    run_session(body)


def test_a_template_shows_one_converted_disk_after_the_other() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="local:1", scsi1="local:1", scsi2="local:1")
        upid = (await sim.post(f"{VM}/template")).data
        bases = []
        for _ in range(4):
            await sim.clock.sleep(0.001)
            conf = await sim.config()
            bases.append(sum("base-" in str(value) for value in conf.values()))
        assert bases == [0, 1, 2, 3]
        assert (await sim.engine.runtimes["r1"].workers.wait(upid)).exitstatus == "OK"

    run_session(body)


def test_a_pool_shows_what_its_running_guests_use() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.post("/pools", poolid="p")
        await sim.vm(memory="256", cores="2", pool="p")
        await started(sim)
        await sim.clock.sleep(30)
        rows = {row["id"]: row for row in await sim.get("/cluster/resources")}
        assert (rows["/pool/p"]["maxmem"], rows["/pool/p"]["maxcpu"]) == (256 << 20, 2)
        await sim.run_task("POST", f"{VM}/status/stop")
        await sim.clock.sleep(30)
        rows = {row["id"]: row for row in await sim.get("/cluster/resources")}
        assert rows["/pool/p"] == {"id": "/pool/p", "pool": "p", "type": "pool"}

    run_session(body)


STARTS: list[Case] = [
    ("a serial port of the host", {"serial0": "/dev/ttyS0"}, "no such serial device"),
    ("memory that no modules make", {"memory": "1300", "hotplug": "memory", "numa": "1"},
     "memory size (1300) must be aligned to 512 for hotplugging"),
    ("memory of modules", {"memory": "2048", "hotplug": "memory", "numa": "1"}, "OK"),
    ("too many CPUs and too little memory", {"cores": "64", "hotplug": "memory"},
     "MAX 4 vcpus allowed per VM on this node"),
]  # fmt: skip


@pytest.mark.parametrize("case", STARTS, ids=[case[0] for case in STARTS])
def test_what_a_start_refuses(case: Case) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(**case[1])
        assert (await sim.run_task("POST", f"{VM}/status/start")).status == case[2]

    run_session(body)


def test_a_missing_volume_is_found_first_or_last() -> None:
    async def statuses(sim: SimulatorSession) -> str:
        await sim.vm(cores="64", scsi0="local:1")
        del sim.region.storages["local"].volumes_on("n1")["100/vm-100-disk-0.raw"]
        return (await sim.run_task("POST", f"{VM}/status/start")).status

    async def nine(sim: SimulatorSession) -> None:
        wanted = "volume 'local:100/vm-100-disk-0.raw' does not exist"
        assert await statuses(sim) == wanted

    async def eight(sim: SimulatorSession) -> None:
        assert await statuses(sim) == "MAX 4 vcpus allowed per VM on this node"

    run_session(nine, "9.2.11")
    run_session(eight)
