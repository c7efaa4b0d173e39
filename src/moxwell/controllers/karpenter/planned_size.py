"""What the machine of a planned node claim will use of its planned host: an annotation. Pure."""

from typing import Annotated

import msgspec

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.meta import Value
from moxwell.controllers.karpenter.names import PLANNED_HOST, PLANNED_SIZE
from moxwell.errors import Invalid
from moxwell.scheduling.inventory_model import GIB, MIB, HostKey, PendingGuest
from moxwell.scheduling.numa.cpusets import format_cpus, parse_cpus
from moxwell.scheduling.numa.guests import GuestCpuUse
from moxwell.scheduling.packing.host_ledger import HostSlot

_Amount = Annotated[int, msgspec.Meta(ge=0)]


class PlannedSize(Value, frozen=True, kw_only=True):
    """The size of a planned machine, and its CPUs and NUMA nodes if it is placed by them."""

    cpus: _Amount
    memory_mib: _Amount = msgspec.field(name="memoryMiB")
    disk_gib: _Amount = msgspec.field(name="diskGiB", default=0)
    pinned: str = ""
    numa_memory: dict[int, _Amount] = msgspec.field(name="numaMemoryMiB", default_factory=dict)
    numa_cpus: dict[int, _Amount] = msgspec.field(name="numaCPUs", default_factory=dict)
    huge_page_mib: _Amount = msgspec.field(name="hugePageMiB", default=0)

    @property
    def use(self) -> GuestCpuUse:
        """What the machine uses of the CPUs and NUMA nodes of its host."""
        pinned = frozenset(parse_cpus(self.pinned))
        return GuestCpuUse(
            self.cpus, self.memory_mib, pinned, self.numa_memory, self.huge_page_mib, self.numa_cpus
        )


def plan_annotations(slot: HostSlot) -> dict[str, str]:
    """The host that packing chose for a claim, and the size of its machine there."""
    size, use = slot.guest.size, slot.guest.use
    found = PlannedSize(
        cpus=size.cpus,
        memory_mib=size.guest_memory_mib,
        disk_gib=-(-size.disk_bytes // GIB),
        pinned=format_cpus(use.pinned),
        numa_memory=dict(use.bound),
        numa_cpus=dict(use.bound_vcpus),
        huge_page_mib=use.huge_page_mib,
    )
    return {PLANNED_HOST: str(slot.host), PLANNED_SIZE: msgspec.json.encode(found).decode()}


def planned_guest(claim: NodeClaim, storage: str = "") -> PendingGuest | None:
    """The planned machine of a claim as used capacity; None if there is no plan to read."""
    region, _, host = claim.metadata.annotations.get(PLANNED_HOST, "").partition("/")
    text = claim.metadata.annotations.get(PLANNED_SIZE, "")
    if not host or not text:
        return None
    try:
        size = msgspec.json.decode(text, type=PlannedSize)
        use = size.use
    except (msgspec.DecodeError, Invalid):
        return None  # somebody else's value; the launch proves the room anyway
    memory, disk = size.memory_mib * MIB, size.disk_gib * GIB
    return PendingGuest(HostKey(region, host), size.cpus, memory, storage, disk, use)
