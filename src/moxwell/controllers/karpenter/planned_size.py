"""What the machine of a planned node claim will use of its planned host: an annotation. Pure."""

import msgspec

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.meta import Value
from moxwell.controllers.karpenter.names import PLANNED_HOST, PLANNED_SIZE
from moxwell.scheduling.inventory_model import GIB, MIB, HostKey, PendingGuest
from moxwell.scheduling.numa.guests import GuestCpuUse
from moxwell.scheduling.packing.host_ledger import HostSlot


class PlannedSize(Value, frozen=True, kw_only=True):
    """The size of a planned machine."""

    cpus: int
    memory_mib: int = msgspec.field(name="memoryMiB")
    disk_gib: int = msgspec.field(name="diskGiB", default=0)


def plan_annotations(slot: HostSlot) -> dict[str, str]:
    """The host that packing chose for a claim, and the size of its machine there."""
    size = slot.guest.size
    disk = -(-size.disk_bytes // GIB)
    found = PlannedSize(cpus=size.cpus, memory_mib=size.guest_memory_mib, disk_gib=disk)
    return {PLANNED_HOST: str(slot.host), PLANNED_SIZE: msgspec.json.encode(found).decode()}


def planned_guest(claim: NodeClaim, storage: str = "") -> PendingGuest | None:
    """The planned machine of a claim as used capacity; None if there is no plan to read."""
    region, _, host = claim.metadata.annotations.get(PLANNED_HOST, "").partition("/")
    text = claim.metadata.annotations.get(PLANNED_SIZE, "")
    if not host or not text:
        return None
    try:
        size = msgspec.json.decode(text, type=PlannedSize)
    except msgspec.DecodeError:
        return None  # somebody else's value; the launch proves the room anyway
    use = GuestCpuUse(size.cpus, size.memory_mib)
    memory, disk = size.memory_mib * MIB, size.disk_gib * GIB
    return PendingGuest(HostKey(region, host), size.cpus, memory, storage, disk, use)
