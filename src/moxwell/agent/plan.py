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


def plan_changes(
    guests: Iterable[MarkedGuest],
    online: frozenset[int],
    governors: frozenset[int],
    interrupts: dict[str, tuple[int, ...]],
) -> HostChanges:
    """
    Plan the state of the host.

    ``governors`` are the CPUs whose governor can be set, ``interrupts`` the interrupt numbers of
    PCI devices. A guest that asks for a CPU the host lacks, or that another guest has, is treated
    as a shared one.
    """
    pinned, shared = _divide(tuple(guests), online)
    taken = frozenset(cpu for guest in pinned for cpu in guest.cpus)
    rest = online - taken
    threads: dict[int, frozenset[int]] = {}
    files: dict[str, str] = {}
    for guest in pinned:
        threads |= _pinned_threads(guest, online, rest)
        for device in guest.devices:
            for number in interrupts.get(device, ()):
                files[f"proc/irq/{number}/smp_affinity_list"] = format_list(guest.cpus)
    for guest in shared if taken and rest else ():
        threads |= dict.fromkeys((thread.number for thread in guest.threads), rest)
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


def _pinned_threads(
    guest: MarkedGuest, online: frozenset[int], rest: frozenset[int]
) -> dict[int, frozenset[int]]:
    """One CPU per vCPU; emulator and I/O threads beside them."""
    beside = frozenset(guest.emulator) & online or rest or frozenset(guest.cpus)
    return {
        thread.number: frozenset((guest.cpus[thread.vcpu],))
        if 0 <= thread.vcpu < len(guest.cpus)
        else beside
        for thread in guest.threads
    }
