"""Guests on NUMA nodes: tables of choices, and properties over random hosts and shapes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.scheduling.numa import guest_options, sources
from moxwell.scheduling.numa.cpusets import InvalidCpuList, format_cpus, parse_cpus
from moxwell.scheduling.numa.guests import (
    GuestCpuUse,
    free_memory,
    pinned_cpus,
    read_use,
    shared_cpus,
)
from moxwell.scheduling.numa.placement import GuestShape, NoNumaPlacement, NumaPlacement, place
from moxwell.scheduling.numa.sources import InvalidNodeSettings
from moxwell.scheduling.numa.topology import HostTopology, TopologySource


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
    assert guest_options.numa_options(found) == {
        "numa": "1",
        "numa0": "cpus=0-3,hostnodes=0,memory=8192,policy=bind",
    }
    assert found.cpus == (0, 16, 1, 17)  # siblings side by side


def test_a_guest_that_must_span_divides_its_memory_exactly() -> None:
    found = placed(host(), GuestShape(7, 40001))
    lines = guest_options.numa_options(found)
    assert lines["numa0"] == "cpus=0-3,hostnodes=0,memory=20001,policy=bind"
    assert lines["numa1"] == "cpus=4-6,hostnodes=1,memory=20000,policy=bind"


def test_huge_pages_stay_whole() -> None:
    found = placed(host(), GuestShape(4, 41 * 1024, huge_page_mib=1024))
    assert [node.memory_mib for node in found.nodes] == [21 * 1024, 20 * 1024]
    odd = place(host(), (), GuestShape(1, 1500, huge_page_mib=1024))
    assert isinstance(odd, NoNumaPlacement)
    assert "no multiple" in odd.message


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
    ('{"r": {"*": {"reservedcpus": [9]}}}', "no CPU 9"),
    ('{"r": {"*": {"socket": 1}}}', "socket"),
    ("[", "node settings"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_file_with_a_mistake_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidNodeSettings, match=message.replace("*", r"\*")):
        sources.read_settings(text)


NICS = [
    ("virtio=BC:24:11:00:00:01,bridge=vmbr0,queues=2", 4,
     "virtio=BC:24:11:00:00:01,bridge=vmbr0,queues=4"),
    ("virtio,bridge=vmbr0", 100, "virtio,bridge=vmbr0,queues=64"),
    ("e1000=BC:24:11:00:00:01,bridge=vmbr0", 4, "e1000=BC:24:11:00:00:01,bridge=vmbr0"),
    ("model=virtio,macaddr=BC:24:11:00:00:01", 1, "model=virtio,macaddr=BC:24:11:00:00:01"),
]  # fmt: skip


@pytest.mark.parametrize(("nic", "vcpus", "result"), NICS)
def test_queues_follow_vcpus(nic: str, vcpus: int, result: str) -> None:
    assert guest_options.with_queues(nic, vcpus) == result


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
        config = {"cores": str(shape.vcpus), "memory": str(shape.memory_mib)}
        config |= guest_options.numa_options(found) | guest_options.root_options(found, shape)
        assert guest_options.start_problems(config, topology) == ()
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
