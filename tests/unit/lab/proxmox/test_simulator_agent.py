"""The GuestOs interface, the built-in guest and the guest agent endpoints."""

from pathlib import Path
from typing import Any

import pytest

from moxwell.lab.proxmox import state_file
from moxwell.lab.proxmox.builtin_shell import ShellEnvironment, run
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.guest import GuestAgentNotRunning, GuestVm
from moxwell.lab.proxmox.message import SimRequest
from moxwell.testing.loop import LoopClock, run_virtual
from support.simulator_session import SimulatorSession, run_session

VM = "/nodes/n1/qemu/100"
ARGS = "-kernel /guest/vmlinuz -initrd /guest/guest.img -append quiet"


class Recorder:
    """A GuestOs that records its calls."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.views: list[GuestVm] = []

    async def booted(self, vm: GuestVm) -> None:
        self.views.append(vm)
        self.events.append(("booted", vm.name))

    async def stopped(self, region: str, vmid: int) -> None:
        self.events.append(("stopped", vmid))

    async def agent(self, vm: GuestVm, command: str, args: dict[str, Any]) -> Any:
        if command == "get-host-name":
            return {"host-name": vm.name}
        if command in ("ping", "shutdown"):
            return {}
        raise GuestAgentNotRunning

    def handles_shutdown(self, vm: GuestVm) -> bool:
        return True


def test_the_guest_os_is_notified_of_boot_and_stop() -> None:
    guest_os = Recorder()

    async def body(sim: SimulatorSession) -> None:
        await sim.vm(name="one", agent="1")
        await sim.run_task("POST", f"{VM}/status/start")
        assert guest_os.events == []
        await sim.clock.sleep(6)
        assert guest_os.events == [("booted", "one")]
        answer = await sim.get(f"{VM}/agent/get-host-name")
        assert answer == {"result": {"host-name": "one"}}
        ended = await sim.run_task("POST", f"{VM}/status/shutdown", timeout="30")
        assert ended.status == "OK"
        assert ended.seconds == pytest.approx(1)
        assert guest_os.events[-1] == ("stopped", 100)

    run_session(body, guest_os=guest_os)


def test_a_guest_stopped_before_its_boot_time_never_boots() -> None:
    guest_os = Recorder()

    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        await sim.run_task("POST", f"{VM}/status/start")
        await sim.run_task("POST", f"{VM}/status/stop")
        await sim.clock.sleep(60)
        assert guest_os.events == [("stopped", 100)]

    run_session(body, guest_os=guest_os)


def test_a_guest_reads_its_media() -> None:
    guest_os = Recorder()

    async def body(sim: SimulatorSession) -> None:
        await sim.vm(name="web", ide2="shared:cloudinit", ciuser="core", ide3="none,media=cdrom")
        await sim.run_task("POST", f"{VM}/status/start")
        await sim.clock.sleep(6)
        (vm,) = guest_os.views
        disc = vm.media("ide2")
        assert disc is not None
        assert b"hostname: web" in disc
        assert b"CD001" in disc
        assert vm.media("ide3") is None
        vm.power_off()
        await sim.clock.sleep(1)
        assert (await sim.get(f"{VM}/status/current"))["status"] == "stopped"

    run_session(body, guest_os=guest_os)


def test_a_running_guest_boots_after_a_restart_of_the_simulator(tmp_path: Path) -> None:
    async def first(sim: SimulatorSession) -> None:
        await sim.vm(name="one", scsi0="shared:1")
        await sim.run_task("POST", f"{VM}/status/start")
        state_file.save_file(sim.regions, tmp_path / "state.json")

    guest_os = Recorder()

    async def second() -> None:
        engine = Engine(
            state_file.load_file(tmp_path / "state.json"), LoopClock(), guest_os=guest_os
        )
        await engine.handle("r1", SimRequest("GET", ("version",)))
        await LoopClock().sleep(60)
        assert guest_os.events == [("booted", "one")]
        await engine.close()

    run_session(first)
    run_virtual(second())


SILENT = [
    ("not configured", {}, False, "No QEMU guest agent configured"),
    ("not running", {"agent": "1"}, False, "VM 100 is not running"),
    ("silent", {"agent": "1"}, True, "QEMU guest agent is not running"),
]


@pytest.mark.parametrize("case", SILENT, ids=[case[0] for case in SILENT])
def test_an_agent_that_cannot_answer(case: tuple[str, dict[str, str], bool, str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(**case[1])
        if case[2]:
            await sim.run_task("POST", f"{VM}/status/start")
        before = sim.clock.monotonic()
        answer = await sim.post(f"{VM}/agent/ping")
        assert (answer.status, answer.message) == (500, case[3])
        assert sim.clock.monotonic() - before == (3 if case[2] else 0)

    run_session(body)


async def boot(sim: SimulatorSession) -> None:
    await sim.vm(agent="1", args=ARGS, net0="virtio=BC:24:11:00:97:30,bridge=vmbr0")
    await sim.run_task("POST", f"{VM}/status/start")
    await sim.clock.sleep(6)


def test_the_built_in_guest_answers() -> None:
    async def body(sim: SimulatorSession) -> None:
        await boot(sim)
        rows = (await sim.get(f"{VM}/agent/network-get-interfaces"))["result"]
        assert rows[1]["hardware-address"] == "bc:24:11:00:97:30"
        assert (await sim.get(f"{VM}/agent/get-osinfo"))["result"]["id"] == "guest"
        answer = await sim.post(f"{VM}/agent", command="get-host-name")
        assert answer.data == {"result": {"host-name": "guest1"}}

    run_session(body)


ANSWERS: list[tuple[str, str, object]] = [
    ("POST", "fsfreeze-freeze", 0),
    ("POST", "fsfreeze-status", "thawed"),
    ("POST", "fsfreeze-thaw", 0),
    ("POST", "fstrim", {"paths": []}),
    ("GET", "get-memory-blocks",
     [{"phys-index": n, "online": True, "can-offline": True} for n in range(4)]),
    ("POST", "suspend-ram",
     {"error": {"class": "GenericError",
                "desc": "The command guest-suspend-ram has not been found"}}),
]  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS, ids=[case[1] for case in ANSWERS])
def test_the_answer_of_a_simple_command_is_its_result(case: tuple[str, str, object]) -> None:
    """Errors too: only commands with parameters fail with them."""

    async def body(sim: SimulatorSession) -> None:
        await boot(sim)
        method, command, result = case
        answers = [
            await sim.request(method, f"{VM}/agent/{command}"),
            await sim.post(f"{VM}/agent", command=command),
        ]
        assert [(a.status, a.data) for a in answers] == [(200, {"result": result})] * 2

    run_session(body)


def test_a_command_runs_and_its_result_is_read_once() -> None:
    async def body(sim: SimulatorSession) -> None:
        await boot(sim)
        answer = await sim.post(f"{VM}/agent/exec", command=["sh", "-c", "sleep 3; echo hi"])
        path, pid = f"{VM}/agent/exec-status", str(answer.data["pid"])
        assert await sim.get(path, pid=pid) == {"exited": 0}
        await sim.clock.sleep(4)
        assert await sim.get(path, pid=pid) == {
            "exited": 1,
            "exitcode": 0,
            "out-data": "hi\n",
            "out-truncated": 0,
        }
        again = await sim.request("GET", path, {"pid": pid})
        assert again.message == "Agent error: Invalid parameter 'pid'"

    run_session(body)


def test_a_paused_guest_has_no_agent() -> None:
    async def body(sim: SimulatorSession) -> None:
        await boot(sim)
        await sim.run_task("POST", f"{VM}/status/suspend")
        assert (await sim.post(f"{VM}/agent/ping")).message == "QEMU guest agent is not running"
        await sim.run_task("POST", f"{VM}/status/resume")
        assert (await sim.post(f"{VM}/agent/ping")).status == 200

    run_session(body)


def test_a_reboot_applies_what_was_pending() -> None:
    async def body(sim: SimulatorSession) -> None:
        await boot(sim)
        await sim.put(f"{VM}/config", memory="1024")
        assert (await sim.run_task("POST", f"{VM}/status/reboot")).status == "OK"
        assert (await sim.get(f"{VM}/config", current="1"))["memory"] == "1024"
        assert (await sim.get(f"{VM}/status/current"))["status"] == "running"

    run_session(body)


def test_the_privileges_of_version_9() -> None:
    async def body(sim: SimulatorSession) -> None:
        await boot(sim)
        await sim.post("/access/roles", roleid="Peek", privs="VM.GuestAgent.Audit")
        await sim.post("/access/users", userid="a@pve")
        await sim.put("/access/acl", path="/vms", users="a@pve", roles="Peek")
        secret = (await sim.post("/access/users/a@pve/token/tt", privsep="0")).data["value"]
        token = f"a@pve!tt={secret}"
        assert (await sim.request("POST", f"{VM}/agent/ping", token=token)).status == 200
        answer = await sim.request("POST", f"{VM}/agent/exec", {"command": ["echo"]}, token=token)
        assert answer.message == ("Permission check failed (/vms/100, VM.GuestAgent.Unrestricted)")

    run_session(body, "9.2.11")


SHELL: list[tuple[str, str, bytes, bytes, int]] = [
    ("a sequence", "echo a; echo b", b"a\nb\n", b"", 0),
    ("to the error stream", "echo a >&2; exit 3", b"", b"a\n", 3),
    ("and", "false && echo a", b"", b"", 1),
    ("or", "false || echo a", b"a\n", b"", 0),
    ("a file", "echo a > /tmp/x; cat /tmp/x", b"a\n", b"", 0),
    ("no file", "cat /tmp/y", b"", b"cat: can't open '/tmp/y': No such file or directory\n", 1),
    ("no command", "nosuch", b"", b"sh: nosuch: not found\n", 127),
    ("bytes", "head -c 3 /dev/zero", b"\0\0\0", b"", 0),
]


@pytest.mark.parametrize("case", SHELL, ids=[case[0] for case in SHELL])
def test_the_builtin_shell(case: tuple[str, str, bytes, bytes, int]) -> None:
    found = run(ShellEnvironment(), ["sh", "-c", case[1]])
    assert (found.out, found.err, found.code) == case[2:]


def test_a_script_can_kill_itself() -> None:
    assert run(ShellEnvironment(), ["sh", "-c", "kill -9 $$; echo no"], pid=7).signal == 9
