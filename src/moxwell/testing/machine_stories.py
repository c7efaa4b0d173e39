"""
End-to-end stories of machines under Cluster API, upstream or embedded.

A :class:`StoryEnvironment` is a Kubernetes API with Cluster API, simulated regions and guests that
join. Both kinds of environments run the same list, ``STORIES``. Every story begins and ends with
two machines that have nodes.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import yaml

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineHealthCheck
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import IPAddress, IPAddressClaim
from moxwell.api.kinds import Resource
from moxwell.kube.client import Kube
from moxwell.lab.proxmox import chaos
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.fault_injection import Fault
from moxwell.testing.machine_manifests import CHECK, CLUSTER, DEPLOYMENT, TEMPLATE
from moxwell.testing.region_contents import STRANGER, RegionContents, contents_diff, contents_of

NODES = Resource("", "v1", "nodes", "Node", False)
PLANES = Resource(
    "controlplane.cluster.x-k8s.io", "v1alpha2", "kamajicontrolplanes", "KamajiControlPlane"
)
INFRA = "infrastructure.cluster.x-k8s.io"


@dataclass
class StoryEnvironment:
    """What a story needs: an API, simulated regions, and how long to wait."""

    kube: Kube
    engine: Engine
    apply: Callable[[str], Awaitable[None]]  # applies a manifest
    ca: bytes
    ca_key: bytes
    kubeconfig: bytes
    port: int
    timeout_seconds: float = 240.0
    poll_seconds: float = 1.0  # polling interval
    still_seconds: float = 15.0  # how long nothing may happen where nothing should
    before: dict[str, RegionContents] = field(default_factory=dict)

    async def until(self, what: str, test: Callable[[], Awaitable[Any]]) -> Any:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.timeout_seconds
        while not (found := await test()):
            if loop.time() > end:
                raise AssertionError(f"{what} timed out: {await self.state()}")
            await asyncio.sleep(self.poll_seconds)
        return found

    async def state(self) -> str:
        """The conditions of all objects, for the message of a failing test."""
        lines = []
        for m in await self.guests():
            conditions = [
                f"{c.type}={c.status} {c.reason} {c.message}" for c in m.status.conditions
            ]
            lines.append(f"{m.name}: {m.status.next_move} {conditions}")
        for n in (await self.kube.list(Machine, "default")).items:
            found = [f"{c.type}={c.status} {c.message}" for c in n.status.conditions]
            lines.append(f"{n.name}: {n.status.phase} {found}")
        return "\n".join(lines)

    async def guests(self) -> tuple[ProxmoxMachine, ...]:
        return tuple((await self.kube.list(ProxmoxMachine, "default")).items)

    async def machines(self) -> list[Machine]:
        """All machines if each has a node; else an empty list."""
        found = (await self.kube.list(Machine, "default")).items
        return list(found) if all(m.status.node_ref for m in found) else []

    async def with_nodes(self, count: int) -> list[Machine]:
        """Wait for exactly ``count`` machines that are ready and have a node."""

        async def test() -> list[Machine]:
            found = await self.machines()
            good = len(found) == len(await self.guests()) == count and await self.all_ready()
            joined = all(m.status.node_ref and m.spec.provider_id for m in found)
            return found if good and joined else []

        made: list[Machine] = await self.until(f"{count} machines with nodes", test)
        return made

    async def all_ready(self) -> bool:
        return all(reason_of(m) == "Provisioned" for m in await self.guests())

    def vmids(self) -> dict[str, set[int]]:
        """The VMIDs of the cluster's guests, by region."""
        return {
            name: {
                vmid
                for vmid, guest in runtime.region.guests.items()
                if not guest.conf.get("template") and vmid != STRANGER
            }
            for name, runtime in self.engine.runtimes.items()
        }

    def contents(self) -> dict[str, RegionContents]:
        return {name: contents_of(runtime.region) for name, runtime in self.engine.runtimes.items()}

    async def scale(self, count: int, name: str = "w") -> None:
        change = {"spec": {"replicas": count}}
        await self.kube.merge(MachineDeployment, name, change, "default")

    async def template(self) -> str:
        """The current machine template."""
        group = await self.kube.get(MachineDeployment, "w", "default")
        ref = group.spec.template.spec.infrastructure_ref
        return ref.name if ref else ""

    async def is_observed(self) -> bool:
        """Whether the controller has observed the current generation of the MachineDeployment."""
        group = await self.kube.get(MachineDeployment, "w", "default")
        return group.status.observed_generation >= group.metadata.generation

    async def change_template(self, strategy: str) -> str:
        """Switch the machine template between w and w2."""
        name = "w2" if await self.template() == "w" else "w"
        ref = {"apiGroup": INFRA, "kind": "ProxmoxMachineTemplate", "name": name}
        change = {
            "rollout": {"strategy": {"type": strategy}},
            "template": {"spec": {"infrastructureRef": ref}},
        }
        await self.kube.merge(MachineDeployment, "w", {"spec": change}, "default")
        return name


