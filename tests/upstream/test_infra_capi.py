"""
Machines under genuine Cluster API: core, kubeadm bootstrap and IPAM provider, Proxmox simulated.

One Kubernetes apiserver is both the management cluster and the cluster that the machines join:
guests read their seed disk, join with the token that the genuine bootstrap provider made, and
become Nodes. The scenes are those of ``moxwell.testing.machine_stories``, one after the
other on one cluster, half of them on another one: two workers share them. The embedded stage tells
the same ones.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest import control_plane, managers
from envtest.control_plane import ControlPlane
from envtest.plugin import CAPI, KUBERNETES, require
from moxwell.kube.client import Kube
from moxwell.lab.proxmox.engine import Engine
from moxwell.testing.machine_stories import STORIES, Story, begin, end
from support.cluster_api_run import run_story
from support.genuine_stage import furnished

pytestmark = [pytest.mark.genuine, pytest.mark.slow]
HALVES = [
    pytest.param(STORIES[0::2], id="one half", marks=pytest.mark.xdist_group("infra capi 1")),
    pytest.param(STORIES[1::2], id="the other half", marks=pytest.mark.xdist_group("infra capi 2")),
]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    require(*KUBERNETES, *CAPI)
    with ControlPlane(tmp_path / "plane") as made:
        made.start("--enable-bootstrap-token-auth=true")
        made.start_controller_manager("--node-monitor-grace-period=25s", "--node-monitor-period=1s")
        control_plane.wait_default_account(made)
        managers.start(made)
        yield made


@pytest.mark.parametrize("scenes", HALVES)
def test_every_scene_under_genuine_cluster_api(
    plane: ControlPlane, scenes: tuple[Story, ...]
) -> None:
    async def tell(kube: Kube, engine: Engine) -> None:
        stage = await furnished(plane, kube, engine)
        await begin(stage)
        for scene in scenes:
            await scene(stage)
        await end(stage)

    run_story(plane, tell)
