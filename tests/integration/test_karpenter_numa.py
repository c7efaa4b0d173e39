"""Launches by NUMA node and with pinned CPUs on simulated hosts, which refuse what Proxmox does."""

import asyncio
import json

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.annotations import HUGE_PAGES, NODE_POLICY
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.controllers.karpenter.provider import InstanceState, LaunchFailure, NodeInstance
from moxwell.controllers.karpenter.proxmox.catalogue import CatalogueSettings
from moxwell.controllers.karpenter.proxmox.host_numa_reader import HostNumaReader
from moxwell.controllers.karpenter.proxmox.node_policy import machine_use
from moxwell.pve.regions import Region
from moxwell.scheduling.numa.cores import whole_cores
from moxwell.scheduling.numa.cpusets import parse_cpus
from moxwell.scheduling.numa.guests import free_memory
from moxwell.scheduling.numa.host_numa import NodePolicy
from moxwell.scheduling.numa.sources import read_settings
from moxwell.scheduling.numa.topology import TopologySource
from moxwell.scheduling.well_known_labels import REGION, ZONE
from moxwell.testing.karpenter_environment import (
    KarpenterEnvironment,
    karpenter_environment,
    node_claim,
)
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.two_regions import WORLD

NUMA_WORLD = WORLD.replace(
    "cpus: 32, memory: 256G", "cpus: 32, sockets: 2, numa_nodes: 2, memory: 256G"
).replace("{cores: 4, memory: 4096, scsi0", '{cores: 4, memory: 4096, affinity: "0-3", scsi0')
STATIC = CatalogueSettings(node_policy=NodePolicy.STATIC)
# even CPUs in the first NUMA node, odd ones in the second, as some BIOSes number them
PUBLISHED = {
    "version": 1,
    "cpus": [[n, n % 16, n % 2, n % 2, n % 2] for n in range(32)],
    "nodes": [{"number": n, "memory": 128 * 1024, "pages": {}} for n in (0, 1)],
}
NOTES = f"Rack 4\n\n<!-- moxwell-agent\n{json.dumps(PUBLISHED)}\n-->\n"
SETTINGS = """{"south": {"pve1": {"threads": 1, "sockets": 2, "reservedcpus": [0, 1],
  "nodes": {"0": {"cpus": "0-15", "memsize": 137438953472},
            "1": {"cpus": "16-31", "memsize": 137438953472}}},
  "*": {"reservedcpus": [5]}}}"""
SHAPES = [("1", "1Gi"), ("3", "4Gi"), ("7", "20Gi"), ("2", "100Gi"), ("15", "30Gi"), ("6", "4Gi")]


async def until_settled(env: KarpenterEnvironment, claim: NodeClaim) -> NodeInstance:
    async def settled() -> NodeInstance | None:
        found = await env.provider.instance(claim)
        if found is None:
            await env.provider.launch(claim)
        done = (InstanceState.LAUNCHED, InstanceState.FAILED)
        return found if found and found.state in done else None

    found: NodeInstance = await env.stage.until(f"{claim.name} is settled", settled)
    return found


def region_of(env: KarpenterEnvironment, name: str) -> Region:
    found = env.program.regions.find(name)
    assert found is not None
    return found


async def check_hosts(env: KarpenterEnvironment) -> int:
    """No CPU is given twice, no NUMA node is overcommitted; what guests say is what was chosen."""
    count = 0
    machines = (await env.kube.list(ProxmoxMachine)).items
    for name in ("north", "south"):
        region = region_of(env, name)
        hosts = sorted(region.inventory.view.hosts)
        fresh = HostNumaReader(LoopClock(), read_settings(SETTINGS))
        read = await fresh.read(region, hosts, ())
        for host, numa in read.items():
            topology, guests = numa.topology, numa.others
            assert all(free >= 0 for free in free_memory(topology, guests).values())
            pinned = [sorted(use.pinned) for use in guests if use.pinned]
            every = [cpu for cpus in pinned for cpu in cpus]
            assert len(every) == len(set(every))
            mine = [m for m in machines if (m.spec.region, m.spec.target) == (name, host)]
            uses = [machine_use(m) for m in mine]
            assert all(use in guests for use in uses)
            for m in mine:
                assert m.spec.cpu_pinning is not None
                cpus = set(parse_cpus(m.spec.cpu_pinning.cpus))
                beside = parse_cpus(m.spec.cpu_pinning.emulator_cpus or "")
                assert not cpus & topology.reserved_cpus
                assert not whole_cores(topology, cpus) & set(beside)
                by_node = {c.number: c.node for c in topology.cpus}
                assert {by_node[c] for c in cpus} == {n.host_node for n in m.spec.numa_nodes}
                assert sum(n.memory_mib for n in m.spec.numa_nodes) == m.spec.memory_mib
            count += len(mine)
    return count


