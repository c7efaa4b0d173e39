"""
Groups of machines, ended after any single effect: the rolling kind of change, and the whole end.

The program is what lab and standalone mode run: the infrastructure and the stand-ins for Cluster
API, in one life. The API with its nodes, the regions and the guests survive.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.ipam import IPAddress, IPAddressClaim
from moxwell.runtime.manager import Manager
from moxwell.testing.embedded_stage import EmbeddedWorld, make_program, make_world
from moxwell.testing.machine_stories import NODES, begin, cores_of
from moxwell.testing.reconcile import ENDINGS, Ending, EffectCounter, crash_after_each_effect
from moxwell.testing.region_contents import changed

pytestmark = pytest.mark.slow
QUIET = 130.0
PARTS = 2


@dataclass
class GroupIsThere:
    """A group of machines with their nodes; what comes after is told from here."""

    count: int = 1
    known: set[str] = field(default_factory=set)

    async def world(self) -> EmbeddedWorld:
        world = await make_world()
        life = make_program(world)
        running = asyncio.create_task(life.run())
        await begin(world.stage, self.count)
        self.known = {m.uid for m in await world.stage.with_nodes(self.count)}
        life.stop()
        await running
        return world

    def program(self, world: EmbeddedWorld, wires: EffectCounter) -> Manager:
        return make_program(world, wires)

    async def made(self, world: EmbeddedWorld) -> int:
        """How many guests were ever made."""
        tasks = [t for runtime in world.engine.runtimes.values() for t in runtime.region.tasks.values()]
        return sum(t.type == "qmclone" and t.exitstatus == "OK" for t in tasks)


@dataclass
class GroupIsRolled(GroupIsThere):
    """A new template: each machine is replaced by exactly one."""

    async def act(self, world: EmbeddedWorld) -> None:
        await world.stage.change_template("RollingUpdate")

    async def check(self, world: EmbeddedWorld) -> None:
        stage = world.stage
        machines = await stage.with_nodes(self.count)
        assert not self.known & {m.uid for m in machines}
        assert {m.spec.num_cores for m in await stage.guests()} == {cores_of("w2")}
        assert await self.made(world) == 2 * self.count
        ours = {(m.spec.region, m.spec.virtual_machine_id) for m in await stage.guests()}
        assert ours == {(r, v) for r, found in stage.vmids().items() for v in found}
        for region, before in stage.before.items():
            new = changed(before, stage.lying()[region])
            ids = [str(v) for r, v in ours if r == region]
            assert all(n.split()[0] in {"guest", "volume"} for n in new), new
            assert all(any(i in n for i in ids) for n in new), new
        names = {m.name for m in machines}
        assert {n["metadata"]["name"] for n in (await stage.kube.list(NODES)).items} == names
        assert len((await stage.kube.list(IPAddress, "default")).items) == self.count
        await world.close()


@dataclass
class ClusterIsDeleted(GroupIsThere):
    """The Cluster goes, with its machines, pools and addresses."""

    async def act(self, world: EmbeddedWorld) -> None:
        await world.stage.kube.delete(Cluster, "c", "default")

    async def check(self, world: EmbeddedWorld) -> None:
        stage = world.stage
        kinds: tuple[Any, ...] = (Cluster, Machine, IPAddress, IPAddressClaim)
        for kind in kinds:
            assert (await stage.kube.list(kind, "default")).items == (), kind
        for region, before in stage.before.items():
            assert changed(before, stage.lying()[region]) == {}, region
        assert await self.made(world) == self.count
        await world.close()


STORIES = [
    pytest.param(lambda: GroupIsRolled(1), id="rolled to a new template"),
    pytest.param(lambda: ClusterIsDeleted(1), id="deleted with its cluster"),
]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("story", STORIES)
def test_after_any_effect(story: Any, ending: Ending, part: int) -> None:
    crash_after_each_effect(story(), quiet_seconds=QUIET, ending=ending, part=(part, PARTS))
