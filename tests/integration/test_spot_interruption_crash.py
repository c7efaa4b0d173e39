"""Kills after every effect while a spot machine is interrupted: it ends, and no other one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from moxwell.api.core.nodes import Node
from moxwell.controllers.karpenter.names import INTERRUPTED
from moxwell.runtime.manager import Manager
from moxwell.scheduling.inventory_model import GIB, HostKey
from moxwell.scheduling.spot_room import SpotGuest, SpotInterruption
from moxwell.testing.autoscaler_world import autoscaler_program, claims, start_kubernetes
from moxwell.testing.effect_counter import EffectCounter, Ending
from moxwell.testing.node_claims import PODS, ClaimWorld, start_claim_world
from moxwell.testing.reconcile import ENDINGS, crash_after_each_effect

pytestmark = pytest.mark.slow
HOST = HostKey("region-1", "host-1")


class SpotMachineEnds:
    """Two node claims run a pod each; the provider names the machine of one."""

    async def world(self) -> ClaimWorld:
        world = await start_claim_world()
        self.kubernetes = await start_kubernetes(world)
        program = self.program(world, EffectCounter())
        await world.add_pool()
        for name in ("a", "b"):
            await world.add_claim(name)
        async with _running(program):
            for name in ("a", "b"):
                await world.until_condition("Initialized", "True", name=name)
                await world.add_pod(f"pod-{name}", name)
        return world

    def program(self, world: ClaimWorld, wires: EffectCounter) -> Manager:
        return autoscaler_program(world, wires)

    async def act(self, world: ClaimWorld) -> None:
        uid = (await world.claim("a")).uid
        guest = SpotGuest(uid, HOST, 2, 4 * GIB, 0.01)
        world.provider.interrupted = (SpotInterruption(guest, "machine x needs its capacity"),)

    async def check(self, world: ClaimWorld) -> None:
        (left,) = await claims(world)
        assert left.name == "b"
        assert INTERRUPTED not in left.metadata.annotations
        assert [n.name for n in (await world.kube.list(Node)).items] == ["b"]
        assert not any(t.key == "karpenter.sh/disrupted" for t in (await _node(world)).spec.taints)
        assert [p["metadata"]["name"] for p in (await world.kube.list(PODS)).items] == ["pod-b"]
        assert len(world.provider.machines) == 1
        self.kubernetes.cancel()


async def _node(world: ClaimWorld) -> Node:
    return await world.kube.get(Node, "b")


@asynccontextmanager
async def _running(program: Manager) -> AsyncIterator[None]:
    life = asyncio.create_task(program.run())
    try:
        yield
    finally:
        program.stop()
        await life


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_kill_after_any_effect_ends_the_machine_and_no_other_one(ending: Ending) -> None:
    effects = crash_after_each_effect(SpotMachineEnds(), quiet_seconds=130.0, ending=ending)
    assert any("PATCH" in e and "nodeclaims/a" in e for e in effects), effects
    assert any("DELETE" in e and "nodeclaims/a" in e for e in effects), effects
