"""Bulk actions, backup jobs, realms and content types of storages."""

from typing import Any

import pytest

from support.simulator_cluster import SimulatedCluster, run_scenario


async def make(sim: SimulatedCluster, *vmids: int, **conf: Any) -> None:
    for vmid in vmids:
        form = {"vmid": vmid, "memory": 64, "scsi0": "shared:1", **conf}
        assert await sim.run_task("POST", "/nodes/n1/qemu", **form) == "OK"


def test_startall_and_stopall() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim, 100, 101, onboot=1)
        await make(sim, 102)
        assert await sim.run_task("POST", "/nodes/n1/startall") == "OK"
        guests = sim.region.guests
        assert [guests[v].running for v in (100, 101, 102)] == [True, True, False]
        assert await sim.run_task("POST", "/nodes/n1/stopall", timeout=1) == "OK"
        assert not any(guest.running for guest in guests.values())

    run_scenario(scenario)


def test_migrateall() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim, 100, 101)
        assert await sim.run_task("POST", "/nodes/n1/qemu/100/status/start") == "OK"
        form = {"target": "n2", "maxworkers": 2}
        assert await sim.run_task("POST", "/nodes/n1/migrateall", **form) == "OK"
        assert {guest.node for guest in sim.region.guests.values()} == {"n2"}
        answer = await sim.send("POST", "/nodes/n1/migrateall", target="n1")
        assert answer.json()["errors"] == {"target": "target is local node."}

    run_scenario(scenario)


def test_permissions_of_bulk_actions() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        joe = {"authorization": "PVEAPIToken=joe@pve!full=s"}
        answer = await sim.send("POST", "/nodes/n1/startall", headers=joe)
        assert answer.reason == "Permission check failed (/, VM.PowerMgmt)"
        answer = await sim.send("POST", "/nodes/n1/startall", headers=joe, vms="100")
        assert answer.reason == "Permission check failed (/vms/100, VM.PowerMgmt)"

    run_scenario(scenario)


def test_backup_jobs_cover_guests() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim, 100, 101)
        job = {"id": "nightly", "vmid": "100", "storage": "local", "schedule": "02:00"}
        await sim.request("POST", "/cluster/backup", **job)
        missing = await sim.request("GET", "/cluster/backup-info/not-backed-up")
        assert [row["vmid"] for row in missing] == [101]
        await sim.request("PUT", "/cluster/backup/nightly", all=1, delete="vmid")
        assert await sim.request("GET", "/cluster/backup-info/not-backed-up") == []
        await sim.request("DELETE", "/cluster/backup/nightly")
        assert await sim.request("GET", "/cluster/backup") == []

    run_scenario(scenario)


@pytest.mark.parametrize(
    "form, text",
    [
        pytest.param({"realm": "pve", "type": "ldap"}, "domain 'pve' already exists", id="taken"),
        pytest.param({"realm": "mine", "type": "pam"}, "unable to create builtin type 'pam'",
                     id="builtin"),
        pytest.param({"realm": "mine", "type": "openid"},
                     "missing value for required option 'issuer-url'", id="incomplete"),
    ],
)  # fmt: skip
def test_rejected_realms(form: dict[str, Any], text: str) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        answer = await sim.send("POST", "/access/domains", **form)
        assert (answer.status, answer.reason) == (500, f"add auth server failed: {text}")

    run_scenario(scenario)


@pytest.mark.parametrize(
    "form, expected",
    [
        pytest.param({"type": "dir", "path": "/x", "server": "a"}, "unexpected property 'server'",
                     id="an option of another type"),
        pytest.param({"type": "nfs", "server": "a"}, "missing value for required option 'export'",
                     id="a missing option"),
        pytest.param({"type": "lvmthin", "vgname": "v", "thinpool": "t", "content": "iso"},
                     "storage does not support content type 'none'", id="nothing it can hold"),
        pytest.param({"type": "lvmthin", "vgname": "v", "thinpool": "t", "content": "iso,images"},
                     "images", id="only what it can hold"),
    ],
)  # fmt: skip
def test_a_storage_definition(form: dict[str, Any], expected: str) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        answer = await sim.send("POST", "/storage", storage="new", **form)
        if answer.status == 200:
            assert (await sim.request("GET", "/storage/new"))["content"] == expected
        else:
            assert answer.reason == expected

    run_scenario(scenario)


def test_a_fixed_option_cannot_be_changed() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        form = {"storage": "nas", "type": "nfs", "server": "a", "export": "/e"}
        await sim.request("POST", "/storage", **form)
        answer = await sim.send("PUT", "/storage/nas", server="b")
        text = "update storage failed: can't change value of fixed parameter 'server'"
        assert answer.reason == text

    run_scenario(scenario)