async def pinned_launches(env: KarpenterEnvironment) -> None:
    """Guests of many shapes start; what they use is read back from their configuration."""
    claims = [
        await env.claim(f"shape-{n}", {"cpu": cpu, "memory": memory})
        for n, (cpu, memory) in enumerate(SHAPES * 2)
    ]
    found = await asyncio.gather(*(until_settled(env, claim) for claim in claims))
    assert {instance.state for instance in found} == {InstanceState.LAUNCHED}, found
    assert await check_hosts(env) == len(claims)
    guests = await env.stage.guests()
    assert any(len(g.spec.numa_nodes) == 2 for g in guests)


async def after_a_restart(env: KarpenterEnvironment, fresh: KarpenterEnvironment) -> None:
    again = await fresh.claim("again", {"cpu": "7", "memory": "8Gi"})
    assert (await until_settled(fresh, again)).state is InstanceState.LAUNCHED
    await check_hosts(fresh)
    full = await fresh.claim("full", {"cpu": "15", "memory": "8Gi"})
    for n in range(12):  # until no host has 16 whole cores
        found = await until_settled(fresh, full)
        if found.state is InstanceState.FAILED:
            break
        full = await fresh.claim(f"full-{n}", {"cpu": "15", "memory": "8Gi"})
    assert found.failure is LaunchFailure.INSUFFICIENT_CAPACITY
    types = await fresh.provider.instance_types(await fresh.pool())
    large = next(t for t in types if t.name == "c1.16VCPU-32GB")
    assert not any(o.available for o in large.offerings)
    await check_hosts(fresh)


def test_pinned_guests_start_and_share_nothing() -> None:
    async def story() -> None:
        hosts = read_settings(SETTINGS)
        async with karpenter_environment(world=NUMA_WORLD, settings=STATIC, hosts=hosts) as env:
            north = env.stage.engine.runtimes["north"].region
            north.hosts["pve1"].settings["description"] = NOTES
            await asyncio.sleep(120)  # a guess is not kept for long
            await pinned_launches(env)
            read = await env.provider.parts.sources.numa.read(
                region_of(env, "north"), ["pve1", "pve2"], ()
            )
            assert read["pve1"].topology.source is TopologySource.AGENT
            assert read["pve2"].topology.source is TopologySource.GUESS
            async with env.restarted(settings=STATIC, hosts=hosts) as fresh:
                await after_a_restart(env, fresh)

    run_virtual(story())


async def cpus_pinned(env: KarpenterEnvironment) -> tuple[str, str, str] | None:
    """Status, reason and message of the condition CPUsPinned; None if there is none."""
    conditions = (await env.node_class()).status.conditions
    found = (c for c in conditions if c.type == "CPUsPinned")
    return next(((c.status, c.reason, c.message) for c in found), None)


async def annotate(env: KarpenterEnvironment, **values: str | None) -> None:
    known = {"policy": NODE_POLICY, "pages": HUGE_PAGES}
    change = {"metadata": {"annotations": {known[k]: v for k, v in values.items()}}}
    await env.kube.merge(ProxmoxNodeClass, "default", change)
    await asyncio.sleep(1)


async def refused(env: KarpenterEnvironment) -> str:
    state = await env.provider.node_class(await env.pool())
    assert state is not None
    return "" if state.ready else f"{state.reason}: {state.message}"


def test_a_node_class_chooses_its_policy() -> None:
    async def story() -> None:
        async with karpenter_environment(world=NUMA_WORLD, trusted=True) as env:
            await annotate(env, policy="bound")
            assert "use one of simple, numa, static" in await refused(env)
            await annotate(env, policy="numa", pages="4")
            assert "2 or 1024" in await refused(env)
            await annotate(env, pages="1024")
            assert "root@pam" in await refused(env)
            await annotate(env, pages=None)
            assert await refused(env) == ""
            claim = await env.claim("bound", {"cpu": "3", "memory": "6Gi"})
            assert (await until_settled(env, claim)).state is InstanceState.LAUNCHED
            guest = (await env.stage.guests())[0]
            assert guest.spec.cpu_pinning is None
            assert [n.memory_mib for n in guest.spec.numa_nodes] == [guest.spec.memory_mib]

    run_virtual(story())


