"""PCI mappings, load figures, statuses of QEMU, and shared bandwidth."""

from typing import Any

import pytest

from moxwell.errors import Invalid
from moxwell.lab.proxmox import chaos
from moxwell.lab.proxmox.errors import PveException
from moxwell.lab.proxmox.mappings import check_pci
from moxwell.lab.proxmox.qemu.start import guest_vm
from moxwell.lab.proxmox.section_config import SectionType
from moxwell.lab.proxmox.state import SimHost, SimRegion
from moxwell.lab.proxmox.world import read_world
from support.simulator_session import SimulatorSession, run_session

GPU = {"vendor": "0x10de", "device": "0x2684", "class": "0x030000", "iommugroup": 12}
MAP = "node=n1,path=0000:01:00.0,id=10de:2684,iommugroup=12"


async def with_gpu(sim: SimulatorSession, entry: str = MAP) -> None:
    sim.region.hosts["n1"].pci["0000:01:00.0"] = dict(GPU)
    assert (await sim.post("/cluster/mapping/pci", id="gpu", map=[entry])).status == 200


def test_a_mapped_device_serves_one_guest_at_a_time() -> None:
    async def body(sim: SimulatorSession) -> None:
        await with_gpu(sim)
        for vmid in (100, 101):
            await sim.vm(vmid, hostpci0="mapping=gpu")
        assert (await sim.run_task("POST", "/nodes/n1/qemu/100/status/start")).status == "OK"
        second = await sim.run_task("POST", "/nodes/n1/qemu/101/status/start")
        assert second.status == "PCI device '0000:01:00.0' already in use by VMID '100'"
        await sim.run_task("POST", "/nodes/n1/qemu/100/status/stop")
        assert (await sim.run_task("POST", "/nodes/n1/qemu/101/status/start")).status == "OK"

    run_session(body, "9.2.11")


@pytest.mark.parametrize(
    "entry, message",
    [
        pytest.param(MAP, None, id="matches"),
        pytest.param("node=n1,path=0000:02:00.0,id=10de:2684",
                     "pci device '0000:02:00.0' not found", id="gone"),
        pytest.param("node=n1,path=0000:01:00.0,id=10de:1111,iommugroup=12",
                     "'id' does not match for 'gpu' (10de:2684 != 10de:1111)", id="replaced"),
        pytest.param("node=n1,path=0000:01:00.0,id=10de:2684",
                     "missing expected property 'iommugroup' for device '0000:01:00.0'",
                     id="incomplete"),
    ],
)  # fmt: skip
def test_mappings_are_checked_against_the_node(entry: str, message: str | None) -> None:
    async def body(sim: SimulatorSession) -> None:
        await with_gpu(sim, entry)
        rows = await sim.get("/cluster/mapping/pci", **{"check-node": "n1"})
        found = [check["message"].strip() for check in rows[0]["checks"]]
        assert found == ([f"Invalid configuration: {message}"] if message else [])

    run_session(body, "9.2.11")


def test_a_guest_with_a_local_device_does_not_migrate() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(hostpci0="0000:01:00.0")
        ended = await sim.run_task("POST", "/nodes/n1/qemu/100/migrate", target="n2")
        assert ended.status == "migration aborted"
        assert any("uses local devices: hostpci0" in line for line in ended.log)

    run_session(body)


def test_figures_follow_the_load_of_guests() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(memory="4096", cores="4")
        await sim.run_task("POST", "/nodes/n1/qemu/100/status/start")
        runtime = sim.engine.runtimes["r1"]
        chaos.perform(runtime, "load", {"vmid": 100, "cpu": 0.5, "memory": 0.25})
        await sim.clock.sleep(11)
        rows = {row["id"]: row for row in await sim.get("/cluster/resources")}
        assert (rows["qemu/100"]["cpu"], rows["qemu/100"]["mem"]) == (0.5, 1 << 30)
        assert rows["node/n1"]["cpu"] == pytest.approx(0.52)

    run_session(body)


def test_rrddata_shows_what_was_used_at_each_time() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(memory="4096", cores="4")
        await sim.run_task("POST", "/nodes/n1/qemu/100/status/start")
        for cpu in (0.25, 0.5):
            await sim.clock.sleep(300)
            changed = {"vmid": 100, "cpu": cpu, "memory": cpu}
            chaos.perform(sim.engine.runtimes["r1"], "load", changed)
        await sim.clock.sleep(300)
        await sim.run_task("POST", "/nodes/n1/qemu/100/status/stop")
        await sim.clock.sleep(300)
        node = await sim.get("/nodes/n1/rrddata", timeframe="hour")
        guest = await sim.get("/nodes/n1/qemu/100/rrddata", timeframe="hour")
        assert len(node) == len(guest) == 70
        assert [row.get("cpu") for row in guest[-18::5]] == [0.01, 0.25, 0.5, 0.0]
        assert "cpu" not in guest[0]
        assert [row["cpu"] for row in node[-18::5]] == pytest.approx([0.03, 0.27, 0.52, 0.02])
        assert guest[-8]["mem"] == 2 << 30
        assert node[-1]["memused"] < node[-8]["memused"]

    run_session(body)


