"""Containers: create, configure, power, clone, snapshot, destroy."""

import pytest

from support.simulator_session import SimulatorSession, run_session

CT = "/nodes/n1/lxc/200"
TEMPLATE = "shared:vztmpl/debian-12.tar.gz"


async def make(sim: SimulatorSession, vmid: int = 200, **options: str) -> None:
    form = {"vmid": str(vmid), "ostemplate": TEMPLATE, "rootfs": "shared:1", **options}
    ended = await sim.run_task("POST", "/nodes/n1/lxc", **form)
    assert ended.status == "OK", ended


def test_a_new_container_gets_defaults() -> None:
    async def body(sim: SimulatorSession) -> None:
        await make(sim, net0="name=eth0,bridge=vmbr0,ip=dhcp")
        conf = await sim.get(f"{CT}/config")
        assert (conf["memory"], conf["swap"], conf["hostname"]) == (512, 512, "CT200")
        assert (conf["ostype"], conf["arch"]) == ("debian", "amd64")
        assert conf["rootfs"] == "shared:200/vm-200-disk-0.raw,size=1G"
        assert conf["net0"].startswith("name=eth0,bridge=vmbr0,hwaddr=BC:24:11:")
        assert conf["net0"].endswith(",ip=dhcp,type=veth")

    run_session(body)


