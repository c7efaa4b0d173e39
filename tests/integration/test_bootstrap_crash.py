"""
Crash tests of ``moxwell bootstrap``: killed after any write, the next run completes the work.

The temporary API, the regions, the guests and the API of the management cluster survive.
"""

import asyncio
from dataclasses import dataclass, field

import pytest

from moxwell.api import registry
from moxwell.api.capi.core import Cluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.management import transfer
from moxwell.management.manifests import ManifestStage
from moxwell.management.objects import MOVED
from moxwell.management.observed import NODES
from moxwell.management.spec import ManagementSpec
from moxwell.runtime.manager import Manager
from moxwell.testing.bootstrap_environment import (
    SPEC,
    TALOS_SPEC,
    ZONES,
    BootstrapEnvironment,
    create_bootstrap_environment,
    create_bootstrap_program,
    with_fields,
)
from moxwell.testing.effect_counter import EffectCounter, Ending
from moxwell.testing.reconcile import crash_after_each_effect
from moxwell.testing.region_contents import RegionContents, contents_diff, contents_of

pytestmark = pytest.mark.slow
QUIET = 130.0
ONE_MACHINE = with_fields(SPEC, replicas=1, zones=ZONES[:1])
ONE_TALOS = with_fields(TALOS_SPEC, replicas=1, zones=ZONES[:1])
NEEDED = {r.group_resource for r in MOVED}
CRDS = tuple(c for c in registry.make_crds() if c["metadata"]["name"] in NEEDED)
STAGE = ManifestStage("cluster-api", CRDS)


@dataclass
class MakeManagementCluster:
    """From nothing to a management cluster of one machine that manages itself."""

    before: RegionContents = field(default_factory=dict)
    spec: ManagementSpec = ONE_MACHINE

    async def world(self) -> BootstrapEnvironment:
        world = await create_bootstrap_environment(self.spec, (STAGE,))
        self.before = contents_of(world.engine.runtimes["north"].region)
        return world

    def program(self, world: BootstrapEnvironment, wires: EffectCounter) -> Manager:
        return create_bootstrap_program(world, wires)

    async def act(self, world: BootstrapEnvironment) -> None:
        await world.request()

    async def check(self, world: BootstrapEnvironment) -> None:
        assert await transfer.read_objects(world.kube, "default", ONE_MACHINE.name) == ()
        target = world.target()
        cluster = await target.get(Cluster, ONE_MACHINE.name, "default")
        assert cluster.spec.paused is None
        assert transfer.MOVING not in cluster.metadata.annotations
        (machine,) = (await target.list(ProxmoxMachine)).items
        assert [o.kind for o in machine.metadata.owner_references] == ["Machine"]
        (key,) = world.guests()
        assert key == (machine.spec.region, machine.spec.virtual_machine_id)
        assert len((await target.list(NODES)).items) == 1
        assert world.talos.begun == ([machine.name] if self.spec is ONE_TALOS else [])
        new = contents_diff(self.before, contents_of(world.engine.runtimes["north"].region))
        assert {n.split()[0] for n in new} == {"guest", "volume"}
        assert all(str(key[1]) in n for n in new), new
        await world.close()


@dataclass
class UndoManagementCluster(MakeManagementCluster):
    """Remove a management cluster that manages itself."""

    async def world(self) -> BootstrapEnvironment:
        world = await super().world()
        manager = create_bootstrap_program(world)
        running = asyncio.create_task(manager.run())
        await world.request()
        while not world.servers.stores or (await world.kube.list(Cluster)).items:
            await asyncio.sleep(5)
        await asyncio.sleep(60)
        manager.stop()
        await running
        return world

    async def act(self, world: BootstrapEnvironment) -> None:
        await world.request(undo=True)

    async def check(self, world: BootstrapEnvironment) -> None:
        assert await transfer.read_objects(world.kube, "default", ONE_MACHINE.name) == ()
        assert world.guests() == {}
        after = contents_of(world.engine.runtimes["north"].region)
        assert contents_diff(self.before, after) == {}
        await world.close()


CASES = [
    *(pytest.param("answered", (n, 4), id=f"killed, part {n}") for n in range(4)),
    pytest.param("lost", (1, 4), id="answer lost, every fourth"),
]


@pytest.mark.parametrize("ending, part", CASES)
def test_making_survives_an_interruption(ending: Ending, part: tuple[int, int]) -> None:
    effects = crash_after_each_effect(
        MakeManagementCluster(), quiet_seconds=QUIET, ending=ending, part=part
    )
    assert any("qemu" in e for e in effects)
    assert any(e.startswith("DELETE") and "/clusters/" in e for e in effects)


@pytest.mark.parametrize("ending, part", CASES)
def test_making_with_talos_survives_an_interruption(ending: Ending, part: tuple[int, int]) -> None:
    story = MakeManagementCluster(spec=ONE_TALOS)
    effects = crash_after_each_effect(story, quiet_seconds=QUIET, ending=ending, part=part)
    assert any(e.startswith("Talos") for e in effects)


@pytest.mark.parametrize("ending, part", CASES)
def test_undo_survives_an_interruption(ending: Ending, part: tuple[int, int]) -> None:
    effects = crash_after_each_effect(
        UndoManagementCluster(), quiet_seconds=QUIET, ending=ending, part=part
    )
    assert any(e.startswith("north: DELETE") for e in effects)