def reason_of(machine: ProxmoxMachine) -> str:
    """The reason of the Ready condition."""
    return next((c.reason for c in machine.status.conditions if c.type == "Ready"), "")


def cores_of(name: str) -> int:
    """The number of cores, which differs between the two templates."""
    return 2 if name == "w" else 3


# ---------------------------------------------------------------------- first and last


async def begin(env: StoryEnvironment, replicas: int = 2) -> None:
    """Apply the cluster as a user does, and set the status of its control plane."""
    env.before = env.contents()
    parts = {
        "c-kubeconfig": {"value": env.kubeconfig},
        "c-ca": {"tls.crt": env.ca, "tls.key": env.ca_key},
    }
    for name, data in parts.items():
        await env.apply(_secret(name, data))
    await env.apply(CLUSTER % {"port": env.port})
    for name in ("w", "w2"):
        await env.apply(TEMPLATE % {"name": name, "more": f"numCores: {cores_of(name)}"})
    await env.apply(DEPLOYMENT % {"name": "w", "template": "w", "replicas": replicas})
    status = {
        "initialization": {"controlPlaneInitialized": True},
        "externalManagedControlPlane": True,
        "ready": True,
        "initialized": True,
        "replicas": 1,
        "readyReplicas": 1,
        "version": "v1.34.1",
    }
    await env.kube.merge_status(PLANES, "c", {"status": status}, "default")


def _secret(name: str, data: dict[str, bytes]) -> str:
    labels = {"cluster.x-k8s.io/cluster-name": "c"}
    meta = {"name": name, "namespace": "default", "labels": labels}
    body = {"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret"}
    shown = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return yaml.safe_dump({**body, "metadata": meta, "data": shown})


async def end(env: StoryEnvironment) -> None:
    """Delete the Cluster: everything that belongs to it is deleted, and nothing else."""
    await env.kube.delete(Cluster, "c", "default")

    async def gone() -> bool:
        left = await env.kube.find(Cluster, "c", "default")
        plane = await env.kube.find(PLANES, "c", "default")
        return left is None and plane is None and not await env.guests()

    await env.until("the cluster is gone", gone)
    after = env.contents()
    for region, before in env.before.items():
        assert contents_diff(before, after[region]) == {}, region

    async def released() -> bool:
        claims = (await env.kube.list(IPAddressClaim, "default")).items
        return not claims and not (await env.kube.list(IPAddress, "default")).items

    await env.until("addresses are given back", released)


# ---------------------------------------------------------------------- the scenes


async def machines_in_two_regions(env: StoryEnvironment) -> None:
    """One machine in each region; its node has the topology labels."""
    machines = await env.with_nodes(2)
    assert sorted(len(v) for v in env.vmids().values()) == [1, 1]
    assert {m.status.failure_domain for m in machines} == {"a", "b"}
    for machine in machines:
        assert machine.status.node_ref is not None
        node = await env.kube.get(NODES, machine.status.node_ref.name)
        assert node["spec"]["providerID"] == machine.spec.provider_id


async def scale_up_and_down(env: StoryEnvironment) -> None:
    """Scale up and down; the first machines stay."""
    await env.scale(4)
    four = {m.uid for m in await env.with_nodes(4)}
    assert sorted(len(v) for v in env.vmids().values()) == [2, 2]
    await env.scale(2)
    two = {m.uid for m in await env.with_nodes(2)}
    assert two < four
    assert sum(len(v) for v in env.vmids().values()) == 2


async def one_in_each(env: StoryEnvironment) -> list[Machine]:
    """Ensure one machine in each region; replace one if both are in the same."""
    while sorted(len(v) for v in env.vmids().values()) != [1, 1]:
        leaves = (await env.with_nodes(2))[0].name
        await env.kube.delete(Machine, leaves, "default")
        await env.until("it goes", partial(_is_gone, env, leaves))
        await env.with_nodes(2)
    return await env.with_nodes(2)


async def _is_gone(env: StoryEnvironment, machine: str) -> bool:
    return await env.kube.find(Machine, machine, "default") is None


async def region_lost_and_restored(env: StoryEnvironment) -> None:
    """A region becomes unreachable and returns: no machine is deleted or created."""
    known = {m.uid for m in await one_in_each(env)}
    before = env.vmids()
    env.engine.faults["south"].add(Fault("cut-before"))
    await env.until("the unreachable region is reported", lambda: _south_is_reported_down(env))
    env.engine.faults["south"].remove()
    assert {m.uid for m in await env.with_nodes(2)} == known
    assert env.vmids() == before


async def _south_is_reported_down(env: StoryEnvironment) -> bool:
    reasons = {m.spec.region: reason_of(m) for m in await env.guests()}
    return reasons == {"south": "RegionUnreachable", "north": "Provisioned"}


