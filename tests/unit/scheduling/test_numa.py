"""Guests on NUMA nodes: tables of choices, and properties over random hosts and shapes."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.api.infra.cpu_placement import CpuPinning
from moxwell.api.infra.machine import ProxmoxMachineSpec
from moxwell.api.infra.network import NetworkDevice
from moxwell.api.infra.zone_settings import ZoneSettings
from moxwell.scheduling import guest_hardware
from moxwell.scheduling.numa import guest_options, sources
from moxwell.scheduling.numa.cpusets import InvalidCpuList, format_cpus, parse_cpus
from moxwell.scheduling.numa.guests import (
    MAX_NUMA,
    GuestCpuUse,
    applied_cpus,
    free_memory,
    pinned_cpus,
    read_use,
    shared_cpus,
)
from moxwell.scheduling.numa.placement import GuestShape, NoNumaPlacement, NumaPlacement, place
from moxwell.scheduling.numa.sources import InvalidNodeSettings
from moxwell.scheduling.numa.topology import HostNumaNode, HostTopology, TopologySource


def host(
    sockets: int = 2, cores: int = 16, threads: int = 2, memory: int = 65536, model: str = ""
) -> HostTopology:
    return sources.guess(
        sockets=sockets, cores=cores, cpus=cores * threads, memory_mib=memory, model=model
    )


def placed(topology: HostTopology, shape: GuestShape, *guests: GuestCpuUse) -> NumaPlacement:
    found = place(topology, guests, shape)
    assert isinstance(found, NumaPlacement), found
    return found


def options_of(found: NumaPlacement) -> dict[str, str]:
    return guest_hardware.compute(ProxmoxMachineSpec(numa_nodes=guest_options.numa_nodes(found)))


CPU_LISTS = [
    ("", ()),
    ("3", (3,)),
    ("0-3,8", (0, 1, 2, 3, 8)),
    ("8,0-1", (8, 0, 1)),
]


@pytest.mark.parametrize(("text", "cpus"), CPU_LISTS)
def test_cpu_lists(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpus(text) == cpus
    assert parse_cpus(format_cpus(cpus)) == tuple(sorted(cpus))


@pytest.mark.parametrize("text", ["a", "1-0", "1-", "-1", "0-99999", "1;2"])
def test_cpu_lists_that_are_none(text: str) -> None:
    with pytest.raises(InvalidCpuList):
        parse_cpus(text)


def test_a_guest_that_fits_stays_inside_one_node() -> None:
    found = placed(host(), GuestShape(4, 8192, pinned=True))
    assert [node.host for node in found.nodes] == [0]
    assert options_of(found) == {
        "numa": "1",
        "numa0": "cpus=0-3,hostnodes=0,memory=8192,policy=bind",
    }
    assert found.cpus == (0, 16, 1, 17)  # siblings side by side


def test_a_guest_that_must_span_divides_its_memory_exactly() -> None:
    found = placed(host(), GuestShape(7, 40001))
    lines = options_of(found)
    assert lines["numa0"] == "cpus=0-3,hostnodes=0,memory=20001,policy=bind"
    assert lines["numa1"] == "cpus=4-6,hostnodes=1,memory=20000,policy=bind"


def test_huge_pages_stay_whole() -> None:
    found = placed(host(), GuestShape(4, 41 * 1024, huge_page_mib=1024))
    assert [node.memory_mib for node in found.nodes] == [21 * 1024, 20 * 1024]
    odd = place(host(), (), GuestShape(1, 1500, huge_page_mib=1024))
    assert isinstance(odd, NoNumaPlacement)
    assert "not a multiple" in odd.message


def test_the_fuller_node_is_used_first() -> None:
    first = GuestCpuUse(4, 16384, frozenset((0, 16, 1, 17)), {0: 16384})
    assert placed(host(), GuestShape(2, 4096, pinned=True), first).nodes[0].host == 0


def test_a_pinned_guest_leaves_shared_guests_their_cpus() -> None:
    topology = host(sockets=1, cores=4, threads=1)
    shared = GuestCpuUse(3, 1024)
    assert isinstance(place(topology, [shared], GuestShape(2, 1024, pinned=True)), NoNumaPlacement)
    assert isinstance(place(topology, [shared], GuestShape(1, 1024, pinned=True)), NumaPlacement)


def test_caches_are_kept_together_on_epyc() -> None:
    topology = host(1, 32, 1, 262144, "AMD EPYC 7513 32-Core Processor")
    busy = GuestCpuUse(5, 1024, frozenset(range(8, 13)), {0: 1024})
    found = placed(topology, GuestShape(3, 1024, pinned=True), busy)
    assert found.cpus == (13, 14, 15)  # the rest of the second cache


def test_what_is_in_use_is_read_from_guests() -> None:
    use = read_use(
        {
            "cores": "2",
            "sockets": "2",
            "memory": "4096",
            "numa": "1",
            "numa0": "cpus=0-3,hostnodes=1,memory=4096,policy=bind",
            "affinity": "8-11",
        }
    )
    assert (use.vcpus, use.bound, use.pinned) == (4, {1: 4096}, frozenset(range(8, 12)))
    broken = read_use({"cores": "x", "affinity": "?", "numa": "1", "numa0": "what"})
    assert (broken.vcpus, broken.pinned, broken.bound) == (1, frozenset(), {})


def test_memory_bound_nowhere_counts_on_all_nodes() -> None:
    free = free_memory(host(), [GuestCpuUse(1, 1000)])
    assert free == {0: 32768 - 512 - 500, 1: 32768 - 512 - 500}


SETTINGS = {
    "r1": {
        "*": {
            "sockets": 1,
            "threads": 2,
            "uncorecaches": 2,
            "nodes": {
                "0": {"cpus": "0-3,8-11", "memsize": 8 << 30},
                "1": {"cpus": "4-7,12-15", "memory": 8 << 30},
            },
            "reservedcpus": [0, 8],
        }
    }
}


def test_a_file_describes_hosts() -> None:
    read = sources.read_settings(json.dumps(SETTINGS))
    settings_found = sources.settings_of(read, "r1", "pve7")
    assert settings_found is not None
    topology = sources.from_settings(settings_found)
    assert topology.source is TopologySource.FILE
    assert [n.memory_mib for n in topology.nodes] == [8192, 8192]
    assert {c.number for c in topology.usable(0)} == {1, 2, 3, 9, 10, 11}
    assert {c.core for c in topology.cpus if c.number in (1, 9)} == {1}


REFUSED = [
    ('{"r": {"*": {"nodes": {"x": {"cpus": "0", "memsize": 1}}}}}', "r.*.nodes"),
    ('{"r": {"*": {"nodes": {"0": {"cpus": "0-", "memsize": 1}}}}}', "r.*.nodes.0.cpus"),
    ('{"r": {"*": {"nodes": {"0": {"cpus": "0"}}}}}', "set memsize"),
    (
        '{"r": {"*": {"nodes": {"0": {"cpus": "0", "memsize": 1}}, "reservedcpus": [9]}}}',
        "no CPU 9",
    ),
    ('{"r": {"*": {"cpuovercommit": 0}}}', "cpuovercommit"),
    ('{"r": {"*": {"socket": 1}}}', "socket"),
    ("[", "node settings"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_file_with_a_mistake_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidNodeSettings, match=message.replace("*", r"\*")):
        sources.read_settings(text)


NICS = [
    ("virtio=BC:24:11:00:00:01,bridge=vmbr0,queues=2", 4, None, "queues=4"),
    ("virtio=BC:24:11:00:00:01,bridge=vmbr0", 100, None, "queues=64"),
    ("virtio=BC:24:11:00:00:01,bridge=vmbr0", 4, 2, "queues=2"),
    ("e1000=BC:24:11:00:00:01,bridge=vmbr0", 4, None, ""),
    ("", 1, None, "queues=1"),
]


@pytest.mark.parametrize(("nic", "vcpus", "given", "result"), NICS)
def test_queues_follow_vcpus(nic: str, vcpus: int, given: int | None, result: str) -> None:
    spec = ProxmoxMachineSpec(num_cores=vcpus, network_queues="PerCPU")
    changes = guest_hardware.wanted_config(
        spec,
        ZoneSettings(),
        owner="u",
        devices=(NetworkDevice(name="net0", queues=given),),
        current={"net0": nic},
    )
    found = [part for part in changes.put["net0"].split(",") if part.startswith("queues")]
    assert found == ([result] if result else [])
    assert "bridge=vmbr0" in changes.put["net0"]


def test_only_root_writes_the_affinity_and_the_agent_reads_the_description() -> None:
    spec = ProxmoxMachineSpec(
        num_cores=4,
        description="node\nmoxwell-cpus: 0-63\nmore",
        cpu_pinning=CpuPinning(cpus="1,17,0,16", emulator_cpus="2-3"),
    )
    text = guest_hardware.description(spec)
    assert text == "node\nmore\n\nmoxwell-cpus: 1,17,0,16 emulator=2-3"
    assert applied_cpus({"tags": "a;moxwell", "description": text}) == "1,17,0,16"
    assert applied_cpus({"tags": "a", "description": text}) == ""
    assert guest_hardware.description(ProxmoxMachineSpec(description="moxwell-cpus: 1")) == ""
    for root, result in ((True, "0-1,16-17"), (False, None)):
        changes = guest_hardware.wanted_config(
            spec, ZoneSettings(), owner="u", devices=(), current={}, root=root
        )
        assert changes.put.get("affinity") == result


def test_the_template_adds_no_numa_nodes_and_no_memory_hotplug() -> None:
    found = placed(host(), GuestShape(4, 8192))
    spec = ProxmoxMachineSpec(memory_mib=8192, numa_nodes=guest_options.numa_nodes(found))
    current = {"numa0": "cpus=0", "numa3": "cpus=1", "hotplug": "disk,memory", "numa": "0"}
    changes = guest_hardware.wanted_config(
        spec, ZoneSettings(), owner="u", devices=(), current=current
    )
    assert changes.drop == ("numa3",)
    assert (changes.put["hotplug"], changes.put["numa"]) == ("network,disk,usb", "1")


@pytest.mark.parametrize(("vcpus", "count", "sockets"), [(4, 1, 1), (8, 2, 2), (7, 2, 1)])
def test_a_socket_for_each_numa_node(vcpus: int, count: int, sockets: int) -> None:
    found = placed(host(cores=8, threads=1, memory=16384), GuestShape(vcpus, count * 4096 + 1024))
    assert len(found.nodes) == count
    assert guest_options.sockets(found) == sockets


def test_huge_pages_that_others_use_are_not_given_again() -> None:
    nodes = tuple(HostNumaNode(n, 32768, {1024: 8}) for n in range(2))
    topology = replace(host(), nodes=nodes)
    busy = GuestCpuUse(2, 6144, frozenset(), {0: 6144}, 1024)
    found = placed(topology, GuestShape(2, 4096, huge_page_mib=1024), busy)
    assert [node.host for node in found.nodes] == [1]
    refused = place(topology, [busy], GuestShape(2, 11264, huge_page_mib=1024))
    assert isinstance(refused, NoNumaPlacement)
    assert "huge pages" in refused.message


def test_shared_guests_do_not_crowd_one_node() -> None:
    topology = host(sockets=2, cores=8, threads=1)
    bound = {"numa": "1", "numa0": "cpus=0-3,hostnodes=0,memory=1024,policy=bind"}
    first = read_use({"cores": "4", "memory": "1024"} | bound)
    assert first.bound_vcpus == {0: 4}
    assert [n.host for n in placed(topology, GuestShape(2, 1024), first).nodes] == [1]
    pinned = placed(topology, GuestShape(2, 1024, pinned=True), first)
    assert [n.host for n in pinned.nodes] == [1]  # the bound vCPUs keep the CPUs of node 0


hosts = st.builds(
    host,
    sockets=st.sampled_from([1, 2, 4]),
    cores=st.sampled_from([4, 8, 16, 32]),
    threads=st.sampled_from([1, 2]),
    memory=st.sampled_from([8192, 65536, 262143]),
    model=st.sampled_from(["", "AMD EPYC 7513", "AMD EPYC 7302"]),
)
shapes = st.builds(
    GuestShape,
    vcpus=st.integers(1, 24),
    memory_mib=st.integers(1, 64).map(lambda n: n * 1024),
    pinned=st.booleans(),
    huge_page_mib=st.sampled_from([0, 0, 2, 1024]),
)


def config_of(found: NumaPlacement, shape: GuestShape) -> dict[str, str]:
    """The configuration that a login as root@pam writes."""
    sockets = guest_options.sockets(found)
    spec = ProxmoxMachineSpec(
        num_sockets=sockets,
        num_cores=shape.vcpus // sockets,
        memory_mib=shape.memory_mib,
        numa_nodes=guest_options.numa_nodes(found),
        cpu_pinning=guest_options.cpu_pinning(found),
        huge_pages_mib=shape.huge_page_mib or None,  # type: ignore[arg-type]
    )
    changes = guest_hardware.wanted_config(
        spec, ZoneSettings(), owner="u", devices=(), current={}, root=True
    )
    return dict(changes.put)


def start_problems(config: Mapping[str, str], topology: HostTopology) -> tuple[str, ...]:
    """What Proxmox and QEMU refuse at a start, as recorded from genuine ones."""
    vcpus = int(config["cores"]) * int(config["sockets"])
    problems = []
    if vcpus > len(topology.cpus):
        problems.append(f"MAX {len(topology.cpus)} vcpus allowed per VM on this node")
    if missing := set(parse_cpus(config.get("affinity", ""))) - topology.numbers:
        problems.append(f"the host has no CPU {min(missing)}")
    if config.get("hugepages") and config.get("numa") != "1":
        problems.append("numa needs to be enabled to use hugepages")
    seen, total = list[int](), 0
    for text in (config[f"numa{n}"] for n in range(MAX_NUMA) if f"numa{n}" in config):
        options = dict(part.partition("=")[::2] for part in text.split(","))
        seen += parse_cpus(options["cpus"], ";")
        total += int(options["memory"])
        problems += [f"NUMA node {n}" for n in parse_cpus(options["hostnodes"], ";")
                     if n not in {node.number for node in topology.nodes}]  # fmt: skip
        if int(options["memory"]) % int(config.get("hugepages", "1")):
            problems.append("not a multiple of the requested hugepages size")
        problems += [] if options.get("policy") else ["you need to define a policy for hostnode"]
    if sorted(seen) != list(range(vcpus)):
        problems.append("a vCPU is in no node, in two nodes or out of range")
    if total != int(config["memory"]):
        problems.append("total memory for NUMA nodes must be equal to vm static memory")
    return tuple(problems)


@settings(max_examples=150)
@given(hosts, st.lists(shapes, max_size=12))
def test_no_node_core_or_page_is_given_twice(
    topology: HostTopology, asked: list[GuestShape]
) -> None:
    guests: list[GuestCpuUse] = []
    for shape in asked:
        found = place(topology, guests, shape)
        assert found == place(topology, guests, shape)  # the same input gives the same output
        if isinstance(found, NoNumaPlacement):
            assert found.message
            continue
        config = config_of(found, shape)
        assert start_problems(config, topology) == ()
        taken = pinned_cpus(guests)
        assert not set(found.cpus) & (taken | topology.reserved_cpus)
        assert len(set(found.cpus)) == (shape.vcpus if shape.pinned else 0)
        guests.append(read_use(config))
        if shape.pinned:
            cores = {c.core for c in topology.cpus if c.number in taken}
            assert not cores & {c.core for c in topology.cpus if c.number in found.cpus}
    assert all(free >= 0 for free in free_memory(topology, guests).values())
    running = sum(guest.vcpus for guest in guests if not guest.pinned)
    assert running <= len(shared_cpus(topology, guests))
