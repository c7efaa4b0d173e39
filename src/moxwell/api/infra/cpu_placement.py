"""NUMA nodes, pinned CPUs and huge pages of a ProxmoxMachine."""

from typing import Annotated

from msgspec import Meta, field

from moxwell.api.meta import Value

VCPUS = r"^[0-9]{1,4}(-[0-9]{1,4})?(;[0-9]{1,4}(-[0-9]{1,4})?)*$"
CPUS = r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$"


class NumaNodeSpec(Value, frozen=True, kw_only=True):
    """A NUMA node of the guest; its memory is bound to a NUMA node of the host."""

    vcpus: Annotated[str, Meta(pattern=VCPUS, max_length=512)]  # of the guest: 0-3;6
    memory_mib: Annotated[int, Meta(ge=1)] = field(name="memoryMiB")
    host_node: Annotated[int, Meta(ge=0, le=1023)] = field(name="hostNode")


class CpuPinning(Value, frozen=True, kw_only=True):
    """
    The host's CPUs for the vCPUs, in the order of the vCPUs, and those for the other threads.

    A login as root@pam sets them as ``affinity``; else the host agent applies them.
    """

    cpus: Annotated[str, Meta(pattern=CPUS, max_length=4096)]  # 0,16,1,17
    emulator_cpus: Annotated[str, Meta(pattern=CPUS, max_length=4096)] | None = field(
        name="emulatorCPUs", default=None
    )
