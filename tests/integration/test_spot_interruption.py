"""
Spot guests give their room back: to pods that must run on demand, to machines without a host, to
guests of others, and when their host goes into maintenance mode. On virtual time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.names import INTERRUPTED
from moxwell.controllers.karpenter.setup import AutoscalerSettings
from moxwell.lab.proxmox import chaos
from moxwell.scheduling.well_known_labels import CAPACITY_TYPE
from moxwell.testing import machine_stories
from moxwell.testing.autoscaler_program import AutoscalerProgram
from moxwell.testing.autoscaler_scenes import ScaledEnvironment, is_true, place
from moxwell.testing.embedded_environment import create_environment
from moxwell.testing.karpenter_environment import MANIFEST, add_cluster_api
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_manifests import DEPLOYMENT, TEMPLATE
from moxwell.testing.node_claims import BUDGETS
from moxwell.testing.pve import SimTransport
from moxwell.testing.two_regions import TOKEN, TOKEN_SECRET, WORLD

pytestmark = pytest.mark.slow
NODE_CLASS = MANIFEST.rpartition("---")[0]
# One host has room for two spot guests of 2 CPUs and 8 GiB; the others have room for nothing.
CROWDED = WORLD.replace("cpus: 32, memory: 256G", "cpus: 1, memory: 1G").replace(
    "10.1.0.1/24, cpus: 1, memory: 1G", "10.1.0.1/24, cpus: 4, memory: 18G"
)
HOST = "pve1"


@dataclass
class CrowdedCluster:
    """Two spot guests, each with a pod, fill the only host; the autoscaler runs."""

    env: ScaledEnvironment
    program: AutoscalerProgram
    running: asyncio.Task[None]

    async def restart(self, kill_after: int | None = None) -> None:
        """Run the program anew; with ``kill_after`` each run ends after so many effects."""
        await self.stop()
        self.running = asyncio.create_task(self.program.run(kill_after))

    async def stop(self) -> None:
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running


@asynccontextmanager
async def crowded() -> AsyncIterator[CrowdedCluster]:
    world = await create_environment(CROWDED)
    world.stage.timeout_seconds = 900.0
    await machine_stories.begin(world.stage, replicas=0)
    await world.stage.apply(NODE_CLASS)
    program = AutoscalerProgram(
        world.store, world.clock, world.engine, AutoscalerSettings(), add_cluster_api
    )
    env = ScaledEnvironment(world.stage, program.reasons)
    found = CrowdedCluster(env, program, asyncio.create_task(program.run()))
    try:
        await env.pool("cheap", "spot")
        await env.deploy("batch", 2, "cheap")
        await env.running("batch", 2)
        yield found
    finally:
        await found.stop()
        await world.close()


async def capacity_types(env: ScaledEnvironment) -> list[str]:
    return sorted(c.metadata.labels.get(CAPACITY_TYPE, "") for c in await env.claims())


async def stranger(env: ScaledEnvironment, memory: int) -> None:
    """Somebody creates and starts a guest on the host."""
    transport = SimTransport(env.stage.engine, "north", token=f"{TOKEN}={TOKEN_SECRET}")
    given: dict[str, str | int] = {"vmid": 777, "name": "database", "cores": 1, "memory": memory}
    await transport.request("POST", f"/nodes/{HOST}/qemu", given)
    await asyncio.sleep(10)
    await transport.request("POST", f"/nodes/{HOST}/qemu/777/status/start", {})


async def interrupted(env: ScaledEnvironment, count: int) -> list[NodeClaim]:
    """Wait until so many claims are interrupted; they have record, condition and event."""

    async def test() -> list[NodeClaim]:
        found = [c for c in await env.claims() if INTERRUPTED in c.metadata.annotations]
        said = [c for c in found if is_true(c, "DisruptionReason") and c.deleting]
        return said if len(said) == count else []

    found: list[NodeClaim] = await env.until(f"{count} are interrupted", test)
    assert await env.has_event("SpotInterrupted", "")
    return found


def test_pods_that_must_run_on_demand_take_the_room_of_one_spot_guest() -> None:
    async def story() -> None:
        async with crowded() as found:
            env = found.env
            before = await env.uids("cheap")
            await env.pool("paid")
            await env.deploy("web", 1, "paid")
            (ended,) = await interrupted(env, 1)
            assert "default/web-" in ended.metadata.annotations[INTERRUPTED]
            nodes = [n for n in (await env.kube.list(Node)).items if n.spec.taints]
            await env.running("web", 1)
            assert nodes
            assert await capacity_types(env) == ["on-demand", "spot"]
            assert len(before & await env.uids("cheap")) == 1
            assert env.counted("spot_interrupted") == 1
            # The pod that has lost its node waits, and takes no room back.
            await asyncio.sleep(600)
            assert await capacity_types(env) == ["on-demand", "spot"]
            assert env.counted("spot_interrupted") == 1
            # When the other one leaves, it gets its room.
            await env.scale("web", 0)
            await env.running("batch", 2)

    run_virtual(story())


def test_pods_that_may_run_as_spot_end_no_spot_guest() -> None:
    async def story() -> None:
        async with crowded() as found:
            env = found.env
            both = {"key": CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]}
            await env.pool("any", template={"requirements": [both]})
            await env.deploy("web", 1, "any")
            await asyncio.sleep(300)
            assert await env.has_event("FailedScheduling", "")
            assert env.counted("spot_interrupted") == 0

    run_virtual(story())


def test_a_need_that_spot_guests_cannot_meet_ends_none() -> None:
    async def story() -> None:
        async with crowded() as found:
            env = found.env
            await env.pool("paid", limits={"cpu": "1"})
            await env.deploy("web", 1, "paid")
            await asyncio.sleep(300)
            assert env.counted("spot_interrupted") == 0

    run_virtual(story())


def test_a_machine_without_a_host_takes_the_room_of_a_spot_guest() -> None:
    async def story() -> None:
        async with crowded() as found:
            env = found.env
            await env.stage.apply(TEMPLATE % {"name": "big", "more": "memoryMiB: 6144"})
            await env.stage.apply(DEPLOYMENT % {"name": "big", "template": "big", "replicas": 1})
            (ended,) = await interrupted(env, 1)
            assert "machine default/big" in ended.metadata.annotations[INTERRUPTED]

            async def placed() -> bool:
                guests = [g for g in await env.stage.guests() if g.name.startswith("big")]
                return [g.spec.claim is not None for g in guests] == [True]

            await env.until("the machine has a host", placed)
            await asyncio.sleep(300)
            assert env.counted("spot_interrupted") == 1

    run_virtual(story())


def test_a_guest_of_somebody_else_that_starts_takes_the_room_of_a_spot_guest() -> None:
    async def story() -> None:
        async with crowded() as found:
            env = found.env
            await stranger(env, 6144)
            (ended,) = await interrupted(env, 1)
            assert "too much memory" in ended.metadata.annotations[INTERRUPTED]
            await env.gone({ended.uid})
            await asyncio.sleep(300)
            assert env.counted("spot_interrupted") == 1
            assert 777 in env.stage.engine.runtimes["north"].region.guests

    run_virtual(story())


def test_spot_guests_leave_a_host_in_maintenance_mode() -> None:
    async def story() -> None:
        async with crowded() as found:
            env = found.env
            uids = await env.uids("cheap")
            runtime = env.stage.engine.runtimes["north"]
            chaos.perform(runtime, "maintenance-on", {"node": HOST})
            ended = await interrupted(env, 2)
            assert {c.uid for c in ended} == uids
            await env.gone(uids)
            chaos.perform(runtime, "maintenance-off", {"node": HOST})
            await env.running("batch", 2)

    run_virtual(story())


def test_a_disruption_budget_delays_the_end_only_until_the_deadline() -> None:
    async def story() -> None:
        async with crowded() as found:
            env = found.env
            meta = {"name": "batch", "namespace": "default"}
            spec: dict[str, Any] = {"maxUnavailable": 0}
            spec["selector"] = {"matchLabels": {"app": "batch"}}
            pdb = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta}
            await env.kube.create(pdb | {"spec": spec}, BUDGETS)
            await env.pool("paid")
            await env.deploy("web", 1, "paid")
            (ended,) = await interrupted(env, 1)
            loop = asyncio.get_running_loop()
            start = loop.time()
            _, vmid = place(ended)
            await env.gone({ended.uid})
            assert 60 < loop.time() - start < 200
            assert vmid not in env.stage.engine.runtimes["north"].region.guests
            await env.running("web", 1)

    run_virtual(story())


@pytest.mark.parametrize("effects", [7, 11])
def test_kills_after_effects_interrupt_no_more_than_one(effects: int) -> None:
    """The program ends after every seventh or eleventh effect until the pod has its node."""

    async def story() -> None:
        async with crowded() as found:
            env = found.env
            await env.pool("paid")
            await env.deploy("web", 1, "paid")
            before = await env.uids("cheap")
            await found.restart(effects)
            await env.running("web", 1)
            await found.restart()
            assert len(before & await env.uids("cheap")) == 1
            assert await capacity_types(env) == ["on-demand", "spot"]
            assert found.program.lives > 5

    run_virtual(story())
