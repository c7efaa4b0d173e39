"""Every fault, and what comes of it on the wire."""

from typing import Any

import pytest
from sim_bench import Bench, tell

from moxwell.errors import Invalid, Missing
from moxwell.lab.proxmox import chaos
from moxwell.lab.proxmox.control_api import Control, make_fault
from moxwell.lab.proxmox.fault_injection import Fault


async def make(bench: Bench, vmid: int = 100, node: str = "n1", **conf: Any) -> None:
    form = {"vmid": vmid, "name": f"vm{vmid}", "memory": 64, **conf}
    assert await bench.done("POST", f"/nodes/{node}/qemu", **form) == "OK"


def add(bench: Bench, **fault: Any) -> None:
    bench.engine.faults["r"].add(Fault(**fault))


def do(bench: Bench, what: str, **args: Any) -> None:
    chaos.perform(bench.engine.desks["r"], what, args)


def test_latency() -> None:
    async def story(bench: Bench) -> None:
        add(bench, kind="latency", seconds=7)
        await bench.ask("GET", "/version")
        assert bench.clock.monotonic() == pytest.approx(7)

    tell(story)


@pytest.mark.parametrize(
    "kind, happened",
    [
        pytest.param("cut-before", False, id="cut before the effect"),
        pytest.param("cut-after", True, id="cut after the effect"),
    ],
)
def test_a_cut_connection(kind: str, happened: bool) -> None:
    async def story(bench: Bench) -> None:
        add(bench, kind=kind, method="POST", path="/pools", times=1)
        assert (await bench.send("POST", "/pools", poolid="p")).cut
        assert ("p" in bench.region.pools) is happened
        assert (await bench.send("GET", "/pools")).status == 200

    tell(story)


@pytest.mark.parametrize(
    "status, text, body",
    [
        pytest.param(503, "busy", True, id="503"),
        pytest.param(595, "Connection refused", False, id="595 has no body"),
        pytest.param(596, "Connection timed out", False, id="596 has no body"),
    ],
)
def test_a_status(status: int, text: str, body: bool) -> None:
    async def story(bench: Bench) -> None:
        add(bench, kind="status", status=status, text=text, path="/version", times=2)
        for _ in range(2):
            answer = await bench.send("GET", "/version")
            assert (answer.status, answer.reason, bool(answer.body)) == (status, text, body)
        assert (await bench.send("GET", "/version")).status == 200

    tell(story)


def test_chance_is_seeded() -> None:
    async def story(bench: Bench) -> None:
        add(bench, kind="status", chance=0.5)
        seen = [(await bench.send("GET", "/version")).status for _ in range(20)]
        assert set(seen) == {200, 500}
        other = Bench()
        add(other, kind="status", chance=0.5)
        assert [(await other.send("GET", "/version")).status for _ in range(20)] == seen

    tell(story)


def test_a_task_that_fails() -> None:
    async def story(bench: Bench) -> None:
        add(bench, kind="task-fail", task="qmcreate", text="no space left on device", times=1)
        first = await bench.done("POST", "/nodes/n1/qemu", vmid=100)
        assert first == "no space left on device"
        assert await bench.done("POST", "/nodes/n1/qemu", vmid=101) == "OK"

    tell(story)


def test_a_task_that_starts_late() -> None:
    async def story(bench: Bench) -> None:
        add(bench, kind="task-slow", task="qmcreate", seconds=30)
        assert await bench.done("POST", "/nodes/n1/qemu", vmid=100) == "OK"
        assert bench.clock.monotonic() >= 30

    tell(story)


def test_a_slow_clone() -> None:
    async def story(bench: Bench) -> None:
        await make(bench, scsi0="shared:4")
        do(bench, "pace", bandwidth=64 << 20)
        before = bench.clock.monotonic()
        path = "/nodes/n1/qemu/100/clone"
        assert await bench.done("POST", path, newid=101, full=1) == "OK"
        assert bench.clock.monotonic() - before == pytest.approx(64, rel=0.1)

    tell(story)


def test_a_lock_that_is_left_over() -> None:
    async def story(bench: Bench) -> None:
        await make(bench)
        do(bench, "lock", vmid=100, lock="backup")
        answer = await bench.send("PUT", "/nodes/n1/qemu/100/config", cores=2)
        assert (answer.status, answer.reason) == (500, "VM is locked (backup)")
        do(bench, "lock", vmid=100, lock="")
        assert (await bench.send("PUT", "/nodes/n1/qemu/100/config", cores=2)).status == 200

    tell(story)


def test_a_lock_file_that_is_held() -> None:
    async def story(bench: Bench) -> None:
        await make(bench)
        do(bench, "hold-file", vmid=100, seconds=15)
        await bench.pause(0)
        answer = await bench.send("PUT", "/nodes/n1/qemu/100/config", cores=2)
        assert "got timeout" in answer.reason

    tell(story)


