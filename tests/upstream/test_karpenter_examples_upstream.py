"""The example manifests of karpenter-provider-proxmox on a genuine control plane."""

import asyncio
from pathlib import Path

import pytest

from envtest.control_plane import ControlPlane
from envtest.plugin import CAPI, KUBERNETES, require
from moxwell.testing import machine_stories
from moxwell.testing.two_regions_world import QUICK
from support.autoscaler_rig import end, rig, start_kubernetes
from support.provider_examples import EXAMPLES, every_example_ends_in_nodes, example_world

pytestmark = [
    pytest.mark.genuine,
    pytest.mark.slow,
    pytest.mark.skipif(
        not EXAMPLES.exists(), reason="the shared manifests of the provider are not here"
    ),
]


def test_every_example_of_the_provider_ends_in_nodes(tmp_path: Path) -> None:
    require(*KUBERNETES, *CAPI)

    async def tell(plane: ControlPlane) -> None:
        async with rig(plane, example_world(QUICK)) as (env, program):
            running = asyncio.create_task(program.run())
            try:
                await every_example_ends_in_nodes(env)
                await machine_stories.end(env.stage)
            finally:
                await end(running)

    with ControlPlane(tmp_path / "plane") as plane:
        start_kubernetes(plane)
        asyncio.run(tell(plane))
