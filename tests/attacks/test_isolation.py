"""One tenant's API server that dies, hangs or takes too much memory costs that tenant only."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from moxwell.app.lab_process import LabConfig, LabProcess
from moxwell.app.state_dir import StateDir
from moxwell.clock import SystemClock
from moxwell.embedded.controlplanes.control_planes import python_environ
from moxwell.embedded.controlplanes.processes.control_planes import PROGRAM, ProcessControlPlanes
from moxwell.embedded.controlplanes.supervision.process import Processes, find
from moxwell.embedded.controlplanes.supervision.supervisor import Program, Supervisor
from moxwell.embedded.ports import free_port
from moxwell.runtime.key import Key
from moxwell.testing.control_planes_contract import CONFIG_MAPS, Stage, client, config_map
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.processes import FakeProcesses

pytestmark = pytest.mark.xdist_group("isolation of tenants")
in_module_loop = pytest.mark.asyncio(loop_scope="module")
A = Key("team", "a")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    root, clock = tmp_path_factory.mktemp("tenants"), SystemClock()

    def opened() -> ProcessControlPlanes:
        processes = Processes(clock, python_environ(os.environ))
        return ProcessControlPlanes(root, clock, processes=processes, new_port=free_port)

    made = Stage(opened, clock, "v1.34.1", "v1.35.0")
    await made.begin()
    yield made
    await made.end()


@in_module_loop
@pytest.mark.parametrize(
    "number, message",
    [
        pytest.param(signal.SIGKILL, "was killed by SIGKILL", id="kill -9"),
        pytest.param(signal.SIGSEGV, "was killed by SIGSEGV", id="a segmentation fault"),
    ],
)
async def test_a_dead_tenant_api_comes_back_and_hurts_nobody(
    stage: Stage, number: signal.Signals, message: str
) -> None:
    runner = stage.runner
    assert isinstance(runner, ProcessControlPlanes)
    victim, other = await stage.up(stage.spec("a")), await stage.up(stage.spec("b"))
    before = runner.state(A)
    async with client(victim, stage.clock) as kube:
        await kube.apply(config_map("kept", message), CONFIG_MAPS, force=True)
    os.kill(before.pid, number)
    async with client(other, stage.clock) as kube:  # answers while the other is away
        assert (await kube.version()).git_version
        while runner.state(A).pid == before.pid:
            assert await kube.get(CONFIG_MAPS, "cluster-info", "kube-public")
    again = await stage.up(stage.spec("a"))
    assert message in again.last_exit
    assert (again.port, again.ca) == (victim.port, victim.ca)
    assert runner.state(A).restarts == before.restarts + 1
    async with client(again, stage.clock) as kube:
        assert (await kube.get(CONFIG_MAPS, "kept", "default"))["data"] == {"v": message}


ALLOCATE = """
from moxwell.embedded.controlplanes.processes import limits
limits.apply(limits.ProcessLimits(memory=128 << 20))
try:
    block = bytearray(256 << 20)
except MemoryError:
    print("refused")
print(len(bytearray(1 << 20)))
"""


def test_an_allocation_beyond_the_limit_fails_and_the_process_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALLOCATE], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["refused", "1048576"], done.stderr


PARENT = """
import asyncio, os, sys
from pathlib import Path
from moxwell.clock import SystemClock
from moxwell.embedded.controlplanes.control_planes import python_environ
from moxwell.embedded.controlplanes.processes.control_planes import ProcessControlPlanes
from moxwell.embedded.controlplanes.supervision.process import Processes
from moxwell.embedded.ports import free_port
from moxwell.testing.control_planes_contract import Stage

async def main(root):
    clock = SystemClock()
    processes = Processes(clock, python_environ(os.environ))
    planes = ProcessControlPlanes(root, clock, processes=processes, new_port=free_port)
    stage = Stage(lambda: planes, clock, "v1.34.1", "v1.35.0")
    await stage.begin()
    await stage.up(stage.spec("a"))
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


@in_module_loop
async def test_the_processes_end_with_a_killed_daemon(tmp_path: Path) -> None:
    daemon = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert daemon.stdout is not None
    lines = [line async for line in _until(daemon.stdout, b"up\n")]
    assert lines
    child = find(tmp_path / "team" / "a" / f"{PROGRAM}.run")
    assert child is not None
    daemon.kill()
    await daemon.wait()
    await asyncio.wait_for(Processes(SystemClock(), {}).wait(child), 30)
    assert find(tmp_path / "team" / "a" / f"{PROGRAM}.run") is None


async def _until(stream: asyncio.StreamReader, last: bytes) -> AsyncIterator[bytes]:
    async for line in stream:
        yield line
        if line == last:
            return


@in_module_loop
async def test_a_dead_simulator_comes_back_at_the_same_addresses(tmp_path: Path) -> None:
    state = StateDir("isolated", {"XDG_STATE_HOME": str(tmp_path)})
    state.create()
    lab = LabProcess(state, SystemClock(), LabConfig("isolated"))
    before = await lab.start()
    killed = find(state.folder / "lab.run")
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    while (again := find(state.folder / "lab.run")) is None or again == killed:
        await asyncio.sleep(0.1)
    while await lab.probe():
        await asyncio.sleep(0.1)
    assert lab.regions().configs() == before
    await lab.stop()
    assert find(state.folder / "lab.run") is None


def test_too_much_memory_restarts_a_process_and_names_the_limit(tmp_path: Path) -> None:
    async def story() -> str:
        fake, clock = FakeProcesses(), LoopClock()

        async def healthy() -> str:
            return ""

        program = Program(
            name="p", argv=("p",), folder=tmp_path, probe=healthy, memory_limit=64 << 20
        )
        supervisor = Supervisor(fake, clock)
        await supervisor.keep(program)
        await asyncio.sleep(20)
        assert len(fake.started) == 1
        fake.used[next(iter(fake.running))] = 65 << 20
        await asyncio.sleep(20)
        state = supervisor.state(program.key)
        assert len(fake.started) == 2
        assert state.healthy
        await supervisor.stop(program.key)
        return state.last_exit

    message = run_virtual(story())
    assert message == "used 65 MiB of memory, more than its limit of 64 MiB"
