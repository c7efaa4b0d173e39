"""Embedded control planes in processes of their own pass the tests of all runners."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from moxwell.clock import SystemClock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlane
from moxwell.embedded.controlplanes.control_planes import python_environ
from moxwell.embedded.controlplanes.processes.control_planes import ProcessControlPlanes
from moxwell.embedded.controlplanes.supervision.process import Processes
from moxwell.embedded.ports import free_port
from moxwell.testing.control_planes_contract import ControlPlanesContract, Stage

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("control planes in processes"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planes")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(root: Path) -> AsyncIterator[Stage]:
    clock = SystemClock()

    def opened() -> ProcessControlPlanes:
        processes = Processes(clock, python_environ(os.environ))
        return ProcessControlPlanes(
            root, clock, processes=processes, new_port=free_port, address=made.address
        )

    made = Stage(opened, clock, "v1.34.1", "v1.35.0")
    await made.begin()
    yield made
    await made.end()


class TestProcessControlPlanes(ControlPlanesContract):
    @pytest.fixture(autouse=True)
    def _remember(self, root: Path) -> None:
        self._root = root

    async def check_destroyed(self, stage: Stage, plane: HostedControlPlane) -> None:
        assert not (self._root / "team" / "d").exists()

    async def test_a_known_endpoint_needs_no_restart(self, stage: Stage) -> None:
        runner = stage.runner
        assert isinstance(runner, ProcessControlPlanes)
        before = await stage.up(stage.spec("a"))
        pid = runner.state(stage.spec("a").key).pid
        changed = stage.spec("a", address=before.host, port=before.port, replicas=2)
        assert (await stage.up(changed)).ready
        assert runner.state(changed.key).pid == pid
