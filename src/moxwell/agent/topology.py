"""Reads the host's CPUs, caches, NUMA nodes and PCI devices from ``/sys``."""

from typing import Any

from moxwell.agent.cpu_lists import parse_list
from moxwell.agent.host_files import HostFiles
from moxwell.agent.plan import HostCpus

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
PCI = "sys/bus/pci/devices"
FORMAT = 1
_GPU_AND_NETWORK = ("0x02", "0x03", "0x12")  # classes of devices that guests get passed through


def read_topology(files: HostFiles) -> dict[str, Any]:
    """Return the topology as JSON values; a host without NUMA has one node."""
    nodes = _nodes(files)
    return {
        "version": FORMAT,
        "cpus": [_cpu(files, name, nodes) for name in _online(files)],
        "nodes": [{k: v for k, v in node.items() if k != "cpus"} for node in nodes.values()],
        "isolated": list(parse_list(files.read(f"{CPUS}/isolated"))),
        "pci": _devices(files),
    }


def read_cpus(files: HostFiles) -> HostCpus:
    """Return the CPUs that are online, with siblings and NUMA nodes."""
    online = frozenset(parse_list(files.read(f"{CPUS}/online")))
    siblings = {
        cpu: frozenset(parse_list(files.read(f"{CPUS}/cpu{cpu}/topology/thread_siblings_list")))
        for cpu in online
    }
    nodes = {
        int(name[4:]): frozenset(parse_list(files.read(f"{NODES}/{name}/cpulist"))) & online
        for name in files.names(NODES, "node")
    }
    return HostCpus(online, {cpu: found | {cpu} for cpu, found in siblings.items()}, nodes)


def _online(files: HostFiles) -> list[str]:
    online = set(parse_list(files.read(f"{CPUS}/online")))
    return [n for n in files.names(CPUS, "cpu") if not online or int(n[3:]) in online]


def _cpu(files: HostFiles, name: str, nodes: dict[int, dict[str, Any]]) -> list[int]:
    """Return number, core, L3 cache, NUMA node and socket of a CPU."""
    number = int(name[3:])
    siblings = parse_list(files.read(f"{CPUS}/{name}/topology/thread_siblings_list"))
    node = next((n for n, each in nodes.items() if number in each["cpus"]), 0)
    socket = files.number(f"{CPUS}/{name}/topology/physical_package_id", 0)
    return [number, min(siblings, default=number), _cache(files, name), node, max(socket, 0)]


def _cache(files: HostFiles, name: str) -> int:
    """Return the first CPU that shares the last-level cache; it stands for the cache."""
    folder = f"{CPUS}/{name}/cache"
    level = 0
    shared: tuple[int, ...] = (0,)
    for index in files.names(folder, "index"):
        found = files.number(f"{folder}/{index}/level", 0)
        cpus = parse_list(files.read(f"{folder}/{index}/shared_cpu_list"))
        if found > level and cpus:
            level, shared = found, cpus
    return min(shared)


def _nodes(files: HostFiles) -> dict[int, dict[str, Any]]:
    names = files.names(NODES, "node")
    if not names:
        memory = _memory_mib(files.read("proc/meminfo"))
        cpus = {int(name[3:]) for name in files.names(CPUS, "cpu")}
        return {0: {"number": 0, "memory": memory, "pages": {}, "distances": [10], "cpus": cpus}}
    return {int(name[4:]): _node(files, name) for name in names}


def _node(files: HostFiles, name: str) -> dict[str, Any]:
    pages = {}
    for folder in files.names(f"{NODES}/{name}/hugepages"):
        size = folder.removeprefix("hugepages-").removesuffix("kB")
        count = files.number(f"{NODES}/{name}/hugepages/{folder}/nr_hugepages", 0)
        if size.isdecimal() and count:
            pages[str(int(size) // 1024)] = count
    return {
        "number": int(name[4:]),
        "memory": _memory_mib(files.read(f"{NODES}/{name}/meminfo")),
        "pages": pages,
        "distances": [int(d) for d in files.read(f"{NODES}/{name}/distance").split()],
        "cpus": set(parse_list(files.read(f"{NODES}/{name}/cpulist"))),
    }


def _memory_mib(text: str) -> int:
    for line in text.splitlines():
        if "MemTotal:" in line:
            return int(line.split("MemTotal:")[1].split()[0]) // 1024
    return 0


def _devices(files: HostFiles) -> dict[str, int]:
    """Return the NUMA node of each PCI device that guests may get, if the kernel knows it."""
    found = {}
    for address in files.names(PCI):
        if files.read(f"{PCI}/{address}/class").startswith(_GPU_AND_NETWORK):
            node = files.number(f"{PCI}/{address}/numa_node")
            if node >= 0:  # the kernel writes -1 for an unknown one
                found[address] = node
    return found
