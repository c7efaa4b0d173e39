"""An interruption that cannot be written keeps no other one. On virtual time."""

import asyncio
from collections.abc import Callable, Iterable

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.claim.setup import ClaimControllers
from moxwell.controllers.karpenter.interruption.controller import InterruptionLoop
from moxwell.controllers.karpenter.names import INTERRUPTED
from moxwell.controllers.karpenter.state.objects import ScaledCluster
from moxwell.controllers.karpenter.state.snapshots import ClusterState
from moxwell.kube.client import Kube
from moxwell.runtime.manager import Runtime
from moxwell.scheduling.inventory_model import GIB, HostKey
from moxwell.scheduling.spot_room import RoomNeed, SpotGuest, SpotInterruption
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_provider import MemoryMachineProvider
from moxwell.testing.node_claims import ClaimWorld, claim_program, start_claim_world

HOST = HostKey("north", "pve1")


class ChangingProvider(MemoryMachineProvider):
    """Somebody changes the claim ``a`` while it is decided which machines end."""

    def __init__(self, kube: Kube) -> None:
        super().__init__()
        self._kube = kube
        self.changes = 0

    async def interruptions(self, pods: Iterable[RoomNeed]) -> tuple[SpotInterruption, ...]:
        found = await super().interruptions(pods)
        if found:
            self.changes += 1
            change = {"metadata": {"annotations": {"example.com/change": str(self.changes)}}}
            await self._kube.merge(NodeClaim, "a", change)
        return found


def loop_of(found: list[InterruptionLoop]) -> Callable[..., None]:
    def extend(runtime: Runtime, world: ClaimWorld, claims: ClaimControllers) -> None:
        state = ClusterState(ScaledCluster(runtime.manager.caches), world.provider, world.clock)
        found.append(
            InterruptionLoop(
                runtime.kube,
                state,
                world.provider,
                claims.lookup,
                claims.metrics,
                world.clock,
                runtime.manager.recorder,
            )
        )

    return extend


def test_a_conflict_keeps_no_other_claim() -> None:
    async def story() -> None:
        world = await start_claim_world()
        world.provider = ChangingProvider(world.kube)
        loops: list[InterruptionLoop] = []
        manager = claim_program(world, EffectCounter(), extend=loop_of(loops))
        life = asyncio.create_task(manager.run())
        try:
            for name in ("a", "b"):
                await world.add_claim(name)
                await world.until_condition("Ready", "True", name=name)
            uids = [(await world.claim(name)).uid for name in ("a", "b")]
            guests = [SpotGuest(uid, HOST, 2, 4 * GIB, 0.1) for uid in uids]
            world.provider.interrupted = tuple(SpotInterruption(g, "a pod") for g in guests)
            await loops[0].run_pass()
            marked = [INTERRUPTED in (await world.claim(n)).metadata.annotations for n in "ab"]
            assert marked == [False, True]
        finally:
            manager.stop()
            await life
            await world.store.stop()

    run_virtual(story())
