"""Guests that karpenter-provider-proxmox made are adopted one by one, and nothing is replaced."""

import asyncio
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.kinds import Resource
from moxwell.controllers.karpenter.provider import InstanceState
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.pve.client import PveWriter
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.testing.karpenter_environment import KarpenterEnvironment, karpenter_environment
from moxwell.testing.loop import run_virtual
from support.provider_guests import (
    ADOPT_TAG,
    HOST,
    REGION,
    make_guest,
    send_heartbeats,
    write_node,
)

EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
NAMES = ("default-one", "default-two")


def conf(env: KarpenterEnvironment, vmid: int) -> dict[str, Any]:
    return dict(env.environment.engine.runtimes[REGION].region.guests[vmid].conf)


async def adopted_by_its_tag_only(env: KarpenterEnvironment) -> None:
    """A guest without the tag is left alone; with it, the guest is ours and stays as it is."""
    one, two = [await env.kube.get(NodeClaim, name) for name in ("default-one", "default-two")]
    await asyncio.sleep(600)
    assert not (await env.kube.list(Machine)).items
    before, other = conf(env, 20000), conf(env, 20001)
    pve = PveWriter(SwitchableTransport(env.transports[REGION]))
    await pve.qemu.configure(HOST, 20000, {"tags": f"karpenter;{ADOPT_TAG}"})

    async def is_ours() -> bool:
        conditions = [c for g in await env.stage.guests() for c in g.status.conditions]
        ready = any((c.type, c.status) == ("Ready", "True") for c in conditions)
        return ready and "moxwell" in str(conf(env, 20000)["tags"]).split(";")

    await env.stage.until("the guest is ours", is_ours)
    await asyncio.sleep(600)
    after = conf(env, 20000)
    changed = {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
    assert changed <= {"tags", "description", "digest"}, changed
    assert "karpenter" in str(after["tags"]).split(";")
    assert ADOPT_TAG not in str(after["tags"])
    assert conf(env, 20001) == other
    for claim in (one, two):
        found = await env.kube.get(NodeClaim, claim.name)
        assert (found.uid, found.deleting) == (claim.uid, False)
        assert found.status.provider_id == claim.status.provider_id
        assert await env.provider.drift(found) == ""
    instance = await env.provider.instance(one)
    assert instance is not None
    assert instance.state is InstanceState.LAUNCHED
    assert instance.provider_id == one.status.provider_id
    assert [n["metadata"]["name"] for n in (await env.kube.list(NODES)).items] == [
        "default-one", "default-two"
    ]  # fmt: skip
    (machine,) = (await env.kube.list(Machine)).items
    assert machine.status.node_ref is not None
    assert machine.status.node_ref.name == "default-one"


async def deleted_as_its_own(env: KarpenterEnvironment) -> None:
    """The end of an adopted claim deletes its guest and nothing of the other one."""
    await env.kube.delete(NodeClaim, "default-one")

    async def gone() -> bool:
        return await env.kube.find(NodeClaim, "default-one") is None

    await env.stage.until("the claim is gone", gone)
    guests = env.environment.engine.runtimes[REGION].region.guests
    assert 20000 not in guests
    assert 20001 in guests


async def warned_about_a_guest_that_stays(env: KarpenterEnvironment) -> None:
    """The end of a claim that was not adopted leaves its guest, and an event names it."""
    await env.kube.delete(NodeClaim, "default-two")

    async def gone() -> bool:
        return await env.kube.find(NodeClaim, "default-two") is None

    await env.stage.until("the claim is gone", gone)
    assert 20001 in env.environment.engine.runtimes[REGION].region.guests
    events = (await env.kube.list(EVENTS)).items
    named = {e["regarding"]["name"]: e for e in events if e["reason"] == "NotOurs"}
    assert set(named) == {"default-two"}
    assert "guest 20001 (default-two)" in named["default-two"]["note"]


async def made_by_the_provider(env: KarpenterEnvironment) -> None:
    for vmid, name in zip((20000, 20001), NAMES, strict=True):
        await make_guest(PveWriter(SwitchableTransport(env.transports[REGION])), vmid, name)
        await write_node(env.kube, vmid, name)


def test_guests_of_the_provider_are_adopted_one_by_one() -> None:
    async def story() -> None:
        async with karpenter_environment() as first:
            beats = asyncio.create_task(send_heartbeats(first.kube, first.environment.clock, NAMES))
            await made_by_the_provider(first)
            async with first.restarted(claims=True) as env:
                await adopted_by_its_tag_only(env)
                await deleted_as_its_own(env)
                await warned_about_a_guest_that_stays(env)
            beats.cancel()

    run_virtual(story())