@pytest.mark.parametrize(
    ("storage", "volume"),
    [("tank", "tank:subvol-200-disk-0"), ("thin", "thin:vm-200-disk-0")],
)
def test_root_volume_formats(storage: str, volume: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        await make(sim, rootfs=f"{storage}:2")
        assert (await sim.get(f"{CT}/config"))["rootfs"] == f"{volume},size=2G"

    run_session(body)


REFUSED: list[tuple[str, dict[str, str], int, str]] = [
    ("a required option", {"delete": "memory"}, 500, "unable to delete required option 'memory'"),
    ("a read-only option", {"unprivileged": "1"}, 500, "unable to modify read-only option"),
    ("nothing", {}, 500, "no options specified"),
    ("a mount point on nothing", {"mp0": "nosuch:1,mp=/x"}, 500, "storage 'nosuch' does not exist"),
    ("an unknown option", {"delete": "nosuch"}, 400, "unknown option 'nosuch'"),
]


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_rejected_changes(case: tuple[str, dict[str, str], int, str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await make(sim)
        answer = await sim.put(f"{CT}/config", **case[1])
        assert answer.status == case[2]
        assert case[3] in answer.message + "".join(answer.errors.values())

    run_session(body)


def test_adding_and_removing_mount_points() -> None:
    async def body(sim: SimulatorSession) -> None:
        await make(sim)
        await sim.put(f"{CT}/config", mp0="shared:1,mp=/data")
        conf = await sim.get(f"{CT}/config")
        assert conf["mp0"] == "shared:200/vm-200-disk-1.raw,mp=/data,size=1G"
        await sim.put(f"{CT}/config", delete="mp0")
        assert (await sim.get(f"{CT}/config"))["unused0"] == "shared:200/vm-200-disk-1.raw"
        await sim.put(f"{CT}/config", delete="unused0")
        rows = await sim.get("/nodes/n1/storage/shared/content", content="rootdir")
        assert [row["volid"] for row in rows] == ["shared:200/vm-200-disk-0.raw"]

    run_session(body)


def test_starting_and_stopping() -> None:
    async def body(sim: SimulatorSession) -> None:
        await make(sim, net0="name=eth0,bridge=vmbr0,ip=10.0.0.5/24")
        assert (await sim.post(f"{CT}/status/stop")).message == "CT 200 not running"
        assert await sim.get(f"{CT}/interfaces") is None
        assert (await sim.run_task("POST", f"{CT}/status/start")).status == "OK"
        assert (await sim.post(f"{CT}/status/start")).message == "CT 200 already running"
        assert (await sim.get(f"{CT}/interfaces"))[1]["inet"] == "10.0.0.5/24"
        await sim.put(f"{CT}/config", ostype="ubuntu", cores="2")
        assert (await sim.get(f"{CT}/config", current="1"))["ostype"] == "debian"
        assert (await sim.run_task("POST", f"{CT}/status/reboot")).status == "OK"
        assert (await sim.get(f"{CT}/config", current="1"))["ostype"] == "ubuntu"
        assert (await sim.run_task("POST", f"{CT}/status/shutdown")).status == "OK"

    run_session(body)


def test_resize_is_checked_before_the_task() -> None:
    async def body(sim: SimulatorSession) -> None:
        await make(sim)
        answer = await sim.put(f"{CT}/resize", disk="rootfs", size="512M")
        assert answer.message == "unable to shrink disk size"
        assert (await sim.run_task("PUT", f"{CT}/resize", disk="rootfs", size="+1G")).status == "OK"
        assert (await sim.get(f"{CT}/config"))["rootfs"].endswith("size=2G")

    run_session(body)


def test_cloning_locks_the_source_while_it_lasts() -> None:
    async def body(sim: SimulatorSession) -> None:
        await make(sim, hostname="one")
        upid = (await sim.post(f"{CT}/clone", newid="201", hostname="two")).data
        await sim.clock.sleep(1)
        assert (await sim.put(f"{CT}/config", cores="1")).message == "CT is locked (disk)"
        await sim.engine.runtimes["r1"].workers.wait(upid)
        assert (await sim.get("/nodes/n1/lxc/201/config"))["hostname"] == "two"
        assert (await sim.put(f"{CT}/config", cores="1")).status == 200

    run_session(body)


def test_a_container_template() -> None:
    async def body(sim: SimulatorSession) -> None:
        await make(sim, rootfs="tank:1")
        answer = await sim.post(f"{CT}/template")
        assert (answer.status, answer.data) == (200, None)
        await sim.clock.sleep(1)
        conf = await sim.get(f"{CT}/config")
        assert (conf["template"], conf["rootfs"]) == (1, "tank:basevol-200-disk-0,size=1G")
        assert (await sim.run_task("POST", f"{CT}/clone", newid="201")).status == "OK"
        conf = await sim.get("/nodes/n1/lxc/201/config")
        assert conf["rootfs"] == "tank:basevol-200-disk-0/subvol-201-disk-0,size=1G"

    run_session(body)


@pytest.mark.parametrize(
    ("storage", "status"), [("shared", "snapshot feature is not available"), ("tank", "OK")]
)
def test_snapshots_require_storage_support(storage: str, status: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        await make(sim, rootfs=f"{storage}:1")
        ended = await sim.run_task("POST", f"{CT}/snapshot", snapname="one")
        assert ended.status == status

    run_session(body)


def test_a_running_container_is_destroyed_only_by_force() -> None:
    async def body(sim: SimulatorSession) -> None:
        await make(sim)
        await sim.run_task("POST", f"{CT}/status/start")
        answer = await sim.request("DELETE", CT)
        assert answer.message == "unable to destroy CT 200 - container is running"
        assert (await sim.run_task("DELETE", CT, force="1")).status == "OK"
        assert await sim.get("/nodes/n1/storage/shared/content", content="rootdir") == []

    run_session(body)


def test_containers_migrate_offline_or_with_restart() -> None:
    async def body(sim: SimulatorSession) -> None:
        await make(sim, rootfs="thin:1")
        await sim.run_task("POST", f"{CT}/status/start")
        answer = await sim.post(f"{CT}/migrate", target="n2")
        assert "without --online or --restart" in answer.message
        assert (
            await sim.run_task("POST", f"{CT}/migrate", target="n2", restart="1")
        ).status == "OK"
        assert (await sim.get("/nodes/n2/lxc/200/status/current"))["status"] == "running"

    run_session(body)


def test_a_volume_can_change_its_storage_and_its_container() -> None:
    async def body(sim: SimulatorSession) -> None:
        await make(sim, mp0="shared:1,mp=/data")
        await make(sim, 201)
        form = {"volume": "mp0", "storage": "thin", "delete": "1"}
        assert (await sim.run_task("POST", f"{CT}/move_volume", **form)).status == "OK"
        conf = await sim.get(f"{CT}/config")
        assert conf["mp0"] == "thin:vm-200-disk-0,mp=/data,size=1G"
        form = {"volume": "mp0", "target-vmid": "201", "target-volume": "mp3"}
        assert (await sim.run_task("POST", f"{CT}/move_volume", **form)).status == "OK"
        conf = await sim.get("/nodes/n1/lxc/201/config")
        assert conf["mp3"] == "thin:vm-201-disk-0,mp=/data,size=1G"

    run_session(body)


@pytest.mark.parametrize(
    "form, status, message",
    [
        pytest.param({"volume": "rootfs"}, 400, "Parameter verification failed.", id="no target"),
        pytest.param({"volume": "rootfs", "storage": "local", "target-vmid": "201"}, 500,
                     "either set storage or target-vmid, but not both", id="two targets"),
        pytest.param({"volume": "unused0", "storage": "local"}, 500,
                     "cannot move volume 'unused0', only configured volumes can be moved to "
                     "another storage", id="an unused volume"),
        pytest.param({"volume": "rootfs", "target-vmid": "201"}, 500,
                     "Cannot move to/from 'rootfs'", id="the root"),
        pytest.param({"volume": "mp0", "target-vmid": "299"}, 500, "could not find CT 299",
                     id="to nobody"),
        pytest.param({"volume": "mp0", "target-vmid": "201", "target-digest": "0" * 40}, 500,
                     "Container 201: detected modified configuration - file changed by other "
                     "user? Try again.", id="another target"),
        pytest.param({"volume": "mp7", "target-vmid": "201"}, 500,
                     "volume 'mp7' for container '200' does not exist", id="no such volume"),
        pytest.param({"volume": "mp0", "target-vmid": "200"}, 500,
                     "Target volume key 'mp0' is already in use for container '200'",
                     id="onto itself"),
    ],
)  # fmt: skip
def test_refused_moves_of_volumes(form: dict[str, str], status: int, message: str) -> None:
    async def session(sim: SimulatorSession) -> None:
        for vmid in (200, 201):
            made = {"vmid": vmid, "ostemplate": "shared:vztmpl/debian-12.tar.gz",
                    "rootfs": "local:1", "mp0": "local:1,mp=/data"}  # fmt: skip
            assert (await sim.run_task("POST", "/nodes/n1/lxc", **made)).status == "OK"
        answer = await sim.post("/nodes/n1/lxc/200/move_volume", **form)
        assert (answer.status, answer.message.strip()) == (status, message)

    run_session(session)


def test_a_storage_is_looked_up_by_the_task_that_moves_a_volume() -> None:
    async def session(sim: SimulatorSession) -> None:
        made = {"vmid": 200, "ostemplate": "shared:vztmpl/debian-12.tar.gz", "rootfs": "local:1"}
        assert (await sim.run_task("POST", "/nodes/n1/lxc", **made)).status == "OK"
        path = "/nodes/n1/lxc/200/move_volume"
        moved = await sim.run_task("POST", path, volume="rootfs", storage="none")
        assert moved.status == "storage 'none' does not exist"
        assert "lock" not in (await sim.get("/nodes/n1/lxc/200/config"))

    run_session(session)
