"""Topology from ``/sys``: a fake host with two sockets, and the real one that runs the tests."""

import json
from pathlib import Path

import pytest

from moxwell.agent import notes
from moxwell.agent.cpu_lists import format_list, parse_list
from moxwell.agent.host_files import HostFiles
from moxwell.agent.topology import read_topology
from moxwell.scheduling.numa.agent_topology import from_agent, published_topology
from moxwell.scheduling.numa.devices import near_nodes
from moxwell.scheduling.numa.placement import GuestShape, NumaPlacement, place
from moxwell.scheduling.numa.sources import InvalidNodeSettings


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


@pytest.fixture
def host(tmp_path: Path) -> HostFiles:
    """Two sockets with two cores of two threads each, numbered as Linux does on AMD."""
    put(tmp_path, "sys/devices/system/cpu/online", "0-7")
    put(tmp_path, "sys/devices/system/cpu/isolated", "3")
    for cpu in range(8):
        core = cpu % 4
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        put(tmp_path, f"{folder}/topology/thread_siblings_list", f"{core},{core + 4}")
        put(tmp_path, f"{folder}/topology/physical_package_id", str(core // 2))
        put(tmp_path, f"{folder}/cache/index0/level", "1")
        put(tmp_path, f"{folder}/cache/index0/shared_cpu_list", f"{core},{core + 4}")
        put(tmp_path, f"{folder}/cache/index3/level", "3")
        first = core // 2 * 2
        put(tmp_path, f"{folder}/cache/index3/shared_cpu_list", f"{first}-{first + 1},{first + 4}")
    for node in range(2):
        folder = f"sys/devices/system/node/node{node}"
        put(
            tmp_path,
            f"{folder}/cpulist",
            f"{node * 2}-{node * 2 + 1},{node * 2 + 4}-{node * 2 + 5}",
        )
        put(tmp_path, f"{folder}/meminfo", f"Node {node} MemTotal:  8388608 kB")
        put(tmp_path, f"{folder}/distance", "10 21")
        put(tmp_path, f"{folder}/hugepages/hugepages-1048576kB/nr_hugepages", "2")
        put(tmp_path, f"{folder}/hugepages/hugepages-2048kB/nr_hugepages", "0")
    put(tmp_path, "sys/bus/pci/devices/0000:41:00.0/class", "0x030200")
    put(tmp_path, "sys/bus/pci/devices/0000:41:00.0/numa_node", "1")
    put(tmp_path, "sys/bus/pci/devices/0000:00:00.0/class", "0x060000")
    put(tmp_path, "sys/bus/pci/devices/0000:42:00.0/class", "0x020000")
    put(tmp_path, "sys/bus/pci/devices/0000:42:00.0/numa_node", "-1")
    return HostFiles(tmp_path)


def test_topology_of_a_host_with_two_sockets(host: HostFiles) -> None:
    found = read_topology(host)
    assert found["cpus"][5] == [5, 1, 0, 0, 0]
    assert found["cpus"][7] == [7, 3, 2, 1, 1]
    assert [node["memory"] for node in found["nodes"]] == [8192, 8192]
    assert found["nodes"][0]["pages"] == {"1024": 2}
    assert found["isolated"] == [3]
    assert found["pci"] == {"0000:41:00.0": 1}


def test_the_published_topology_places_guests(host: HostFiles) -> None:
    text = notes.with_topology("# My host\n", read_topology(host))
    topology = published_topology(text)
    assert topology is not None
    found = place(topology, (), GuestShape(2, 4096, pinned=True))
    assert isinstance(found, NumaPlacement)
    assert found.cpus == (0, 4)
    assert topology.devices == {"0000:41:00.0": 1}
    near = near_nodes(topology, ["41:00.0"], {})
    beside = place(topology, (), GuestShape(2, 4096, pinned=True), near=near)
    assert isinstance(beside, NumaPlacement)
    assert [node.host for node in beside.nodes] == [1]


def test_this_machine_has_a_topology() -> None:
    assert from_agent(json.dumps(read_topology(HostFiles()))).cpus


def test_notes_of_the_operator_stay() -> None:
    first = notes.with_topology("# Rack 4\n\ncall Ann", {"version": 1})
    second = notes.with_topology(first, {"version": 2})
    assert notes.find_topology(second) == {"version": 2}
    assert second.count("moxwell-agent") == 1
    assert notes.without_topology(second) == "# Rack 4\n\ncall Ann"


@pytest.mark.parametrize("text", ["", "<!-- moxwell-agent\n{\n-->", "<!-- moxwell-agent\n[]\n-->"])
def test_notes_without_a_topology(text: str) -> None:
    assert notes.find_topology(text) is None


def test_notes_without_a_block_publish_nothing() -> None:
    assert published_topology("# Rack 4") is None


@pytest.mark.parametrize(
    "published",
    [
        None,
        {},
        {"version": 2},
        {"version": 1, "cpus": [[0, 0, 0, 1, 0]], "nodes": [{"number": 0, "memory": 1}]},
        {"version": 1, "cpus": [[0]], "nodes": []},
    ],
)
def test_a_topology_that_cannot_be_is_refused(published: object) -> None:
    with pytest.raises(InvalidNodeSettings):
        from_agent(json.dumps(published))


@pytest.mark.parametrize(("text", "cpus"), [("0-2,5", (0, 1, 2, 5)), ("", ()), ("x,1", (1,))])
def test_cpu_lists_of_the_kernel(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_list(text) == cpus
    assert parse_list(format_list(cpus)) == cpus
