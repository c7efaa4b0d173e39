"""Every fault kind and every action of the control API."""

from typing import Any

import pytest

from moxwell.errors import Invalid, Missing
from moxwell.lab.proxmox import chaos
from moxwell.lab.proxmox.control_api import ControlApi, make_fault
from moxwell.lab.proxmox.fault_injection import Fault
from support.simulator_cluster import SimulatedCluster, run_scenario


async def make(sim: SimulatedCluster, vmid: int = 100, node: str = "n1", **conf: Any) -> None:
    form = {"vmid": vmid, "name": f"vm{vmid}", "memory": 64, **conf}
    assert await sim.run_task("POST", f"/nodes/{node}/qemu", **form) == "OK"


def add(sim: SimulatedCluster, **fault: Any) -> None:
    sim.engine.faults["r"].add(Fault(**fault))


def do(sim: SimulatedCluster, what: str, **args: Any) -> None:
    chaos.perform(sim.engine.runtimes["r"], what, args)


def test_fault_latency() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        add(sim, kind="latency", seconds=7)
        await sim.request("GET", "/version")
        assert sim.clock.monotonic() == pytest.approx(7)

    run_scenario(scenario)


@pytest.mark.parametrize(
    "kind, happened",
    [
        pytest.param("cut-before", False, id="cut before the effect"),
        pytest.param("cut-after", True, id="cut after the effect"),
    ],
)
def test_fault_cut_connection(kind: str, happened: bool) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        add(sim, kind=kind, method="POST", path="/pools", times=1)
        assert (await sim.send("POST", "/pools", poolid="p")).cut
        assert ("p" in sim.region.pools) is happened
        assert (await sim.send("GET", "/pools")).status == 200

    run_scenario(scenario)


@pytest.mark.parametrize(
    "status, text, body",
    [
        pytest.param(503, "busy", True, id="503"),
        pytest.param(595, "Connection refused", False, id="595 has no body"),
        pytest.param(596, "Connection timed out", False, id="596 has no body"),
    ],
)
def test_fault_status(status: int, text: str, body: bool) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        add(sim, kind="status", status=status, text=text, path="/version", times=2)
        for _ in range(2):
            answer = await sim.send("GET", "/version")
            assert (answer.status, answer.reason, bool(answer.body)) == (status, text, body)
        assert (await sim.send("GET", "/version")).status == 200

    run_scenario(scenario)


def test_randomness_is_seeded() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        add(sim, kind="status", chance=0.5)
        seen = [(await sim.send("GET", "/version")).status for _ in range(20)]
        assert set(seen) == {200, 500}
        other = SimulatedCluster()
        add(other, kind="status", chance=0.5)
        assert [(await other.send("GET", "/version")).status for _ in range(20)] == seen

    run_scenario(scenario)


def test_fault_task_fail() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        add(sim, kind="task-fail", task="qmcreate", text="no space left on device", times=1)
        first = await sim.run_task("POST", "/nodes/n1/qemu", vmid=100)
        assert first == "no space left on device"
        assert await sim.run_task("POST", "/nodes/n1/qemu", vmid=101) == "OK"

    run_scenario(scenario)


def test_fault_task_slow() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        add(sim, kind="task-slow", task="qmcreate", seconds=30)
        assert await sim.run_task("POST", "/nodes/n1/qemu", vmid=100) == "OK"
        assert sim.clock.monotonic() >= 30

    run_scenario(scenario)


def test_action_pace() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim, scsi0="shared:4")
        do(sim, "pace", bandwidth=64 << 20)
        before = sim.clock.monotonic()
        path = "/nodes/n1/qemu/100/clone"
        assert await sim.run_task("POST", path, newid=101, full=1) == "OK"
        assert sim.clock.monotonic() - before == pytest.approx(64, rel=0.1)

    run_scenario(scenario)


def test_action_lock() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim)
        do(sim, "lock", vmid=100, lock="backup")
        answer = await sim.send("PUT", "/nodes/n1/qemu/100/config", cores=2)
        assert (answer.status, answer.reason) == (500, "VM is locked (backup)")
        do(sim, "lock", vmid=100, lock="")
        assert (await sim.send("PUT", "/nodes/n1/qemu/100/config", cores=2)).status == 200

    run_scenario(scenario)


