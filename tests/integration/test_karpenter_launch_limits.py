"""Many launches at once: full clones are limited, and slow ones that make progress are kept."""

import asyncio

from moxwell.api.capi.core import Machine
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.infra.machine.clone_slots import CloneSlots, CloneTarget
from moxwell.controllers.infra.policy import FULL_CLONES
from moxwell.controllers.karpenter.provider import InstanceState
from moxwell.lab.proxmox.state import SimRegion
from moxwell.testing.karpenter_environment import (
    MANIFEST,
    KarpenterEnvironment,
    karpenter_environment,
)
from moxwell.testing.loop import run_virtual
from moxwell.testing.two_regions import WORLD

# 8 GiB at 10 MB/s: a clone takes 14 minutes
SLOW = WORLD.replace("bandwidth: 400M", "bandwidth: 10M")
FULL = MANIFEST.replace(
    "  instanceTemplateRef: {kind: ProxmoxUnmanagedTemplate, name: ubuntu}",
    """  instanceTemplateRef: {kind: ProxmoxUnmanagedTemplate, name: ubuntu}
  region: south
  bootDevice: {storage: nfs, size: 10G}""",
)


def running_clones(region: SimRegion) -> int:
    return sum(1 for guest in region.guests.values() if guest.conf.get("lock") == "clone")


async def observe(env: KarpenterEnvironment, claims: list[NodeClaim]) -> tuple[int, int]:
    """Launch claims until all are launched; the most clones at once, and the seconds it took."""
    region, most, loop = env.stage.engine.runtimes["south"].region, 0, asyncio.get_running_loop()
    start, waiting = loop.time(), list(claims)
    while waiting:
        for claim in list(waiting):
            found = await env.provider.instance(claim)
            if found is None:
                await env.provider.launch(claim)
            elif found.state is InstanceState.LAUNCHED:
                waiting.remove(claim)
            else:
                assert found.failure is None, found
                assert found.in_progress or loop.time() - start < 240, found
        most = max(most, running_clones(region))
        await asyncio.sleep(5)
        assert loop.time() - start < 4 * 3600
    return most, int(loop.time() - start)


def test_full_clones_are_limited_and_slow_ones_are_kept() -> None:
    async def story() -> None:
        async with karpenter_environment(FULL, SLOW, trusted=True) as env:
            claims = [await env.claim(f"slow-{n}") for n in range(7)]
            most, seconds = await observe(env, claims)
            assert 1 < most <= FULL_CLONES
            assert seconds > 900  # three times the launch timeout
            machines = (await env.kube.list(Machine)).items
            assert len(machines) == len((await env.kube.list(ProxmoxMachine)).items) == 7

    run_virtual(story())


def test_slots_are_counted_per_host_and_storage() -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            region = env.program.regions["north"]
            slots = CloneSlots(2)
            assert slots.take("a", region, CloneTarget("pve1", "ceph"))
            assert slots.take("b", region, CloneTarget("pve2", "ceph"))
            assert not slots.take("c", region, CloneTarget("pve3", "ceph"))  # the storage is busy
            assert slots.take("d", region, CloneTarget("pve3", "lvm"))
            assert slots.take("e", region, CloneTarget("pve1", "ceph", full=False))
            assert slots.take("a", region, CloneTarget("pve1", "ceph"))  # a repeated call
            assert slots.take("c", env.program.regions["south"], CloneTarget("pve1", "ceph"))
            slots.free("b")
            assert slots.take("f", region, CloneTarget("pve1", "ceph"))
            assert not slots.take("g", region, CloneTarget("pve1", "lvm"))  # the host is busy

    run_virtual(story())
