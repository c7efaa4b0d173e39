"""Control planes in the process pass the tests of all runners."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from moxwell.api import registry
from moxwell.api.karpenter.annotations import WARM_POOL
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.clock import SystemClock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlane
from moxwell.embedded.ports import free_port
from moxwell.errors import MoxwellError
from moxwell.testing.control_planes_contract import ControlPlanesContract, Stage, client
from moxwell.testing.inprocess_control_planes import InProcessControlPlanes
from support.cluster_api_run import install_crds

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("in-process control planes"),
]


NODE_CLASSES = "proxmoxnodeclasses"


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


async def test_a_tenant_cannot_set_an_annotation_of_node_classes_that_means_nothing(
    stage: Stage,
) -> None:
    plane = await stage.up(stage.spec("a"))
    async with client(plane, stage.clock) as kube:
        crds = (c for c in registry.make_karpenter_crds() if NODE_CLASSES in c["metadata"]["name"])
        await install_crds(kube, list(crds))
        body = {
            "apiVersion": ProxmoxNodeClass.resource.api_version,
            "kind": ProxmoxNodeClass.resource.kind,
            "metadata": {"name": "default", "annotations": {WARM_POOL: "many"}},
            "spec": {"instanceTemplateRef": {"kind": "ProxmoxUnmanagedTemplate", "name": "u"}},
        }
        with pytest.raises(MoxwellError, match=r"annotations\[moxwell.dev/warm-pool\].*0 to 20"):
            await kube.create(body, ProxmoxNodeClass.resource)
        body["metadata"] = {"name": "default", "annotations": {WARM_POOL: "2"}}
        await kube.create(body, ProxmoxNodeClass.resource)
        await kube.delete(ProxmoxNodeClass, "default")
