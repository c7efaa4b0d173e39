"""Resources that a machine will use on its host and that the inventory does not count yet. Pure."""

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.warm_guests import is_warm
from moxwell.scheduling.inventory_model import GIB, MIB, HostKey, PendingGuest


def pending_guest(
    machine: ProxmoxMachine, key: HostKey, *, counted: bool, warm: bool
) -> PendingGuest | None:
    """
    The machine as used capacity of its host; None if the inventory counts all of it.

    ``counted``: the inventory has the guest and its size; ``warm``: but only its disks count.
    A warm guest uses storage only. One that was handed over also uses the CPUs and memory that it
    is configured with next.
    """
    if counted and (not warm or is_warm(machine)):
        return None
    spec, claim = machine.spec, machine.spec.claim
    boot = spec.disks.boot_volume.size_gb * GIB if spec.disks and spec.disks.boot_volume else 0
    storage = (claim.storage if claim else spec.storage) or ""
    disk = 0 if counted or (claim and claim.linked) else boot
    if is_warm(machine):
        return PendingGuest(key, 0, 0, storage, disk)
    cpus = (spec.num_cores or 1) * (spec.num_sockets or 1)
    return PendingGuest(key, cpus, (spec.memory_mib or 512) * MIB, storage, disk)