def test_a_guest_reports_what_it_uses() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(memory="4096", cores="4")
        runtime, guest = sim.engine.runtimes["r1"], sim.region.guests[100]
        for command, used, shown in (("start", 0.75, 0.75), ("stop", 0.9, 0), ("start", 0.0, 0.01)):
            await sim.run_task("POST", f"/nodes/n1/qemu/100/status/{command}")
            guest_vm(runtime, guest).report_load(used, used)
            await sim.clock.sleep(11)
            (row,) = await sim.get("/cluster/resources", type="vm")
            current = await sim.get("/nodes/n1/qemu/100/status/current")
            assert row["cpu"] == current["cpu"] == shown

    run_session(body)


@pytest.mark.parametrize("word", ["paused", "internal-error", "io-error", "prelaunch"])
def test_resources_show_the_status_of_qemu(word: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        await sim.run_task("POST", "/nodes/n1/qemu/100/status/start")
        runtime = sim.engine.runtimes["r1"]
        chaos.perform(runtime, "qemu-status", {"vmid": 100, "status": word})
        await sim.clock.sleep(11)
        rows: list[dict[str, Any]] = await sim.get("/cluster/resources", type="vm")
        current = await sim.get("/nodes/n1/qemu/100/status/current")
        assert rows[0]["status"] == current["qmpstatus"] == word
        await sim.run_task("POST", "/nodes/n1/qemu/100/status/stop")
        await sim.clock.sleep(11)
        assert (await sim.get("/cluster/resources", type="vm"))[0]["status"] == "stopped"

    run_session(body)


def test_an_unknown_status_is_refused() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        with pytest.raises(Invalid, match="unknown status 'happy'"):
            chaos.perform(
                sim.engine.runtimes["r1"], "qemu-status", {"vmid": 100, "status": "happy"}
            )

    run_session(body)


def test_copies_at_the_same_time_share_the_bandwidth() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(100, scsi0="shared:1")
        alone = await sim.run_task("POST", "/nodes/n1/qemu/100/clone", newid="101")
        started = sim.clock.monotonic()
        upids = [
            (await sim.post("/nodes/n1/qemu/100/clone", newid=str(n))).data for n in (102, 103)
        ]
        for upid in upids:
            await sim.engine.runtimes["r1"].workers.wait(upid)
        assert sim.clock.monotonic() - started == pytest.approx(2 * alone.seconds, rel=0.1)

    run_session(body)


@pytest.mark.parametrize(
    "config, create, message",
    [
        pytest.param({"a": 1}, True, None, id="complete"),
        pytest.param({}, True, "missing value for required option 'a'", id="required"),
        pytest.param({}, False, None, id="an update may omit it"),
        pytest.param({"a": 1, "z": 1}, True, "unexpected property 'z'", id="unknown"),
    ],
)
def test_sections(config: dict[str, Any], create: bool, message: str | None) -> None:
    section = SectionType.of("a", "b", "b")
    if message is None:
        section.check(config, create=create)
        return
    with pytest.raises(Exception, match=message):
        section.check(config, create=create)


@pytest.mark.parametrize(
    "name, message",
    [
        pytest.param("a", "unable to delete required option 'a'", id="required"),
        pytest.param("b", "unable to delete fixed option 'b'", id="fixed"),
        pytest.param("z", "no such option 'z'", id="unknown"),
    ],
)
def test_options_that_cannot_be_deleted(name: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        SectionType.of("a", "b", "b").delete({}, {}, [name])


def test_snapshots_on_lvm_need_a_volume_chain() -> None:
    async def body(sim: SimulatorSession) -> None:
        path, snapshot = "/nodes/n1/qemu/100", {"snapname": "s1"}
        assert (await sim.vm(scsi0="thick:1"))["scsi0"] == "thick:vm-100-disk-0,size=1G"
        refused = await sim.run_task("POST", f"{path}/snapshot", **snapshot)
        assert refused.status == "snapshot feature is not available"
        sim.region.storages["thick"].options["snapshot-as-volume-chain"] = 1
        assert (await sim.put(f"{path}/config", scsi1="thick:1")).status == 200
        assert (await sim.config())["scsi1"] == "thick:vm-100-disk-1.qcow2,size=1G"
        assert (await sim.put(f"{path}/config", delete="scsi0")).status == 200
        for name in ("s1", "s2"):
            ended = await sim.run_task("POST", f"{path}/snapshot", snapname=name)
            assert ended.status == "OK"
        assert await used(sim) == 4 << 30  # of the unused disk, of the other one and its snapshots
        full = await sim.run_task("POST", f"{path}/snapshot", snapname="s3")
        assert "insufficient free space (0 extents): 256 required" in full.status
        assert "s3" not in {row["name"] for row in await sim.get(f"{path}/snapshot")}
        late = await sim.run_task("POST", f"{path}/snapshot/s1/rollback")
        assert late.status.startswith("can't rollback, 's1' is not most recent snapshot")
        assert (await sim.run_task("POST", f"{path}/snapshot/s2/rollback")).status == "OK"
        assert (await sim.run_task("DELETE", f"{path}/snapshot/s2")).status == "OK"
        assert await used(sim) == 3 << 30

    run_session(body, "9.2.11")


async def used(sim: SimulatorSession) -> int:
    return int((await sim.get("/nodes/n1/storage/thick/status"))["used"])


def test_the_cleanup_of_a_stopped_guest_can_come_late() -> None:
    async def body(sim: SimulatorSession) -> None:
        sim.region.pace.cleanup = 20
        await sim.vm()
        for verb in ("start", "stop"):
            ended = await sim.run_task("POST", f"/nodes/n1/qemu/100/status/{verb}")
            assert ended.status == "OK"
        await sim.clock.sleep(0.1)
        answer = await sim.put("/nodes/n1/qemu/100/config", cores="2")
        assert answer.message.endswith("lock-100.conf' - got timeout")
        await sim.clock.sleep(20)
        assert (await sim.put("/nodes/n1/qemu/100/config", cores="2")).status == 200

    run_session(body, "9.2.11")


def test_replication_keeps_a_copy_on_the_target() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="tank:1")
        job = {"id": "100-0", "target": "n2", "type": "local"}
        assert (await sim.post("/cluster/replication", **job)).status == 200
        content = "/nodes/n2/storage/tank/content"
        assert await sim.get(content) == []
        assert (await sim.post("/nodes/n1/replication/100-0/schedule_now")).status == 200
        assert await sim.get(content) == []
        await sim.clock.sleep(61)
        assert [row["volid"] for row in await sim.get(content)] == ["tank:vm-100-disk-0"]
        assert (await sim.request("DELETE", "/cluster/replication/100-0")).status == 200
        assert [row["remove_job"] for row in await sim.get("/cluster/replication")] == ["full"]
        await sim.clock.sleep(61)
        assert await sim.get("/cluster/replication") == []
        assert await sim.get(content) == []

    run_session(body, "9.2.11")


def test_numbers_of_a_world_file_are_served_as_proxmox_does() -> None:
    text = """
regions:
  - name: r
    version: 9.2.11
    nodes: [{name: n1}]
    storages: [{storage: local, type: dir, path: /v}]
    guests: [{vmid: 100, config: {agent: 1, cores: 2, cpulimit: 1.5, onboot: true, memory: 64}}]
"""
    conf = read_world(text, "test", 0.0)["r"].guests[100].conf
    found = {key: conf[key] for key in ("agent", "cores", "cpulimit", "onboot", "memory")}
    assert found == {"agent": "1", "cores": 2, "cpulimit": "1.5", "onboot": 1, "memory": "64"}


@pytest.mark.parametrize(
    "entry, mdev, message",
    [
        pytest.param({"path": "0000:01:00.0", "id": "10de:1", "iommugroup": "1"}, 0, "",
                     id="as is"),
        pytest.param({"path": "0000:01:00", "id": "10de:1", "iommugroup": "1"}, 0, "",
                     id="all functions"),
        pytest.param({"path": "0000:09:00", "id": "10de:1"}, 0,
                     "pci device '0000:09:00.0' not found", id="no device"),
        pytest.param({"path": "0000:01:00.0", "id": "10de:2", "iommugroup": "1"}, 0,
                     "'id' does not match for 'gpu' (10de:1 != 10de:2)", id="another id"),
        pytest.param({"path": "0000:01:00.0", "id": "10de:1"}, 0,
                     "missing expected property 'iommugroup' for device '0000:01:00.0'",
                     id="no group"),
        pytest.param({"path": "0000:01:00.0", "id": "10de:1", "iommugroup": "1",
                      "subsystem-id": "1:2"}, 0,
                     "unexpected property 'subsystem-id' configured for device '0000:01:00.0'",
                     id="too much"),
        pytest.param({"path": "0000:01:00.0", "id": "10de:1", "iommugroup": "1"}, 1,
                     "'mdev' does not match for 'gpu' (0 != 1)", id="no mediated devices"),
    ],
)  # fmt: skip
def test_what_a_mapping_must_say_of_its_device(
    entry: dict[str, str], mdev: int, message: str
) -> None:
    device = {"vendor": "0x10de", "device": "0x1", "iommugroup": 1}
    host = SimHost("n1", pci={"0000:01:00.0": device})
    found = ""
    try:
        check_pci(SimRegion("r", "9.2.11"), host, "gpu", entry, mdev)
    except PveException as problem:
        found = problem.message
    assert found == message
