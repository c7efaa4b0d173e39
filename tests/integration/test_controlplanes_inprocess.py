"""Control planes in the process pass the tests of all runners."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from moxwell.clock import SystemClock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlane
from moxwell.embedded.controlplanes.inprocess import InProcessControlPlanes
from moxwell.embedded.ports import free_port
from moxwell.testing.control_planes_contract import ControlPlanesContract, Stage

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("in-process control planes"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planes")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(root: Path) -> AsyncIterator[Stage]:
    clock = SystemClock()

    def opened() -> InProcessControlPlanes:
        return InProcessControlPlanes(root, clock, new_port=free_port, address=made.address)

    made = Stage(opened, clock, "v1.34.1", "v1.35.0")
    await made.begin()
    yield made
    await made.end()


class TestInProcessControlPlanes(ControlPlanesContract):
    @pytest.fixture(autouse=True)
    def _remember(self, root: Path) -> None:
        self._root = root

    async def check_destroyed(self, stage: Stage, plane: HostedControlPlane) -> None:
        assert not (self._root / "team" / "d").exists()
