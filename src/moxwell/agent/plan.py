"""Decides which threads, governors and interrupts are set. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from moxwell.agent.cpu_lists import format_list
from moxwell.agent.marked_guests import MarkedGuest

GOVERNOR = "performance"


@dataclass(frozen=True)
class HostChanges:
    """The desired state: CPUs of threads, and files with their content."""

    threads: dict[int, frozenset[int]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HostCpus:
    """The CPUs that are online, the siblings of each, and the CPUs of each NUMA node."""

    online: frozenset[int]
    siblings: dict[int, frozenset[int]] = field(default_factory=dict)
    nodes: dict[int, frozenset[int]] = field(default_factory=dict)

    def whole_cores(self, cpus: Iterable[int]) -> frozenset[int]:
        """The CPUs with all their siblings."""
        return frozenset(s for cpu in cpus for s in self.siblings.get(cpu, {cpu}))


def plan_changes(
    guests: Iterable[MarkedGuest],
    host: HostCpus,
    governors: frozenset[int],
    interrupts: dict[str, tuple[int, ...]],
) -> HostChanges:
    """
    Plan the state of the host.

    ``governors`` are the CPUs whose governor can be set, ``interrupts`` the interrupt numbers of
    PCI devices. A guest that asks for a CPU the host lacks, or that another guest has, is treated
    as a shared one. Shared guests keep off the whole cores of pinned ones; vCPUs whose memory is
    bound to a NUMA node run on the CPUs of that node.
    """
    pinned, shared = _divide(tuple(guests), host.online)
    taken = frozenset(cpu for guest in pinned for cpu in guest.cpus)
    rest = host.online - host.whole_cores(taken) or host.online - taken
    threads: dict[int, frozenset[int]] = {}
    files: dict[str, str] = {}
    for guest in pinned:
        threads |= _pinned_threads(guest, rest)
        for device in guest.devices:
            for number in interrupts.get(device, ()):
                files[f"proc/irq/{number}/smp_affinity_list"] = format_list(guest.cpus)
    for guest in shared if rest else ():
        threads |= _shared_threads(guest, host, rest, crowded=bool(taken))
    for cpu in taken & governors:
        files[governor_file(cpu)] = GOVERNOR
    return HostChanges(threads, files)


def governor_file(cpu: int) -> str:
    return f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"


def _divide(
    guests: tuple[MarkedGuest, ...], online: frozenset[int]
) -> tuple[list[MarkedGuest], list[MarkedGuest]]:
    pinned, shared, taken = list[MarkedGuest](), list[MarkedGuest](), set[int]()
    for guest in guests:
        cpus = set(guest.cpus)
        if cpus and cpus <= online and not cpus & taken:
            pinned.append(guest)
            taken |= cpus
        else:
            shared.append(guest)
    return pinned, shared


def _shared_threads(
    guest: MarkedGuest, host: HostCpus, rest: frozenset[int], *, crowded: bool
) -> dict[int, frozenset[int]]:
    """Each vCPU beside its memory; other threads anywhere that no guest is pinned to."""
    found = {}
    for thread in guest.threads:
        near = frozenset(
            cpu for node in guest.nodes.get(thread.vcpu, ()) for cpu in host.nodes.get(node, ())
        )
        if near & rest or crowded:
            found[thread.number] = near & rest or rest
    return found


def _pinned_threads(guest: MarkedGuest, rest: frozenset[int]) -> dict[int, frozenset[int]]:
    """One CPU per vCPU; emulator and I/O threads beside all pinned guests."""
    beside = frozenset(guest.emulator) & rest or rest or frozenset(guest.cpus)
    return {
        thread.number: frozenset((guest.cpus[thread.vcpu],))
        if 0 <= thread.vcpu < len(guest.cpus)
        else beside
        for thread in guest.threads
    }