def test_a_tenant_does_not_pin_unless_the_operator_permits_it() -> None:
    async def story() -> None:
        async with karpenter_environment(world=NUMA_WORLD) as env:
            await annotate(env, policy="static")
            assert "NodePolicyNotAllowed" in await refused(env)
            claim = await env.claim("refused")
            await env.provider.launch(claim)
            found = await env.provider.instance(claim)
            assert found is not None
            assert found.failure is LaunchFailure.NODE_CLASS_NOT_READY
            assert not (await env.kube.list(ProxmoxMachine)).items

    run_virtual(story())


MAPPED = {"map": "node=pve1,path=0000:41:00.0,id=10de:2204,iommugroup=7"}
DEVICE = {"vendor": "0x10de", "device": "0x2204", "iommugroup": 7, "class": "0x030000"}


def test_a_guest_with_a_mapped_device_is_placed_on_the_numa_node_of_the_device() -> None:
    async def story() -> None:
        async with karpenter_environment(world=NUMA_WORLD, trusted=True) as env:
            north = env.stage.engine.runtimes["north"].region
            north.hosts["pve1"].pci["0000:41:00.0"] = dict(DEVICE)
            await env.transports["north"].request(
                "POST", "/cluster/mapping/pci", {"id": "gpu", **MAPPED}
            )
            north.guests[9000].conf["hostpci0"] = "mapping=gpu"
            await annotate(env, policy="numa")
            for node in (1, 0):
                told = {**PUBLISHED, "pci": {"0000:41:00.0": node}}
                block = f"<!-- moxwell-agent\n{json.dumps(told)}\n-->"
                north.hosts["pve1"].settings["description"] = block
                await asyncio.sleep(660)  # until topologies and templates are read again
                body = node_claim(f"near-{node}", {"cpu": "2", "memory": "4Gi"})
                body["spec"]["requirements"] = [
                    {"key": ZONE, "operator": "In", "values": ["pve1"]},
                    {"key": REGION, "operator": "In", "values": ["north"]},
                ]
                await env.kube.create(body, NodeClaim.resource)
                claim = await env.kube.get(NodeClaim, f"near-{node}")
                assert (await until_settled(env, claim)).state is InstanceState.LAUNCHED
                (guest,) = await env.stage.guests()
                assert [n.host_node for n in guest.spec.numa_nodes] == [node]
                await env.provider.terminate(claim.name, claim.uid)
                await env.kube.delete(NodeClaim, claim.name)
                await asyncio.sleep(120)

    run_virtual(story())


def test_a_class_says_that_nothing_pins_the_cpus_which_a_token_may_not_set() -> None:
    async def story() -> None:
        world = NUMA_WORLD[: NUMA_WORLD.index("  - name: south")]
        async with karpenter_environment(world=world, trusted=True) as env:
            assert await cpus_pinned(env) is None
            await annotate(env, policy="static")

            async def is_said(status: str, text: str) -> bool:
                found = await cpus_pinned(env)
                return found is not None and found[0] == status and text in found[2]

            named = "north/pve1, north/pve2, north/pve3"
            await env.stage.until("the hosts are named", lambda: is_said("False", named))
            status, reason, message = await cpus_pinned(env) or ("", "", "")
            assert (status, reason) == ("False", "HostAgentMissing")
            assert "install moxwell-agent on these hosts or log in as root@pam" in message
            assert await refused(env) == ""  # nodes are made all the same
            hosts = env.stage.engine.runtimes["north"].region.hosts
            for name in ("pve1", "pve2"):
                hosts[name].settings["description"] = NOTES
            only = "the CPUs of north/pve3, and"
            await env.stage.until("agents are found", lambda: is_said("False", only))
            hosts["pve3"].settings["description"] = NOTES
            await env.stage.until("CPUs are pinned", lambda: is_said("True", ""))
            await annotate(env, policy="numa")

            async def is_gone() -> bool:
                return await cpus_pinned(env) is None

            await env.stage.until("the condition is gone", is_gone)

    run_virtual(story())
