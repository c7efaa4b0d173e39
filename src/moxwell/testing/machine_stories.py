"""
Stories of machines under Cluster API, told on any stage: genuine programs, or the stand-ins.

In: a :class:`Stage`, which is a Kubernetes API with somebody who plays Cluster API, simulated
regions and guests that join. Out: an exception if the world is not as promised. There is one list,
``SCENES``, so that what is shown on the genuine stage and on the embedded one cannot drift apart.
Every scene begins with two machines that have nodes, and leaves as many.
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
from moxwell.testing.region_contents import STRANGER, Lying, changed, lying

NODES = Resource("", "v1", "nodes", "Node", False)
PLANES = Resource(
    "controlplane.cluster.x-k8s.io", "v1alpha2", "kamajicontrolplanes", "KamajiControlPlane"
)
INFRA = "infrastructure.cluster.x-k8s.io"


@dataclass
class Stage:
    """Where stories are told."""

    kube: Kube
    engine: Engine
    apply: Callable[[str], Awaitable[None]]  # as a user does with a file
    ca: bytes
    ca_key: bytes
    kubeconfig: bytes
    port: int
    patience_seconds: float = 240.0
    look_seconds: float = 1.0  # between two looks
    still_seconds: float = 15.0  # nothing happens for so long where nothing may happen
    before: dict[str, Lying] = field(default_factory=dict)

    async def until(self, what: str, test: Callable[[], Awaitable[Any]]) -> Any:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.patience_seconds
        while not (found := await test()):
            if loop.time() > end:
                raise AssertionError(f"{what} did not come: {await self.state()}")
            await asyncio.sleep(self.look_seconds)
        return found

    async def state(self) -> str:
        """What everybody says, for a failing test."""
        lines = []
        for m in await self.guests():
            said = [f"{c.type}={c.status} {c.reason} {c.message}" for c in m.status.conditions]
            lines.append(f"{m.name}: {m.status.next_move} {said}")
        for n in (await self.kube.list(Machine, "default")).items:
            found = [f"{c.type}={c.status} {c.message}" for c in n.status.conditions]
            lines.append(f"{n.name}: {n.status.phase} {found}")
        return "\n".join(lines)

    async def guests(self) -> tuple[ProxmoxMachine, ...]:
        return tuple((await self.kube.list(ProxmoxMachine, "default")).items)

    async def machines(self) -> list[Machine]:
        """All machines, if each has its node; else none."""
        found = (await self.kube.list(Machine, "default")).items
        return list(found) if all(m.status.node_ref for m in found) else []

    async def with_nodes(self, count: int) -> list[Machine]:
        """Wait until there are exactly so many machines, each with a node and ready."""

        async def test() -> list[Machine]:
            found = await self.machines()
            good = len(found) == len(await self.guests()) == count and await self.all_ready()
            return found if good else []

        made: list[Machine] = await self.until(f"{count} machines with nodes", test)
        return made

    async def all_ready(self) -> bool:
        return all(reason_of(m) == "Provisioned" for m in await self.guests())

    def vmids(self) -> dict[str, set[int]]:
        """Guests that are no templates and nobody else's, by region."""
        return {
            name: {
                vmid
                for vmid, guest in runtime.region.guests.items()
                if not guest.conf.get("template") and vmid != STRANGER
            }
            for name, runtime in self.engine.runtimes.items()
        }

    def lying(self) -> dict[str, Lying]:
        return {name: lying(runtime.region) for name, runtime in self.engine.runtimes.items()}

    async def scale(self, count: int, name: str = "w") -> None:
        change = {"spec": {"replicas": count}}
        await self.kube.merge(MachineDeployment, name, change, "default")

    async def template(self) -> str:
        """The template that machines are made from now."""
        group = await self.kube.get(MachineDeployment, "w", "default")
        ref = group.spec.template.spec.infrastructure_ref
        return ref.name if ref else ""

    async def is_taken_up(self) -> bool:
        """Whoever looks after the deployment has seen it as it is now."""
        group = await self.kube.get(MachineDeployment, "w", "default")
        return group.status.observed_generation >= group.metadata.generation

    async def change_template(self, strategy: str) -> str:
        """Another template from now on: w2 after w, w after w2."""
        name = "w2" if await self.template() == "w" else "w"
        ref = {"apiGroup": INFRA, "kind": "ProxmoxMachineTemplate", "name": name}
        change = {
            "rollout": {"strategy": {"type": strategy}},
            "template": {"spec": {"infrastructureRef": ref}},
        }
        await self.kube.merge(MachineDeployment, "w", {"spec": change}, "default")
        return name


def reason_of(machine: ProxmoxMachine) -> str:
    """Why a machine is ready or not."""
    return next((c.reason for c in machine.status.conditions if c.type == "Ready"), "")


def cores_of(name: str) -> int:
    """What tells the guests of one template from those of the other."""
    return 2 if name == "w" else 3


