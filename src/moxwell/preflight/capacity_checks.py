"""Checks of free VMIDs, of room for guests and of high availability. Pure."""

from collections.abc import Iterable

from moxwell.preflight.facts import RegionFacts
from moxwell.preflight.outcome import GuestNeed, RegionCheck, RegionNeeds, failed, passed, warned
from moxwell.scheduling.inventory_model import GIB

MIN_FREE_VMIDS = 100
MIN_HA_HOSTS = 3


def check_vmids(facts: RegionFacts, needs: RegionNeeds) -> Iterable[RegionCheck]:
    """Whether the range has VMIDs for the guests."""
    free = len(needs.vmids) - sum(vmid in needs.vmids for vmid in facts.vmids)
    shown = f"{needs.vmids.start} to {needs.vmids.stop - 1}"
    wanted = sum(guest.count for guest in needs.guests)
    do = "delete guests in it, or configure another range (vmIDRange)"
    if free < wanted:
        yield failed("vmids", f"{free} VMIDs from {shown} are free, {wanted} are needed", do)
    elif free < MIN_FREE_VMIDS:
        yield warned("vmids", f"{free} VMIDs from {shown} are free", do)
    else:
        yield passed("vmids", f"{free} VMIDs are free")


def check_capacity(facts: RegionFacts, needs: RegionNeeds) -> Iterable[RegionCheck]:
    """Whether hosts have the memory for all guests, the largest guests first."""
    free = {host: list(room) for host, room in facts.free.items() if needs.allows(host)}
    do = "stop guests, add a host, or ask for smaller or fewer nodes"
    for guest in sorted(needs.guests, key=lambda g: -g.memory_bytes) if free else ():
        text = f"{guest.cpus} CPUs and {guest.memory_bytes / GIB:.3g} GiB of memory"
        if not any(_fits(room, guest) for room in facts.free.values()):
            yield failed("capacity", f"no host has {text} for a guest", do)
            return
        for number in range(guest.count):
            host = max(free, key=lambda name: free[name][1])
            if not _fits(free[host], guest):
                text = f"there is room for {number} of {guest.count} guests with {text}"
                yield failed("capacity", text, do)
                return
            free[host][1] -= guest.memory_bytes
    yield passed("capacity", "hosts have room for the guests")


def _fits(room: Iterable[int], guest: GuestNeed) -> bool:
    cpus, memory = room
    return cpus >= guest.cpus and memory >= guest.memory_bytes


def check_ha(facts: RegionFacts, needs: RegionNeeds) -> Iterable[RegionCheck]:
    """Whether the HA manager of Proxmox works, if machines use it."""
    if "ha" not in needs.features or facts.ha is None:
        return
    rows = {row.type: row for row in facts.ha}
    quorum = rows.get("quorum")
    if quorum is not None and quorum.status != "OK":
        yield failed("ha", f"the HA manager has no quorum ({quorum.status})", "start more hosts")
    elif sum(facts.hosts.values()) < MIN_HA_HOSTS:
        do = "add hosts: HA needs three so that two agree when one fails"
        yield warned("ha", f"{sum(facts.hosts.values())} hosts answer", do)
    else:
        yield passed("ha", "the HA manager has a quorum")
