"""Converts a placement to fields of a ProxmoxMachine."""

from moxwell.api.infra.cpu_placement import CpuPinning, NumaNodeSpec
from moxwell.scheduling.numa.cpusets import format_cpus
from moxwell.scheduling.numa.placement import NumaPlacement


def numa_nodes(placement: NumaPlacement) -> tuple[NumaNodeSpec, ...]:
    """The guest's NUMA nodes; their memory sums up to that of the guest."""
    return tuple(
        NumaNodeSpec(
            vcpus=format_cpus(node.vcpus, ";"), memory_mib=node.memory_mib, host_node=node.host
        )
        for node in placement.nodes
    )


def cpu_pinning(placement: NumaPlacement) -> CpuPinning | None:
    """The CPUs in the order of the vCPUs; None if the guest shares CPUs."""
    if not placement.cpus:
        return None
    return CpuPinning(
        cpus=",".join(map(str, placement.cpus)),
        emulator_cpus=format_cpus(placement.emulator_cpus) or None,
    )


def sockets(placement: NumaPlacement) -> int:
    """A socket for each NUMA node, if all have the same number of vCPUs; else one."""
    counts = {len(node.vcpus) for node in placement.nodes}
    return len(placement.nodes) if len(counts) == 1 else 1