# ---------------------------------------------------------------------- first and last


async def begin(stage: Stage, replicas: int = 2) -> None:
    """The cluster as its users would apply it, and the part of its control plane."""
    stage.before = stage.lying()
    parts = {
        "c-kubeconfig": {"value": stage.kubeconfig},
        "c-ca": {"tls.crt": stage.ca, "tls.key": stage.ca_key},
    }
    for name, data in parts.items():
        await stage.apply(_secret(name, data))
    await stage.apply(CLUSTER % {"port": stage.port})
    for name in ("w", "w2"):
        await stage.apply(TEMPLATE % {"name": name, "more": f"numCores: {cores_of(name)}"})
    await stage.apply(DEPLOYMENT % {"name": "w", "template": "w", "replicas": replicas})
    status = {
        "initialization": {"controlPlaneInitialized": True},
        "externalManagedControlPlane": True,
        "ready": True,
        "initialized": True,
        "replicas": 1,
        "readyReplicas": 1,
        "version": "v1.34.1",
    }
    await stage.kube.merge_status(PLANES, "c", {"status": status}, "default")


def _secret(name: str, data: dict[str, bytes]) -> str:
    labels = {"cluster.x-k8s.io/cluster-name": "c"}
    meta = {"name": name, "namespace": "default", "labels": labels}
    body = {"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret"}
    shown = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return yaml.safe_dump({**body, "metadata": meta, "data": shown})


async def end(stage: Stage) -> None:
    """The Cluster goes, and takes everything of ours with it, and nothing else."""
    await stage.kube.delete(Cluster, "c", "default")

    async def gone() -> bool:
        left = await stage.kube.find(Cluster, "c", "default")
        plane = await stage.kube.find(PLANES, "c", "default")
        return left is None and plane is None and not await stage.guests()

    await stage.until("the cluster is gone", gone)
    after = stage.lying()
    for region, before in stage.before.items():
        assert changed(before, after[region]) == {}, region

    async def given_back() -> bool:
        claims = (await stage.kube.list(IPAddressClaim, "default")).items
        return not claims and not (await stage.kube.list(IPAddress, "default")).items

    await stage.until("addresses are given back", given_back)


# ---------------------------------------------------------------------- the scenes


async def over_two_regions(stage: Stage) -> None:
    """One machine in each region, and its node knows where."""
    machines = await stage.with_nodes(2)
    assert sorted(len(v) for v in stage.vmids().values()) == [1, 1]
    assert {m.status.failure_domain for m in machines} == {"a", "b"}
    for machine in machines:
        assert machine.status.node_ref is not None
        node = await stage.kube.get(NODES, machine.status.node_ref.name)
        assert node["spec"]["providerID"] == machine.spec.provider_id


async def up_and_down(stage: Stage) -> None:
    """More machines, then fewer; those that stay are the ones that were."""
    await stage.scale(4)
    four = {m.uid for m in await stage.with_nodes(4)}
    assert sorted(len(v) for v in stage.vmids().values()) == [2, 2]
    await stage.scale(2)
    two = {m.uid for m in await stage.with_nodes(2)}
    assert two < four
    assert sum(len(v) for v in stage.vmids().values()) == 2


async def one_in_each(stage: Stage) -> list[Machine]:
    """Two machines; where both are in one region, one goes and comes back in the other."""
    while sorted(len(v) for v in stage.vmids().values()) != [1, 1]:
        leaves = (await stage.with_nodes(2))[0].name
        await stage.kube.delete(Machine, leaves, "default")
        await stage.until("it goes", partial(_is_gone, stage, leaves))
        await stage.with_nodes(2)
    return await stage.with_nodes(2)


async def _is_gone(stage: Stage, machine: str) -> bool:
    return await stage.kube.find(Machine, machine, "default") is None


async def region_lost_and_back(stage: Stage) -> None:
    """A region falls silent and comes back: nothing is given up, nothing is made anew."""
    known = {m.uid for m in await one_in_each(stage)}
    before = stage.vmids()
    stage.engine.faults["south"].add(Fault("cut-before"))
    await stage.until("a region that is down is told", lambda: _south_is_told_down(stage))
    stage.engine.faults["south"].remove()
    assert {m.uid for m in await stage.with_nodes(2)} == known
    assert stage.vmids() == before


async def _south_is_told_down(stage: Stage) -> bool:
    said = {m.spec.region: reason_of(m) for m in await stage.guests()}
    return said == {"south": "RegionUnreachable", "north": "Provisioned"}


