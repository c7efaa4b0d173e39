"""Checks of free VMIDs, of room for guests and of high availability. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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


@dataclass(slots=True)
class _Room:
    """What is left on the hosts and in the storages for disks while guests are placed."""

    hosts: dict[str, list[int]]  # CPUs and bytes of memory
    storages: Mapping[str, tuple[str, ...]]  # of each host; a shared storage is one for all
    free: dict[str, int]

    def place(self, guest: GuestNeed) -> bool:
        """Take the room of one guest from the host with the most memory; False if none has it."""
        found = [h for h, room in self.hosts.items() if _fits(room, guest) and self._disk(h, guest)]
        if not found:
            return False
        host = max(found, key=lambda name: self.hosts[name][1])
        self.hosts[host][1] -= guest.memory_bytes
        if storage := self._disk(host, guest):
            self.free[storage] = self.free.get(storage, 0) - guest.disk_bytes
        return True

    def _disk(self, host: str, guest: GuestNeed) -> str:
        """The storage of a host with the most room for the disk of a guest; empty if none has."""
        known = self.storages.get(host)
        if known is None or not guest.disk_bytes:
            return host  # not known, or of no matter
        best = max(known, key=lambda storage: self.free[storage], default="")
        return best if best and self.free[best] >= guest.disk_bytes else ""


def _room(facts: RegionFacts, needs: RegionNeeds) -> _Room:
    storages, free = dict[str, tuple[str, ...]](), dict[str, int]()
    for host, rows in facts.storages.items():
        usable = [r for r in rows if r.active and r.enabled and r.accepts("images")]
        usable = [r for r in usable if needs.storage in ("", r.storage)]
        keys = {r.storage if r.shared else f"{host}/{r.storage}": r.avail for r in usable}
        storages[host], free = tuple(keys), free | keys
    hosts = {host: list(room) for host, room in facts.free.items() if needs.allows(host)}
    return _Room(hosts, storages, free)


def check_capacity(facts: RegionFacts, needs: RegionNeeds) -> Iterable[RegionCheck]:
    """Whether hosts have memory and storages for all guests, the largest guests first."""
    left = _room(facts, needs)
    do = "stop guests, add a host, or ask for smaller or fewer nodes"
    for guest in sorted(needs.guests, key=lambda g: -g.memory_bytes) if left.hosts else ():
        text = f"{guest.cpus} CPUs and {guest.memory_bytes / GIB:.3g} GiB of memory"
        if not any(_fits(room, guest) for room in facts.free.values()):
            yield failed("capacity", f"no host has {text} for a guest", do)
            return
        for number in range(guest.count):
            if left.place(guest):
                continue
            text = f"there is room for {number} of {guest.count} guests with {text}"
            if any(_fits(room, guest) for room in left.hosts.values()):
                text += f" and a disk of {guest.disk_bytes / GIB:.3g} GiB on the same host"
                do = "free space on the other hosts, use a shared storage, or ask for less"
            yield failed("capacity", text, do)
            return
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
