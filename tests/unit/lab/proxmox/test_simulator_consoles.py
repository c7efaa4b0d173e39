"""Consoles, the monitor of QEMU, and Ceph on nodes without it."""

from typing import Any

import pytest

from support.simulator_session import SimulatorSession, run_session

VM = "/nodes/n1/qemu/100"


@pytest.mark.parametrize(
    "version, path, keys",
    [
        pytest.param("8.4.21", f"{VM}/vncproxy", {"cert"}, id="vnc on 8"),
        pytest.param("9.2.11", f"{VM}/vncproxy", {"cert", "password"}, id="vnc on 9"),
        pytest.param("9.2.11", f"{VM}/termproxy", set(), id="a terminal"),
        pytest.param("9.2.11", "/nodes/n1/termproxy", set(), id="a terminal of a node"),
        pytest.param("9.2.11", "/nodes/n1/vncshell", {"cert", "password"}, id="vnc of a node"),
    ],
)
def test_a_console_waits_for_its_client(version: str, path: str, keys: set[str]) -> None:
    async def session(sim: SimulatorSession) -> None:
        await sim.vm(100)
        first, second = await sim.post(path), await sim.post(path)
        assert set(first.data) == {"user", "ticket", "port", "upid"} | keys
        assert (first.data["port"], second.data["port"]) == (5900, 5901)
        runtime = next(iter(sim.engine.runtimes.values()))
        task = await runtime.workers.wait(first.data["upid"])
        assert task.exitstatus is not None
        assert "timed out" in task.exitstatus or "exit code 1" in task.exitstatus
        await runtime.workers.wait(second.data["upid"])
        assert (await sim.post(path)).data["port"] == 5900

    run_session(session, version)


def test_a_console_of_a_missing_guest() -> None:
    async def session(sim: SimulatorSession) -> None:
        answer = await sim.post("/nodes/n1/qemu/999/vncproxy")
        assert answer.message.strip().endswith("qemu-server/999.conf' does not exist")

    run_session(session)


@pytest.mark.parametrize(
    "command, output",
    [
        pytest.param("info status", "VM status: running\r\n", id="status"),
        pytest.param("info name", "one\r\n", id="name"),
        pytest.param("system_reset", "", id="a command without output"),
        pytest.param("fly", "unknown command: 'fly'\r\n", id="an unknown command"),
    ],
)
def test_the_monitor(command: str, output: str) -> None:
    async def session(sim: SimulatorSession) -> None:
        await sim.vm(100, name="one")
        answer = await sim.post(f"{VM}/monitor", command=command)
        assert answer.data == "ERROR: VM 100 not running\n"
        assert (await sim.run_task("POST", f"{VM}/status/start")).status == "OK"
        assert (await sim.post(f"{VM}/monitor", command=command)).data == output

    run_session(session, "9.2.11")


@pytest.mark.parametrize(
    "form, status, message",
    [
        pytest.param({"key": "ctrl-alt-f1"}, 200, "", id="a key"),
        pytest.param({"key": "Ctrl Alt"}, 500, "invalid parameter: Ctrl Alt", id="no key"),
    ],
)
def test_keys(form: dict[str, Any], status: int, message: str) -> None:
    async def session(sim: SimulatorSession) -> None:
        await sim.vm(100)
        stopped = await sim.put(f"{VM}/sendkey", **form)
        assert (stopped.status, stopped.message.strip()) == (500, "VM 100 not running")
        assert (await sim.run_task("POST", f"{VM}/status/start")).status == "OK"
        answer = await sim.put(f"{VM}/sendkey", **form)
        assert (answer.status, answer.message.strip()) == (status, message)

    run_session(session)


@pytest.mark.parametrize(
    "method, path, program",
    [
        ("GET", "/nodes/n1/ceph/status", "ceph-mon"),
        ("POST", "/nodes/n1/ceph/mgr/a", "ceph-mgr"),
        ("GET", "/cluster/ceph/flags", "ceph-mon"),
    ],
)
def test_a_node_without_ceph(method: str, path: str, program: str) -> None:
    async def session(sim: SimulatorSession) -> None:
        answer = await sim.request(method, path)
        text = f"binary not installed: /usr/bin/{program}"
        assert (answer.status, answer.message.strip()) == (500, text)

    run_session(session)
