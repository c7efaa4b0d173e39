"""Rules of pve-container: what a change writes, what a restore keeps, who may change what."""

import pytest

from support.simulator_session import SimulatorSession, run_session

CT = "/nodes/n1/lxc/200"
CONF = f"{CT}/config"
Form = dict[str, str]


async def container(sim: SimulatorSession, **options: str) -> None:
    form = {"vmid": "200", "ostemplate": "shared:vztmpl/debian-12.tar.gz", "rootfs": "local:1"}
    ended = await sim.run_task("POST", "/nodes/n1/lxc", **(form | options))
    assert ended.status == "OK", ended


async def backup(sim: SimulatorSession) -> Form:
    await sim.run_task("POST", "/nodes/n1/vzdump", vmid="200", storage="shared")
    rows = await sim.get("/nodes/n1/storage/shared/content", content="backup")
    return {"vmid": "200", "ostemplate": rows[0]["volid"], "restore": "1", "force": "1"}


REFUSED: list[tuple[str, Form, int, str]] = [
    ("a required option", {"delete": "onboot,memory"}, 500,
     "unable to delete required option 'memory'"),
    ("a read-only option", {"onboot": "0", "unprivileged": "0"}, 500,
     "unable to modify read-only option: 'unprivileged'"),
    ("a missing volume", {"onboot": "0", "mp1": "local:200/none.raw,mp=/x"}, 400,
     "unable to apply pending change mp1 : volume 'local:200/none.raw' does not exist"),
    ("an MTU above that of the bridge", {"onboot": "0",
     "net3": "name=eth3,bridge=vmbr0,mtu=9000"}, 500,
     "net3: MTU size '9000' is bigger than bridge MTU '1500'"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_a_failed_change_writes_nothing(case: tuple[str, Form, int, str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await container(sim, onboot="1")
        before = await sim.get(CONF)
        answer = await sim.put(CONF, **case[1])
        assert answer.status == case[2]
        assert case[3] in answer.message + "".join(answer.errors.values())
        assert await sim.get(CONF) == before
        assert [
            row for row in await sim.get(f"{CT}/pending") if {"pending", "delete"} & set(row)
        ] == []

    run_session(body)


def test_a_mount_point_that_goes_becomes_unused() -> None:
    async def body(sim: SimulatorSession) -> None:
        await container(
            sim, mp0="local:1,mp=/a", cpuunits="20000", nameserver="192.0.2.1,192.0.2.2"
        )
        conf = await sim.get(CONF)
        assert (conf["cpuunits"], conf["nameserver"]) == (10000, "192.0.2.1 192.0.2.2")
        first = conf["mp0"].partition(",")[0]
        assert (await sim.put(CONF, mp0="shared:1,mp=/a")).status == 200
        conf = await sim.get(CONF)
        assert conf["unused0"] == first
        assert (await sim.put(CONF, delete="mp0")).status == 200
        conf = await sim.get(CONF)
        assert {conf["unused0"], conf["unused1"]} == {first, "shared:200/vm-200-disk-0.raw"}

    run_session(body)


def test_a_restore_goes_to_local_unless_a_storage_is_given() -> None:
    async def body(sim: SimulatorSession) -> None:
        await container(sim, rootfs="shared:1", unprivileged="1")
        form = await backup(sim)
        await sim.post("/pools", poolid="p")
        ended = await sim.run_task("POST", "/nodes/n1/lxc", **form, pool="p", start="1")
        assert ended.status == "OK"
        conf = await sim.get(CONF)
        assert conf["rootfs"].startswith("local:200/")
        assert conf["unprivileged"] == 1
        assert [row["vmid"] for row in (await sim.get("/pools/p"))["members"]] == [200]

    run_session(body)


def test_a_restore_checks_the_container() -> None:
    async def body(sim: SimulatorSession) -> None:
        await container(sim, protection="1")
        form = await backup(sim)
        answer = await sim.post("/nodes/n1/lxc", **form)
        assert answer.message == "unable to restore CT 200 - protection mode enabled"
        await sim.put(CONF, delete="protection")
        await sim.run_task("POST", f"{CT}/status/start")
        answer = await sim.post("/nodes/n1/lxc", **form)
        assert answer.message == "can't overwrite running container"
        await sim.run_task("POST", f"{CT}/status/stop")
        sim.region.guests[200].conf["lock"] = "backup"
        answer = await sim.post("/nodes/n1/lxc", **form)
        assert answer.message == "unable to restore CT 200 - CT is locked (backup)"

    run_session(body)


USERS: list[tuple[str, Form, int, str]] = [
    ("nesting", {"features": "nesting=1"}, 200, ""),
    ("another feature", {"features": "nesting=1,keyctl=1"}, 403,
     "Permission check failed (changing feature flags (except nesting) is only allowed for"
     " root@pam)"),
    ("a tag", {"tags": "any"}, 200, ""),
    ("a registered tag", {"tags": "reserved"}, 403,
     "Permission check failed (/, Sys.Modify for modifying tag 'reserved')"),
    ("a bind mount", {"mp3": "/srv,mp=/srv"}, 403,
     "Permission check failed (mount point type bind is only allowed for root@pam)"),
]  # fmt: skip


@pytest.mark.parametrize("case", USERS, ids=[case[0] for case in USERS])
def test_what_a_user_may_change(case: tuple[str, Form, int, str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await container(sim, unprivileged="1")
        await sim.put("/cluster/options", **{"registered-tags": "reserved"})
        await sim.post("/access/users", userid="joe@pve")
        made = await sim.post("/access/users/joe@pve/token/tk", privsep="0")
        await sim.put("/access/acl", path="/vms/200", users="joe@pve", roles="PVEVMAdmin")
        token = f"joe@pve!tk={made.data['value']}"
        answer = await sim.request("PUT", CONF, case[1], token=token)
        assert (answer.status, answer.message) == (case[2], case[3])

    run_session(body)


def test_a_bridge_is_read_when_the_configuration_of_lxc_is_written() -> None:
    async def body(sim: SimulatorSession) -> None:
        await container(sim, net0="name=eth0,bridge=nosuch")
        answer = await sim.put(CONF, onboot="1")
        assert answer.message == "bridge 'nosuch' does not exist"
        assert (await sim.get(CONF))["onboot"] == 1
        ended = await sim.run_task("POST", f"{CT}/status/start")
        assert ended.status == "bridge 'nosuch' does not exist"

    run_session(body, "9.2.11")


def test_what_the_start_and_resume_of_a_container_refuse() -> None:
    async def body(sim: SimulatorSession) -> None:
        await container(sim, unprivileged="1")
        root = (await sim.get(CONF))["rootfs"]
        await sim.put(CONF, rootfs=f"{root},quota=1")
        ended = await sim.run_task("POST", f"{CT}/status/start")
        assert ended.status == "Quotas are not supported by unprivileged containers."
        await sim.put(CONF, rootfs=root)
        assert (await sim.run_task("POST", f"{CT}/status/start")).status == "OK"
        answer = await sim.post(f"{CT}/status/resume")
        assert (answer.status, answer.message) == (500, "CT 200 already running")

    run_session(body)
