"""Replication jobs: what can be replicated, and what changes are refused."""

import pytest

from support.simulator_session import SimulatorSession, run_session

JOBS = "/cluster/replication"
Form = dict[str, str]

CREATED: list[tuple[str, Form, Form, str]] = [
    ("ZFS", {"scsi0": "tank:1"}, {}, ""),
    ("a local directory", {"scsi0": "tank:1", "scsi1": "local:1"}, {},
     "missing replicate feature on volume 'local:100/vm-100-disk-0.raw'"),
    ("a volume that stays out", {"scsi0": "tank:1", "scsi1": "local:1,replicate=0"}, {}, ""),
    ("a shared storage only", {"scsi0": "shared:1"}, {}, "No replicatable volumes found"),
    ("another source", {"scsi0": "tank:1"}, {"source": "n2"},
     "Source 'n2' does not match current node of guest '100' (n1)"),
    ("the same node", {"scsi0": "tank:1"}, {"target": "n1"},
     "Source and target must not be identical"),
]  # fmt: skip


@pytest.mark.parametrize("case", CREATED, ids=[case[0] for case in CREATED])
def test_what_can_be_replicated(case: tuple[str, Form, Form, str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(**case[1])
        form = {"id": "100-0", "type": "local", "target": "n2"} | case[2]
        answer = await sim.post(JOBS, **form)
        assert (answer.status, answer.message) == (500 if case[3] else 200, case[3])
        assert len(await sim.get(JOBS)) == int(not case[3])

    run_session(body)


def test_changes_and_removal() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="tank:1")
        form = {"type": "local", "target": "n2"}
        assert (await sim.post(JOBS, id="100-0", **form)).status == 200
        answer = await sim.post(JOBS, id="100-1", **form)
        wanted = "replication job for guest '100' to target 'n2' already exists"
        assert answer.message == wanted
        for change, text in (
            ({"delete": "target"}, "unable to delete required option 'target'"),
            ({"delete": "nosuch"}, "no such option 'nosuch'"),
            ({"comment": "x", "digest": "0" * 40},
             "detected modified configuration - file changed by other user? Try again."),
        ):  # fmt: skip
            assert (await sim.put(f"{JOBS}/100-0", **change)).message == text
        answer = await sim.request("DELETE", "/nodes/n1/qemu/100")
        assert answer.message == (
            "There is a replication job '100-0' for guest '100' - Please remove that first."
        )
        assert (await sim.request("DELETE", f"{JOBS}/100-9", {"force": "1"})).status == 200
        assert (await sim.request("DELETE", f"{JOBS}/100-9")).message == "no such job '100-9'"
        assert (await sim.request("DELETE", f"{JOBS}/100-0", {"force": "1"})).status == 200
        assert await sim.get(JOBS) == []

    run_session(body)


def test_a_migration_uses_the_replica_and_turns_the_job() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="tank:10")
        await sim.post(JOBS, id="100-0", type="local", target="n2")
        await sim.clock.sleep(61)
        before = sim.clock.monotonic()
        ended = await sim.run_task("POST", "/nodes/n1/qemu/100/migrate", target="n2")
        assert ended.status == "OK"
        assert sim.clock.monotonic() - before < 5  # nothing is copied again
        assert (await sim.config(node="n2"))["scsi0"] == "tank:vm-100-disk-0,size=10G"
        job = (await sim.get(JOBS))[0]
        assert (job["source"], job["target"]) == ("n2", "n1")
        rows = await sim.get("/nodes/n1/storage/tank/content")
        assert [row["volid"] for row in rows] == ["tank:vm-100-disk-0"]

    run_session(body)


def test_a_job_runs_on_its_schedule_and_repeats_what_failed() -> None:
    async def body(sim: SimulatorSession) -> None:
        async def state() -> tuple[int, int, int]:
            row = await sim.get("/nodes/n1/replication/100-0/status")
            now = int(sim.clock.now().timestamp())
            return row["fail_count"], now - row["last_sync"], row["next_sync"] - now

        await sim.vm(scsi0="tank:1")
        await sim.post(JOBS, id="100-0", type="local", target="n2", schedule="*/10")
        assert (await sim.get("/nodes/n1/replication/100-0/status"))["last_sync"] == 0
        await sim.clock.sleep(1230)
        fails, age, wait = await state()
        assert (fails, 0 <= age <= 600, 0 < wait <= 600) == (0, True, True)
        sim.region.hosts["n2"].online = False
        await sim.clock.sleep(600)
        fails, age, _ = await state()
        assert (fails, age >= 600) == (1, True)
        sim.region.hosts["n2"].online = True
        await sim.clock.sleep(301)
        fails, age, _ = await state()
        assert (fails, age <= 301) == (0, True)

    run_session(body)
