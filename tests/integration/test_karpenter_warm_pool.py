"""Warm pools over simulated regions: guests that are cloned in advance and handed over."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.warm_guests import RESERVED_FOR, WARM_TAG, is_warm
from moxwell.api.karpenter.annotations import WARM_POOL
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.setup import add_infra
from moxwell.controllers.karpenter.provider import InstanceState
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.runtime.manager import assemble
from moxwell.testing import machine_stories
from moxwell.testing.karpenter_environment import (
    MANIFEST,
    KarpenterEnvironment,
    karpenter_environment,
)
from moxwell.testing.loop import run_virtual
from moxwell.testing.two_regions import SETTINGS, configs

REGION = "south"
HOSTS = 2
MANIFEST_OF_REGION = MANIFEST.replace(
    "spec:\n  instanceTemplateRef",
    f"spec:\n  region: {REGION}\n  bootDevice: {{size: 20G, storage: nfs}}\n  instanceTemplateRef",
)
UNTRUSTED = MANIFEST.replace("spec:\n  inst", f"spec:\n  region: {REGION}\n  inst")
SHARED = ("/cluster/resources", "/cluster/tasks", "/tasks", "/cluster/status", "/version")


async def ask(env: KarpenterEnvironment, count: str | None) -> None:
    """Set the number of warm guests per host."""
    change = {"metadata": {"annotations": {WARM_POOL: count}}}
    await env.kube.merge(ProxmoxNodeClass, "default", change)


async def pool_is(env: KarpenterEnvironment, status: str, reason: str, part: str = "") -> str:
    async def reported() -> str | None:
        conditions = (await env.node_class()).status.conditions
        for found in conditions:
            if (found.type, found.status, found.reason) == ("WarmPoolReady", status, reason):
                return found.message if part in found.message else None
        return None

    message: str = await env.stage.until(f"the pool is {reason} {part}", reported)
    return message


async def warm_guests(env: KarpenterEnvironment) -> list[ProxmoxMachine]:
    return [m for m in (await env.kube.list(ProxmoxMachine)).items if is_warm(m)]


def guests_of(env: KarpenterEnvironment) -> Mapping[int, Any]:
    return env.environment.engine.runtimes[REGION].region.guests


def in_proxmox(env: KarpenterEnvironment) -> dict[int, Any]:
    """The warm guests that Proxmox has, by VMID."""
    guests = guests_of(env)
    return {vmid: g for vmid, g in guests.items() if WARM_TAG in str(g.conf.get("tags", ""))}


async def launch(env: KarpenterEnvironment, name: str) -> tuple[NodeClaim, float, int]:
    """Launch a claim; the seconds, and its own requests without clones, until its guest runs."""
    claim = await env.claim(name)
    clock, start = env.environment.clock, env.sent()
    begin = clock.monotonic()

    async def launched() -> bool:
        found = await env.provider.instance(claim)
        if found is None:
            await env.provider.launch(claim)
        return found is not None and found.state is InstanceState.LAUNCHED

    await env.stage.until(f"{name} is launched", launched)
    seconds = clock.monotonic() - begin
    region = env.transports[REGION].sent[start[REGION] :]
    own = [r for r in region if not r[1].partition("?")[0].endswith((*SHARED, "/network"))]
    return claim, seconds, sum("/clone" not in path for _, path in own)


async def until_joined(env: KarpenterEnvironment, claim: NodeClaim) -> str:
    """The name of the node of a claim."""

    async def joined() -> str | None:
        instance = await env.provider.instance(claim)
        nodes = (await env.kube.list(NODES)).items
        wanted = instance.provider_id if instance else ""
        return next(
            (n["metadata"]["name"] for n in nodes if n["spec"].get("providerID") == wanted), None
        )

    name: str = await env.stage.until("the node has joined", joined)
    return name


async def until_only_warm(env: KarpenterEnvironment, *claims: NodeClaim) -> None:
    for claim in claims:
        await env.provider.terminate(claim.name, claim.uid)
        await env.kube.delete(NodeClaim, claim.name)

    async def gone() -> bool:
        machines = (await env.kube.list(ProxmoxMachine)).items
        return all(map(is_warm, machines)) and not (await env.kube.list(Machine)).items

    await env.stage.until("only warm guests are left", gone)


async def filled_taken_and_filled_again(env: KarpenterEnvironment) -> None:
    """A launch takes a warm guest with fewer requests, in less time; the pool is filled again."""
    before = env.stage.contents()
    cold, cold_seconds, cold_requests = await launch(env, "cold")
    await until_joined(env, cold)
    await until_only_warm(env, cold)
    await ask(env, "1")
    await pool_is(env, "True", "Ready")
    stopped = await warm_guests(env)
    assert {m.spec.target for m in stopped} == {"pve1", "pve2"}
    assert set(in_proxmox(env)) == {m.spec.virtual_machine_id for m in stopped}

    claim, seconds, requests = await launch(env, "warm")
    (taken,) = [m for m in (await env.kube.list(ProxmoxMachine)).items if not is_warm(m)]
    assert taken.name in {m.name for m in stopped}
    assert taken.spec.virtual_machine_id in {m.spec.virtual_machine_id for m in stopped}
    assert requests <= 7, requests  # the clone of the next warm guest does not count
    assert requests < cold_requests, (requests, cold_requests)
    assert seconds < cold_seconds / 2, (seconds, cold_seconds)
    assert await until_joined(env, claim) == taken.name
    guest = guests_of(env)[taken.spec.virtual_machine_id or 0]
    assert int(guest.conf["cores"]) == taken.spec.num_cores
    assert int(guest.conf["memory"]) == taken.spec.memory_mib
    await pool_is(env, "True", "Ready", f"{HOSTS} of {HOSTS}")
    await until_only_warm(env, claim)
    await ask(env, None)

    async def empty() -> bool:
        return not (await env.kube.list(ProxmoxMachine)).items

    await env.stage.until("the pool is empty", empty)
    assert env.stage.contents() == before


async def more_claims_than_guests(env: KarpenterEnvironment) -> None:
    """Launches at once take each warm guest once; the others are cloned."""
    await ask(env, "1")
    await pool_is(env, "True", "Ready")
    names = {m.name for m in await warm_guests(env)}
    claims = [await env.claim(f"many-{n}") for n in range(4)]
    for claim in claims:
        await env.provider.launch(claim)

    async def launched() -> bool:
        found = [await env.provider.instance(c) for c in claims]
        for claim, instance in zip(claims, found, strict=True):
            if instance is None:
                await env.provider.launch(claim)
        return all(i is not None and i.state is InstanceState.LAUNCHED for i in found)

    await env.stage.until("all are launched", launched)
    made = [m for m in (await env.kube.list(ProxmoxMachine)).items if not is_warm(m)]
    assert len(made) == len({m.spec.virtual_machine_id for m in made}) == len(claims)
    assert names <= {m.name for m in made}
    await until_only_warm(env, *claims)


async def drift_replaces_warm_guests(env: KarpenterEnvironment) -> None:
    """A change of the node class replaces its warm guests; their disks are grown in advance."""
    await pool_is(env, "True", "Ready")
    before = {m.name for m in await warm_guests(env)}
    await env.kube.merge(ProxmoxNodeClass, "default", {"spec": {"bootDevice": {"size": "24Gi"}}})

    async def replaced() -> bool:
        found = await warm_guests(env)
        return bool(found) and not before & {m.name for m in found}

    await env.stage.until("the warm guests are replaced", replaced)
    await pool_is(env, "True", "Ready", f"{HOSTS} of {HOSTS}")
    assert all("size=24G" in g.conf["scsi0"] for g in in_proxmox(env).values())


async def wrong_numbers_keep_nothing(env: KarpenterEnvironment) -> None:
    """A number that is none makes a condition with the field, and no guests."""
    await ask(env, "many")
    message = await pool_is(env, "False", "InvalidWarmPool")
    assert f"metadata.annotations[{WARM_POOL}]" in message
    assert "0 to 20" in message

    async def empty() -> bool:
        return not await warm_guests(env)

    await env.stage.until("the guests are deleted", empty)


async def deleted_with_their_class(env: KarpenterEnvironment) -> None:
    """The warm guests go before the class does."""
    await ask(env, "1")
    await pool_is(env, "True", "Ready")
    await env.kube.delete(ProxmoxNodeClass, "default")

    async def gone() -> bool:
        return await env.kube.find(ProxmoxNodeClass, "default") is None

    await env.stage.until("the class is gone", gone)
    assert not await warm_guests(env)
    assert not in_proxmox(env)


def test_a_launch_takes_a_warm_guest_and_the_pool_is_filled_again() -> None:
    async def story() -> None:
        async with karpenter_environment(MANIFEST_OF_REGION, trusted=True) as env:
            for scene in (
                filled_taken_and_filled_again,
                more_claims_than_guests,
                drift_replaces_warm_guests,
                wrong_numbers_keep_nothing,
                deleted_with_their_class,
            ):
                await scene(env)

    run_virtual(story())


def test_a_tenant_keeps_as_many_warm_guests_as_the_operator_allows() -> None:
    async def story() -> None:
        async with karpenter_environment(UNTRUSTED) as env:
            await ask(env, "1")
            message = await pool_is(env, "False", "WarmPoolNotAllowed")
            assert "ask the operator" in message
            assert not await warm_guests(env)
            allowed = {"metadata": {"annotations": {WARM_POOL: "1"}}}
            await env.kube.merge(ProxmoxCluster, "c", allowed, "default")
            await pool_is(env, "True", "Ready")

    run_virtual(story())


def test_warm_guests_are_deleted_with_their_cluster() -> None:
    async def story() -> None:
        async with karpenter_environment(MANIFEST_OF_REGION, trusted=True) as env:
            await ask(env, "2")
            await pool_is(env, "True", "Ready")
            assert len(in_proxmox(env)) == 2 * HOSTS
            await machine_stories.end(env.stage)

    run_virtual(story())


@asynccontextmanager
async def without_autoscaler(env: KarpenterEnvironment) -> AsyncIterator[None]:
    """Stop the program and run the infrastructure controllers alone, as the operator does."""
    env.program.manager.stop()
    runtime = assemble(env.store, env.environment.clock, SETTINGS)
    known = configs(*env.environment.engine.runtimes)
    regions = Regions(known, env.environment.clock, connect=lambda c: env.transports[c.region])
    registry = RegionRegistry(regions, known)
    add_infra(
        runtime,
        env.environment.clock,
        regions,
        Reservations(),
        registry=registry,
        is_scaled=lambda cluster: False,
    )
    runtime.manager.add_loop("pve", regions.run)
    running = asyncio.create_task(runtime.manager.run())
    try:
        yield
    finally:
        runtime.manager.stop()
        await running


def test_warm_guests_are_deleted_when_the_autoscaler_is_switched_off() -> None:
    async def story() -> None:
        async with karpenter_environment(MANIFEST_OF_REGION, trusted=True) as env:
            await ask(env, "1")
            await pool_is(env, "True", "Ready")
            kept, other = await warm_guests(env)
            change = {"metadata": {"annotations": {RESERVED_FOR: "uid-of-a-claim"}}}
            await env.kube.merge(ProxmoxMachine, kept.name, change, kept.namespace)
            async with without_autoscaler(env):

                async def gone() -> bool:
                    return [m.name for m in await warm_guests(env)] == [kept.name]

                await env.stage.until("the guest is deleted", gone)
                await asyncio.sleep(300)
                assert await gone()  # a launch had reserved the other one
                assert set(in_proxmox(env)) == {kept.spec.virtual_machine_id}
                assert other.spec.virtual_machine_id not in guests_of(env)

    run_virtual(story())
