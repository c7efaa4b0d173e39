"""
Crash tests of machine groups: killed after any write of a rolling update or a cluster deletion.

The program is that of lab and standalone mode: the infrastructure controllers and the embedded
Cluster API. The API server with its nodes, the regions and the guests survive.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.ipam import IPAddress, IPAddressClaim
from moxwell.runtime.manager import Manager
from moxwell.testing.effect_counter import EffectCounter, Ending
from moxwell.testing.embedded_environment import (
    EmbeddedEnvironment,
    create_environment,
    create_program,
)
from moxwell.testing.machine_stories import NODES, begin, cores_of
from moxwell.testing.reconcile import ENDINGS, crash_after_each_effect
from moxwell.testing.region_contents import contents_diff

pytestmark = pytest.mark.slow
QUIET = 130.0
PARTS = 2


@dataclass
class MachineGroup:
    """A group of machines with nodes exists before the story begins."""

    count: int = 1
    known: set[str] = field(default_factory=set)

    async def world(self) -> EmbeddedEnvironment:
        world = await create_environment()
        life = create_program(world)
        running = asyncio.create_task(life.run())
        await begin(world.stage, self.count)
        self.known = {m.uid for m in await world.stage.with_nodes(self.count)}
        life.stop()
        await running
        return world

    def program(self, world: EmbeddedEnvironment, wires: EffectCounter) -> Manager:
        return create_program(world, wires)

    async def made(self, world: EmbeddedEnvironment) -> int:
        """The number of guests created so far."""
        tasks = [
            t for runtime in world.engine.runtimes.values() for t in runtime.region.tasks.values()
        ]
        return sum(t.type == "qmclone" and t.exitstatus == "OK" for t in tasks)


@dataclass
class RollMachineGroup(MachineGroup):
    """A rolling update replaces each machine by exactly one."""

    async def act(self, world: EmbeddedEnvironment) -> None:
        await world.stage.change_template("RollingUpdate")

    async def check(self, world: EmbeddedEnvironment) -> None:
        env = world.stage
        machines = await env.with_nodes(self.count)
        assert not self.known & {m.uid for m in machines}
        assert {m.spec.num_cores for m in await env.guests()} == {cores_of("w2")}
        assert await self.made(world) == 2 * self.count
        ours = {(m.spec.region, m.spec.virtual_machine_id) for m in await env.guests()}
        assert ours == {(r, v) for r, found in env.vmids().items() for v in found}
        for region, before in env.before.items():
            new = contents_diff(before, env.contents()[region])
            ids = [str(v) for r, v in ours if r == region]
            assert all(n.split()[0] in {"guest", "volume"} for n in new), new
            assert all(any(i in n for i in ids) for n in new), new
        names = {m.name for m in machines}
        assert {n["metadata"]["name"] for n in (await env.kube.list(NODES)).items} == names
        assert len((await env.kube.list(IPAddress, "default")).items) == self.count
        await world.close()


@dataclass
class DeleteCluster(MachineGroup):
    """Delete the Cluster with its machines, pools and addresses."""

    async def act(self, world: EmbeddedEnvironment) -> None:
        await world.stage.kube.delete(Cluster, "c", "default")

    async def check(self, world: EmbeddedEnvironment) -> None:
        env = world.stage
        kinds: tuple[Any, ...] = (Cluster, Machine, IPAddress, IPAddressClaim)
        for kind in kinds:
            assert (await env.kube.list(kind, "default")).items == (), kind
        for region, before in env.before.items():
            assert contents_diff(before, env.contents()[region]) == {}, region
        assert await self.made(world) == self.count
        await world.close()


STORIES = [
    pytest.param(lambda: RollMachineGroup(1), id="rolled to a new template"),
    pytest.param(lambda: DeleteCluster(1), id="deleted with its cluster"),
]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("story", STORIES)
def test_after_any_effect(story: Any, ending: Ending, part: int) -> None:
    crash_after_each_effect(story(), quiet_seconds=QUIET, ending=ending, part=(part, PARTS))