async def unreachable_region_blocks_nothing(env: StoryEnvironment) -> None:
    """While one region is unreachable, machines are created and deleted in the other."""
    await one_in_each(env)
    south = env.vmids()["south"]
    env.engine.faults["south"].add(Fault("cut-before"))
    await env.until("the unreachable region is reported", lambda: _south_is_reported_down(env))
    await env.scale(3)

    async def came() -> bool:
        return len(await env.machines()) == 3 and len(env.vmids()["north"]) == 2

    await env.until("a machine comes in the other region", came)
    (name, *_) = [m.name for m in await env.guests() if m.spec.region == "north"]
    await env.kube.delete(Machine, name, "default")

    async def replaced() -> bool:
        gone = await env.kube.find(ProxmoxMachine, name, "default") is None
        return gone and await came()

    await env.until("a machine is replaced in the other region", replaced)
    assert env.vmids()["south"] == south
    env.engine.faults["south"].remove()
    await env.with_nodes(3)
    await env.scale(2)
    await env.with_nodes(2)


async def unhealthy_machine_is_replaced(env: StoryEnvironment) -> None:
    """
    A guest stops, its node becomes not ready, and the MachineHealthCheck replaces the machine.
    """
    await env.with_nodes(2)
    await env.apply(CHECK)
    dead = (await env.guests())[0]
    runtime = env.engine.runtimes[dead.spec.region or ""]
    chaos.perform(runtime, "stop-guest", {"vmid": dead.spec.virtual_machine_id})

    async def reported() -> bool:
        seen = await env.kube.find(ProxmoxMachine, dead.name, "default")
        return seen is None or reason_of(seen) == "Stopped"

    async def gone() -> bool:
        return await env.kube.find(ProxmoxMachine, dead.name, "default") is None

    await env.until("a stopped guest is reported", reported)
    await env.until("the dead machine goes", gone)
    await env.with_nodes(2)
    await env.kube.delete(MachineHealthCheck, "c", "default")


async def rolling_update(env: StoryEnvironment) -> None:
    """A rolling update replaces every machine and never goes below the desired replicas."""
    old = {m.uid for m in await env.with_nodes(2)}
    new = await env.change_template("RollingUpdate")

    async def rolled() -> bool:
        assert len((await env.kube.list(Machine, "default")).items) >= 2
        found = await env.guests()
        return bool(found) and all(m.spec.num_cores == cores_of(new) for m in found)

    await env.until("every machine is made from the new template", rolled)
    assert not old & {m.uid for m in await env.with_nodes(2)}


async def on_delete(env: StoryEnvironment) -> None:
    """With OnDelete a machine is replaced only after it is deleted."""
    old = {m.uid: m for m in await env.with_nodes(2)}
    new = await env.change_template("OnDelete")
    await env.until("the change is taken up", env.is_observed)
    await asyncio.sleep(env.still_seconds)
    assert {m.uid for m in await env.with_nodes(2)} == set(old)
    first = next(iter(old.values()))
    await env.kube.delete(Machine, first.name, "default")

    async def replaced() -> bool:
        cores = sorted(m.spec.num_cores or 0 for m in await env.guests())
        return cores == [2, 3] and len(await env.machines()) == 2

    await env.until("the deleted machine comes back from the new template", replaced)
    assert len({m.uid for m in await env.with_nodes(2)} & set(old)) == 1
    change = {"rollout": {"strategy": {"type": "RollingUpdate"}}}
    await env.kube.merge(MachineDeployment, "w", {"spec": change}, "default")

    async def all_new() -> bool:
        return all(m.spec.num_cores == cores_of(new) for m in await env.guests())

    await env.until("the rest follows when it may", all_new)
    await env.with_nodes(2)


async def colliding_names(env: StoryEnvironment) -> None:
    """Two guests with the same VMID and host name in two regions; deleting one keeps the other."""
    await env.with_nodes(2)
    only = "numCores: 1, vmIDRange: {start: 5000, end: 5000}, target: pve1"
    await env.apply(TEMPLATE % {"name": "twin", "more": only})
    await env.apply(DEPLOYMENT % {"name": "twin", "template": "twin", "replicas": 2})
    await env.with_nodes(4)
    assert all(5000 in v for v in env.vmids().values())
    twins = [m for m in await env.guests() if m.spec.virtual_machine_id == 5000]
    assert {m.spec.claim.host for m in twins if m.spec.claim} == {"pve1"}
    await env.scale(1, "twin")
    await env.with_nodes(3)
    (stays,) = [m for m in await env.guests() if m.spec.virtual_machine_id == 5000]
    assert [r for r, v in env.vmids().items() if 5000 in v] == [stays.spec.region]
    await env.kube.delete(MachineDeployment, "twin", "default")
    await env.with_nodes(2)


Story = Callable[[StoryEnvironment], Awaitable[None]]
STORIES: tuple[Story, ...] = (
    machines_in_two_regions,
    scale_up_and_down,
    region_lost_and_restored,
    unreachable_region_blocks_nothing,
    unhealthy_machine_is_replaced,
    rolling_update,
    on_delete,
    colliding_names,
)
