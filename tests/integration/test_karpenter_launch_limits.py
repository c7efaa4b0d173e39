"""Many launches at once: full clones are limited, and slow ones that make progress are kept."""

import asyncio
from dataclasses import replace

from moxwell.api.capi.core import Machine
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.infra.machine.clone_slots import CloneSlots, CloneTarget
from moxwell.controllers.infra.policy import FULL_CLONES
from moxwell.controllers.karpenter.provider import InstanceState
from moxwell.lab.proxmox.state import SimRegion
from moxwell.scheduling.numa.sources import read_settings
from moxwell.scheduling.well_known_labels import REGION
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


def test_clones_of_an_earlier_run_count_on_the_storage_of_their_machine() -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            region = env.program.regions["north"]
            on_ceph, on_lvm = CloneTarget("pve1", "ceph"), CloneTarget("pve2", "lvm")
            linked = CloneTarget("pve2", "ceph", full=False)
            claims = {601: ("a", on_ceph), 602: ("b", on_lvm), 603: ("c", linked)}
            for vmid, host in ((601, "pve1"), (602, "pve2"), (603, "pve2"), (604, "pve3")):
                region.inventory.learn(vmid, host=host, lock="clone")
            slots = CloneSlots(1, lambda name, vmid: claims.get(vmid))
            free = CloneTarget("pve-without-clones", "ceph")
            assert slots.are_taken("d", region, free)
            assert slots.are_taken("d", region, replace(free, storage="lvm"))
            assert not slots.are_taken("d", region, replace(free, storage="nfs"))
            region.inventory.learn(601, host="pve1", lock="")
            assert not slots.are_taken("d", region, free)

    run_virtual(story())


CROWDED = WORLD.replace(
    "      - vmid: 201\n",
    """      - vmid: 150
        type: lxc
        node: pve1
        name: busy
        running: true
        config: {cores: 30, memory: 8192, hostname: busy, rootfs: "ceph:vm-150-disk-0,size=8G"}
      - vmid: 201\n""",
)
RATIOS = read_settings('{"north": {"pve1": {"cpuovercommit": 2.0, "reservedcpus": [0, 1]}}}')


async def free_on(env: KarpenterEnvironment, zone: str, region: str) -> set[str]:
    types = await env.provider.instance_types(await env.pool())
    return {
        t.name
        for t in types
        for o in t.offerings
        if o.available and (o.zone, dict(o.labels)[REGION]) == (zone, region)
    }


def test_containers_count_and_hosts_have_ratios_of_overcommitment() -> None:
    async def story() -> None:
        async with karpenter_environment(world=CROWDED) as env:
            left = await free_on(env, "pve1", "north")
            assert "c1.2VCPU-4GB" in left
            assert "c1.4VCPU-8GB" not in left  # the container has 30 of 32 CPUs
        async with karpenter_environment(world=CROWDED, hosts=RATIOS) as env:
            left = await free_on(env, "pve1", "north")
            assert "c1.16VCPU-32GB" in left  # 30 CPUs twice, less those of the container

    run_virtual(story())