async def dead_region_stops_nobody(stage: Stage) -> None:
    """While one region is dead, machines come and go in the other."""
    await one_in_each(stage)
    south = stage.vmids()["south"]
    stage.engine.faults["south"].add(Fault("cut-before"))
    await stage.until("a region that is down is told", lambda: _south_is_told_down(stage))
    await stage.scale(3)

    async def came() -> bool:
        return len(await stage.machines()) == 3 and len(stage.vmids()["north"]) == 2

    await stage.until("a machine comes in the other region", came)
    (name, *_) = [m.name for m in await stage.guests() if m.spec.region == "north"]
    await stage.kube.delete(Machine, name, "default")

    async def replaced() -> bool:
        gone = await stage.kube.find(ProxmoxMachine, name, "default") is None
        return gone and await came()

    await stage.until("a machine is replaced in the other region", replaced)
    assert stage.vmids()["south"] == south
    stage.engine.faults["south"].remove()
    await stage.with_nodes(3)
    await stage.scale(2)
    await stage.with_nodes(2)


async def dead_machine_is_replaced(stage: Stage) -> None:
    """A guest dies; its node falls silent, and the health check has it replaced."""
    await stage.with_nodes(2)
    await stage.apply(CHECK)
    dead = (await stage.guests())[0]
    runtime = stage.engine.runtimes[dead.spec.region or ""]
    chaos.perform(runtime, "stop-guest", {"vmid": dead.spec.virtual_machine_id})

    async def told() -> bool:
        seen = await stage.kube.find(ProxmoxMachine, dead.name, "default")
        return seen is None or reason_of(seen) == "Stopped"

    async def gone() -> bool:
        return await stage.kube.find(ProxmoxMachine, dead.name, "default") is None

    await stage.until("a stopped guest is told", told)
    await stage.until("the dead machine goes", gone)
    await stage.with_nodes(2)
    await stage.kube.delete(MachineHealthCheck, "c", "default")


async def rolling_update(stage: Stage) -> None:
    """A new template: every machine is replaced, and never are there fewer than asked for."""
    old = {m.uid for m in await stage.with_nodes(2)}
    new = await stage.change_template("RollingUpdate")

    async def rolled() -> bool:
        assert len((await stage.kube.list(Machine, "default")).items) >= 2
        found = await stage.guests()
        return bool(found) and all(m.spec.num_cores == cores_of(new) for m in found)

    await stage.until("every machine is made from the new template", rolled)
    assert not old & {m.uid for m in await stage.with_nodes(2)}


async def on_delete(stage: Stage) -> None:
    """A new template with OnDelete: a machine is replaced when somebody deletes it, not before."""
    old = {m.uid: m for m in await stage.with_nodes(2)}
    new = await stage.change_template("OnDelete")
    await stage.until("the change is taken up", stage.is_taken_up)
    await asyncio.sleep(stage.still_seconds)
    assert {m.uid for m in await stage.with_nodes(2)} == set(old)
    first = next(iter(old.values()))
    await stage.kube.delete(Machine, first.name, "default")

    async def replaced() -> bool:
        cores = sorted(m.spec.num_cores or 0 for m in await stage.guests())
        return cores == [2, 3] and len(await stage.machines()) == 2

    await stage.until("the deleted machine comes back from the new template", replaced)
    assert len({m.uid for m in await stage.with_nodes(2)} & set(old)) == 1
    change = {"rollout": {"strategy": {"type": "RollingUpdate"}}}
    await stage.kube.merge(MachineDeployment, "w", {"spec": change}, "default")

    async def all_new() -> bool:
        return all(m.spec.num_cores == cores_of(new) for m in await stage.guests())

    await stage.until("the rest follows when it may", all_new)
    await stage.with_nodes(2)


async def names_that_collide(stage: Stage) -> None:
    """The same VMID, host and template name in both regions: two guests, and one may go."""
    await stage.with_nodes(2)
    only = "numCores: 1, vmIDRange: {start: 5000, end: 5000}, target: pve1"
    await stage.apply(TEMPLATE % {"name": "twin", "more": only})
    await stage.apply(DEPLOYMENT % {"name": "twin", "template": "twin", "replicas": 2})
    await stage.with_nodes(4)
    assert all(5000 in v for v in stage.vmids().values())
    twins = [m for m in await stage.guests() if m.spec.virtual_machine_id == 5000]
    assert {m.spec.claim.host for m in twins if m.spec.claim} == {"pve1"}
    await stage.scale(1, "twin")
    await stage.with_nodes(3)
    (stays,) = [m for m in await stage.guests() if m.spec.virtual_machine_id == 5000]
    assert [r for r, v in stage.vmids().items() if 5000 in v] == [stays.spec.region]
    await stage.kube.delete(MachineDeployment, "twin", "default")
    await stage.with_nodes(2)


Scene = Callable[[Stage], Awaitable[None]]
SCENES: tuple[Scene, ...] = (
    over_two_regions,
    up_and_down,
    region_lost_and_back,
    dead_region_stops_nobody,
    dead_machine_is_replaced,
    rolling_update,
    on_delete,
    names_that_collide,
)
