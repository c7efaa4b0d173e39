"""
Crash tests of the autoscaler's nodes: killed after any write of a launch or an end, to Kubernetes
or to Proxmox, the next run makes no second guest and leaves nothing behind.

The program is the provider with the controllers of node claims, the infrastructure controllers and
the embedded Cluster API. The API server with its nodes, the regions and the guests survive.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from moxwell.api.capi.bootstrap import KubeadmConfig
from moxwell.api.capi.core import Machine
from moxwell.api.core.resources import Secret
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.warm_guests import is_warm
from moxwell.api.karpenter.annotations import WARM_POOL
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.bootstrap import join_tokens
from moxwell.controllers.karpenter.proxmox.catalogue import CatalogueSettings
from moxwell.controllers.karpenter.proxmox.instance_record import CLAIM_UID, guest_name
from moxwell.pve.client import PveWriter
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.runtime.manager import Manager
from moxwell.scheduling.numa.host_numa import NodePolicy
from moxwell.testing.effect_counter import EffectCounter, Ending
from moxwell.testing.embedded_environment import EmbeddedEnvironment, create_environment
from moxwell.testing.karpenter_environment import MANIFEST, create_program, node_claim
from moxwell.testing.machine_stories import NODES, begin
from moxwell.testing.pve import SimTransport
from moxwell.testing.reconcile import ENDINGS, crash_after_each_effect
from moxwell.testing.region_contents import contents_diff
from moxwell.testing.two_regions import TOKEN, TOKEN_SECRET, WORLD
from support.provider_guests import (
    ADOPT_TAG,
    HOST,
    REGION,
    make_guest,
    send_heartbeats,
    write_node,
)

pytestmark = pytest.mark.slow
QUIET = 130.0
PARTS = 2
SOUTH = ["pve1", "pve2"]
ADOPTED = 20000
PINNED = CatalogueSettings(node_policy=NodePolicy.STATIC)


@dataclass
class LaunchNode:
    """A node claim becomes a node that is registered and initialized."""

    settings: CatalogueSettings = field(default_factory=CatalogueSettings)

    async def world(self) -> EmbeddedEnvironment:
        world = await create_environment(WORLD)
        await begin(world.stage, replicas=0)
        await world.stage.apply(MANIFEST)
        world.stage.before = world.stage.contents()
        return world

    def program(self, world: EmbeddedEnvironment, wires: EffectCounter) -> Manager:
        token = f"{TOKEN}={TOKEN_SECRET}"
        transports = {
            name: SimTransport(world.engine, name, token=token) for name in world.engine.runtimes
        }
        made = create_program(world, transports, wires, settings=self.settings, claims=True)
        return made.manager

    async def act(self, world: EmbeddedEnvironment) -> None:
        body = node_claim("a", {"cpu": "1", "memory": "1Gi"})
        await world.stage.kube.create(body, NodeClaim.resource)

    async def check(self, world: EmbeddedEnvironment) -> None:
        env = world.stage
        claim = await env.kube.get(NodeClaim, "a")
        ready = {c.type: c.status for c in claim.status.conditions}
        assert (ready["Launched"], ready["Registered"]) == ("True", "True"), ready
        (machine,) = (await env.kube.list(Machine)).items
        (guest,) = await env.guests()
        (node,) = (await env.kube.list(NODES)).items
        assert node["metadata"]["name"] == machine.name == guest.name
        assert node["spec"]["providerID"] == claim.status.provider_id
        assert clones(world) == 1
        ours = {(guest.spec.region, guest.spec.virtual_machine_id)}
        assert ours == {(r, v) for r, found in env.vmids().items() for v in found}
        tokens = await env.kube.list(Secret, "kube-system", labels=join_tokens.CLAIM_LABEL)
        assert not tokens.items  # it is revoked after its use
        await world.close()


@dataclass
class EndNode(LaunchNode):
    """A node claim that has a node is deleted, and everything that was made for it."""

    async def world(self) -> EmbeddedEnvironment:
        world = await super().world()
        program = self.program(world, EffectCounter())
        running = asyncio.create_task(program.run())
        await super().act(world)

        async def registered() -> bool:
            claim = await world.stage.kube.get(NodeClaim, "a")
            return any(
                c.type == "Registered" and c.status == "True" for c in claim.status.conditions
            )

        await world.stage.until("the node is registered", registered)
        program.stop()
        await running
        return world

    async def act(self, world: EmbeddedEnvironment) -> None:
        await world.stage.kube.delete(NodeClaim, "a")

    async def check(self, world: EmbeddedEnvironment) -> None:
        env = world.stage
        kinds: tuple[Any, ...] = (NodeClaim, Machine, ProxmoxMachine, KubeadmConfig, NODES)
        for kind in kinds:
            assert not (await env.kube.list(kind)).items, kind
        left = (await env.kube.list(Secret)).items
        assert not [s.name for s in left if CLAIM_UID in s.metadata.labels]
        tokens = await env.kube.list(Secret, "kube-system", labels=join_tokens.CLAIM_LABEL)
        assert not tokens.items
        for region, before in env.before.items():
            assert contents_diff(before, env.contents()[region]) == {}, region
        assert clones(world) == 1
        await world.close()


def clones(world: EmbeddedEnvironment) -> int:
    """The number of clones made so far."""
    regions = [runtime.region for runtime in world.engine.runtimes.values()]
    tasks = [task for region in regions for task in region.tasks.values()]
    return sum(t.type == "qmclone" and t.exitstatus == "OK" for t in tasks)


@dataclass
class FillPool(LaunchNode):
    """A node class asks for warm guests: one is made on each host, and nothing else."""

    async def act(self, world: EmbeddedEnvironment) -> None:
        change = {"metadata": {"annotations": {WARM_POOL: "1"}}, "spec": {"region": "south"}}
        await world.stage.kube.merge(ProxmoxNodeClass, "default", change)

    def program(self, world: EmbeddedEnvironment, wires: EffectCounter) -> Manager:
        token = f"{TOKEN}={TOKEN_SECRET}"
        transports = {
            name: SimTransport(world.engine, name, token=token) for name in world.engine.runtimes
        }
        return create_program(world, transports, wires, trusted=True, claims=True).manager

    async def check(self, world: EmbeddedEnvironment) -> None:
        guests = await world.stage.guests()
        assert sorted(g.spec.target or "" for g in guests) == SOUTH
        assert all(map(is_warm, guests))
        vmids = {g.spec.virtual_machine_id for g in guests}
        assert world.stage.vmids() == {"north": set(), "south": vmids}
        assert clones(world) == len(SOUTH)
        await world.close()


@dataclass
class TakeWarmGuest(FillPool):
    """A node claim gets one of the warm guests, and another one is made for the next."""

    warm: frozenset[str] = frozenset()

    async def world(self) -> EmbeddedEnvironment:
        world = await super().world()
        program = self.program(world, EffectCounter())
        running = asyncio.create_task(program.run())
        await super().act(world)

        async def full() -> bool:
            found = await world.stage.kube.get(ProxmoxNodeClass, "default")
            pool = [c for c in found.status.conditions if c.type == "WarmPoolReady"]
            return [c.status for c in pool] == ["True"]

        await world.stage.until("the pool is full", full)
        program.stop()
        await running
        self.warm = frozenset(g.name for g in await world.stage.guests())
        return world

    async def act(self, world: EmbeddedEnvironment) -> None:
        await LaunchNode.act(self, world)

    async def check(self, world: EmbeddedEnvironment) -> None:
        env = world.stage
        guests = await env.guests()
        (taken,) = [g for g in guests if not is_warm(g)]
        assert taken.name in self.warm  # also of a launch just after a restart
        assert sorted(g.spec.target or "" for g in guests if is_warm(g)) == SOUTH
        (node,) = (await env.kube.list(NODES)).items
        (machine,) = (await env.kube.list(Machine)).items
        assert node["metadata"]["name"] == taken.name == guest_name(machine)
        assert env.vmids()["south"] == {g.spec.virtual_machine_id for g in guests}
        assert clones(world) == len(SOUTH) + 1
        tokens = await env.kube.list(Secret, "kube-system", labels=join_tokens.CLAIM_LABEL)
        assert not tokens.items
        await world.close()


@dataclass
class AdoptGuest(LaunchNode):
    """The operator lets a cluster adopt a guest of karpenter-provider-proxmox by its tag."""

    async def world(self) -> EmbeddedEnvironment:
        world = await super().world()
        await make_guest(self.proxmox(world), ADOPTED, "default-one")
        await write_node(world.stage.kube, ADOPTED, "default-one")
        beats = send_heartbeats(world.stage.kube, world.clock, ["default-one"])
        world.tasks.append(asyncio.create_task(beats))
        world.stage.before = world.stage.contents()
        return world

    def proxmox(self, world: EmbeddedEnvironment) -> PveWriter:
        token = f"{TOKEN}={TOKEN_SECRET}"
        return PveWriter(SwitchableTransport(SimTransport(world.engine, REGION, token=token)))

    async def act(self, world: EmbeddedEnvironment) -> None:
        tags = {"tags": f"karpenter;{ADOPT_TAG}"}
        await self.proxmox(world).qemu.configure(HOST, ADOPTED, tags)

    async def check(self, world: EmbeddedEnvironment) -> None:
        env = world.stage
        (machine,) = (await env.kube.list(Machine)).items
        (guest,) = await env.guests()
        assert (guest.spec.region, guest.spec.virtual_machine_id) == (REGION, ADOPTED)
        assert guest.spec.claim is not None
        assert machine.status.node_ref is not None
        assert machine.status.node_ref.name == "default-one"
        claim = await env.kube.get(NodeClaim, "default-one")
        assert not claim.deleting
        assert [n["metadata"]["name"] for n in (await env.kube.list(NODES)).items] == [
            "default-one"
        ]
        assert clones(world) == 1  # the one of the other provider
        conf = dict(world.engine.runtimes[REGION].region.guests[ADOPTED].conf)
        tags = str(conf.pop("tags")).split(";")
        assert {"karpenter", "moxwell"} <= set(tags)
        assert ADOPT_TAG not in tags
        assert env.vmids() == {"north": set(), "south": {ADOPTED}}
        await world.close()


STORIES = [
    pytest.param(AdoptGuest, id="adopted"),
    pytest.param(FillPool, id="warm pool filled"),
    pytest.param(TakeWarmGuest, id="warm guest taken"),
    pytest.param(lambda: LaunchNode(PINNED), id="launched with pinned CPUs"),
    pytest.param(EndNode, id="ended"),
]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("story", STORIES)
def test_after_any_effect(story: Any, ending: Ending, part: int) -> None:
    crash_after_each_effect(story(), quiet_seconds=QUIET, ending=ending, part=(part, PARTS))
