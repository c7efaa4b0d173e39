"""Writes a placement as options of a guest, and checks options by Proxmox's rules of a start."""

from collections.abc import Mapping

from moxwell.scheduling.numa.cpusets import format_cpus, parse_cpus
from moxwell.scheduling.numa.guests import MAX_NUMA
from moxwell.scheduling.numa.placement import GuestShape, NumaPlacement
from moxwell.scheduling.numa.topology import HostTopology

MAX_QUEUES = 64


def numa_options(placement: NumaPlacement) -> dict[str, str]:
    """The options that any token may set; affinity and huge pages need root or the agent."""
    options = {"numa": "1"}
    for number, node in enumerate(placement.nodes):
        cpus = format_cpus(node.vcpus, ";")
        options[f"numa{number}"] = (
            f"cpus={cpus},hostnodes={node.host},memory={node.memory_mib},policy=bind"
        )
    return options


def root_options(placement: NumaPlacement, shape: GuestShape) -> dict[str, str]:
    """The options that only root@pam may set."""
    options = {"affinity": format_cpus(placement.cpus)} if placement.cpus else {}
    if shape.huge_page_mib:
        options["hugepages"] = str(shape.huge_page_mib)
    return options


def with_queues(nic: str, vcpus: int) -> str:
    """Set a virtio NIC's queues to the number of vCPUs; everything else stays."""
    parts = [part for part in nic.split(",") if part]
    if not any(
        part.partition("=")[0] in ("virtio", "model") and "virtio" in part for part in parts
    ):
        return nic
    kept = [part for part in parts if not part.startswith("queues=")]
    return ",".join([*kept, f"queues={min(vcpus, MAX_QUEUES)}"]) if vcpus > 1 else ",".join(kept)


def start_problems(config: Mapping[str, str], topology: HostTopology) -> tuple[str, ...]:
    """What Proxmox and QEMU refuse when a guest with these options starts."""
    vcpus = int(config.get("cores", "1")) * int(config.get("sockets", "1"))
    problems = []
    if vcpus > len(topology.cpus):
        problems.append(f"MAX {len(topology.cpus)} vcpus allowed per VM on this node")
    if missing := set(parse_cpus(config.get("affinity", ""))) - topology.numbers:
        problems.append(f"the host has no CPU {min(missing)}")
    if config.get("numa") != "1":
        if config.get("hugepages"):
            problems.append("numa needs to be enabled to use hugepages")
        return tuple(problems)
    return (*problems, *_numa_problems(config, vcpus, topology))


def _numa_problems(
    config: Mapping[str, str], vcpus: int, topology: HostTopology
) -> tuple[str, ...]:
    problems, total, seen = list[str](), 0, set[int]()
    hosts = {node.number for node in topology.nodes}
    given = [config[f"numa{n}"] for n in range(MAX_NUMA) if f"numa{n}" in config]
    for text in given:
        options = dict(part.partition("=")[::2] for part in text.split(","))
        cpus = parse_cpus(options.get("cpus", ""), ";")
        if max(cpus, default=0) >= vcpus or seen & set(cpus):
            problems.append("a vCPU is out of range or in two NUMA nodes")
        seen |= set(cpus)
        total += int(options.get("memory", "0"))
        for host in set(parse_cpus(options.get("hostnodes", ""), ";")) - hosts:
            problems.append(f"host NUMA node{host} doesn't exist")
        if "hostnodes" in options and "policy" not in options:
            problems.append("you need to define a policy for hostnode")
    if given and total != int(config.get("memory", "512")):
        problems.append("total memory for NUMA nodes must be equal to vm static memory")
    return tuple(problems)