def test_action_hold_file() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim)
        do(sim, "hold-file", vmid=100, seconds=15)
        await sim.pause(0)
        answer = await sim.send("PUT", "/nodes/n1/qemu/100/config", cores=2)
        assert "got timeout" in answer.reason

    run_scenario(scenario)


def test_action_fill_storage() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        do(sim, "fill-storage", storage="thick", left=1 << 20)
        status = await sim.request("GET", "/nodes/n1/storage/thick/status")
        assert status["avail"] == 1 << 20
        form: dict[str, Any] = {"vmid": 100, "filename": "", "size": "1G"}
        path = "/nodes/n1/storage/thick/content"
        assert (await sim.send("POST", path, **form)).status == 500
        do(sim, "free-storage", storage="thick")
        assert (await sim.send("POST", path, **form)).status == 200

    run_scenario(scenario)


def test_action_take_vmid() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        do(sim, "take-vmid", vmid=100)
        answer = await sim.send("POST", "/nodes/n1/qemu", vmid=100)
        assert answer.status == 500
        with pytest.raises(Invalid):
            do(sim, "take-vmid", vmid=100)

    run_scenario(scenario)


def test_action_delete_guest() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim, scsi0="local:1")
        do(sim, "delete-guest", vmid=100)
        answer = await sim.send("GET", "/nodes/n1/qemu/100/config")
        assert "does not exist" in answer.reason
        assert await sim.request("GET", "/nodes/n1/storage/local/content") == []

    run_scenario(scenario)


def test_action_move_guest() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim, scsi0="local:1")
        do(sim, "move-guest", vmid=100, node="n2")
        assert (await sim.send("GET", "/nodes/n1/qemu/100/config")).status == 500
        assert (await sim.send("GET", "/nodes/n2/qemu/100/config")).status == 200
        assert len(await sim.request("GET", "/nodes/n2/storage/local/content")) == 1

    run_scenario(scenario)


def test_action_stale() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        do(sim, "stale", seconds=60)
        await make(sim)
        await sim.pause(50)
        (row,) = await sim.request("GET", "/cluster/resources", type="vm")
        assert row["status"] == "unknown"
        await sim.pause(25)
        (row,) = await sim.request("GET", "/cluster/resources", type="vm")
        assert row["status"] == "stopped"

    run_scenario(scenario)


def test_action_silence_agent() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim, agent=1)
        assert await sim.run_task("POST", "/nodes/n1/qemu/100/status/start") == "OK"
        do(sim, "silence-agent", vmid=100)
        answer = await sim.send("POST", "/nodes/n1/qemu/100/agent/ping")
        assert answer.reason == "QEMU guest agent is not running"
        do(sim, "wake-agent", vmid=100)

    run_scenario(scenario)


def test_action_host_up_starts_onboot_guests() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim, 100, "n2", onboot=1)
        do(sim, "host-down", node="n2")
        do(sim, "host-up", node="n2")
        await sim.pause(5)
        assert sim.region.guests[100].running

    run_scenario(scenario)


def test_the_control_api() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        control = ControlApi(sim.engine)
        assert control.handle("GET", (), {})["regions"] == ["r"]
        fault = {"kind": "status", "status": 503, "text": "busy"}
        assert control.handle("POST", ("r", "faults"), fault) == {"id": 1}
        assert (await sim.send("GET", "/version")).status == 503
        (listed,) = control.handle("GET", ("r", "faults"), {})
        assert (listed["kind"], listed["hits"]) == ("status", 1)
        control.handle("DELETE", ("r", "faults", "1"), {})
        assert (await sim.send("GET", "/version")).status == 200
        control.handle("POST", ("r", "do", "take-vmid"), {"vmid": 100})
        (guest,) = control.handle("GET", ("r", "guests"), {})
        assert guest["vmid"] == 100
        for path in (("x",), ("r", "nope"), ("r", "do", "nope")):
            with pytest.raises((Missing, Invalid)):
                control.handle("POST", path, {})

    run_scenario(scenario)


@pytest.mark.parametrize(
    "body, text",
    [
        pytest.param({}, "'kind' is missing", id="no kind"),
        pytest.param({"kind": "flood"}, "unknown fault kind", id="unknown kind"),
        pytest.param(
            {"kind": "latency", "sec": 1}, "unknown fault field 'sec'", id="unknown field"
        ),
        pytest.param({"kind": "latency", "path": "("}, "invalid pattern", id="bad pattern"),
    ],
)
def test_an_invalid_fault_is_rejected(body: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        make_fault(body)