def test_a_full_storage() -> None:
    async def story(bench: Bench) -> None:
        do(bench, "fill-storage", storage="thick", left=1 << 20)
        status = await bench.ask("GET", "/nodes/n1/storage/thick/status")
        assert status["avail"] == 1 << 20
        form: dict[str, Any] = {"vmid": 100, "filename": "", "size": "1G"}
        path = "/nodes/n1/storage/thick/content"
        assert (await bench.send("POST", path, **form)).status == 500
        do(bench, "free-storage", storage="thick")
        assert (await bench.send("POST", path, **form)).status == 200

    tell(story)


def test_a_stranger_takes_a_vmid() -> None:
    async def story(bench: Bench) -> None:
        do(bench, "take-vmid", vmid=100)
        answer = await bench.send("POST", "/nodes/n1/qemu", vmid=100)
        assert answer.status == 500
        with pytest.raises(Invalid):
            do(bench, "take-vmid", vmid=100)

    tell(story)


def test_a_guest_is_deleted_behind_our_back() -> None:
    async def story(bench: Bench) -> None:
        await make(bench, scsi0="local:1")
        do(bench, "delete-guest", vmid=100)
        answer = await bench.send("GET", "/nodes/n1/qemu/100/config")
        assert "does not exist" in answer.reason
        assert await bench.ask("GET", "/nodes/n1/storage/local/content") == []

    tell(story)


def test_a_guest_is_moved_behind_our_back() -> None:
    async def story(bench: Bench) -> None:
        await make(bench, scsi0="local:1")
        do(bench, "move-guest", vmid=100, node="n2")
        assert (await bench.send("GET", "/nodes/n1/qemu/100/config")).status == 500
        assert (await bench.send("GET", "/nodes/n2/qemu/100/config")).status == 200
        assert len(await bench.ask("GET", "/nodes/n2/storage/local/content")) == 1

    tell(story)


def test_a_stale_list() -> None:
    async def story(bench: Bench) -> None:
        do(bench, "stale", seconds=60)
        await make(bench)
        await bench.pause(50)
        (row,) = await bench.ask("GET", "/cluster/resources", type="vm")
        assert row["status"] == "unknown"
        await bench.pause(25)
        (row,) = await bench.ask("GET", "/cluster/resources", type="vm")
        assert row["status"] == "stopped"

    tell(story)


def test_a_silent_agent() -> None:
    async def story(bench: Bench) -> None:
        await make(bench, agent=1)
        assert await bench.done("POST", "/nodes/n1/qemu/100/status/start") == "OK"
        do(bench, "silence-agent", vmid=100)
        answer = await bench.send("POST", "/nodes/n1/qemu/100/agent/ping")
        assert answer.reason == "QEMU guest agent is not running"
        do(bench, "wake-agent", vmid=100)

    tell(story)


def test_a_host_comes_back_and_starts_what_is_to_start() -> None:
    async def story(bench: Bench) -> None:
        await make(bench, 100, "n2", onboot=1)
        do(bench, "host-down", node="n2")
        do(bench, "host-up", node="n2")
        await bench.pause(5)
        assert bench.region.guests[100].running

    tell(story)


def test_the_control_api() -> None:
    async def story(bench: Bench) -> None:
        control = Control(bench.engine)
        assert control.handle("GET", (), {})["regions"] == ["r"]
        fault = {"kind": "status", "status": 503, "text": "busy"}
        assert control.handle("POST", ("r", "faults"), fault) == {"id": 1}
        assert (await bench.send("GET", "/version")).status == 503
        (listed,) = control.handle("GET", ("r", "faults"), {})
        assert (listed["kind"], listed["hits"]) == ("status", 1)
        control.handle("DELETE", ("r", "faults", "1"), {})
        assert (await bench.send("GET", "/version")).status == 200
        control.handle("POST", ("r", "do", "take-vmid"), {"vmid": 100})
        (guest,) = control.handle("GET", ("r", "guests"), {})
        assert guest["vmid"] == 100
        for path in (("x",), ("r", "nope"), ("r", "do", "nope")):
            with pytest.raises((Missing, Invalid)):
                control.handle("POST", path, {})

    tell(story)


@pytest.mark.parametrize(
    "body, text",
    [
        pytest.param({}, "needs a kind", id="no kind"),
        pytest.param({"kind": "flood"}, "unknown fault kind", id="unknown kind"),
        pytest.param({"kind": "latency", "sec": 1}, "has no 'sec'", id="unknown field"),
        pytest.param({"kind": "latency", "path": "("}, "bad pattern", id="bad pattern"),
    ],
)
def test_a_bad_fault_is_refused(body: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        make_fault(body)
