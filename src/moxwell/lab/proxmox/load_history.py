"""
What guests used at earlier times, for ``rrddata``; in memory only.

Each change of a guest is noted; its figures hold until the next one.
"""

from bisect import bisect_right
from dataclasses import dataclass, replace

from moxwell.lab.proxmox.pvestatd import guest_status
from moxwell.lab.proxmox.state import SimRegion, StatdStatus

MOST_CHANGES = 512  # of one guest


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The node of a guest, and how much of it a guest uses from a time on; 0 while it is off."""

    time: float
    node: str
    cpus: float = 0.0  # vCPUs in use
    cpu: float = 0.0  # the same as a share
    memory: int = 0


def _sample(statd: StatdStatus, time: float) -> LoadSample:
    """What a guest uses from a time on."""
    if not statd.started:
        return LoadSample(time, statd.node)
    memory = int(statd.maxmem * statd.memory_load)
    cpus = statd.cpu_load * statd.maxcpu
    return LoadSample(time, statd.node, cpus, statd.cpu_load, memory)


class LoadHistory:
    """The changes of each guest of one region."""

    def __init__(self) -> None:
        self._changes: dict[int, list[LoadSample]] = {}

    def note(self, region: SimRegion, vmid: int, now: float) -> None:
        """Note a change of a guest, or that it is gone."""
        guest = region.guests.get(vmid)
        if guest is None:
            self._changes.pop(vmid, None)
            return
        known, new = self._changes.setdefault(vmid, []), _sample(guest_status(region, guest), now)
        if not known or replace(known[-1], time=now) != new:
            known.append(new)
            del known[:-MOST_CHANGES]

    def at(self, region: SimRegion, vmid: int, time: float) -> LoadSample | None:
        """What a guest used at a time; None before it is known."""
        known = self._changes.get(vmid, [])
        number = bisect_right(known, time, key=lambda one: one.time)
        if number:
            return known[number - 1]
        statd = region.statd_status.get(vmid)
        if known or statd is None or not statd.started or time < statd.started:
            return None
        return _sample(statd, statd.started)
