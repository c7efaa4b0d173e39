"""Instance types and their offerings, as a provider lists them for a node pool."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moxwell.scheduling.guest_sizes import GuestSize
from moxwell.scheduling.host_room import HostRoom
from moxwell.scheduling.packing.pods import Labels
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.resource_lists import HUGE_PAGES, MEMORY, less
from moxwell.scheduling.well_known_labels import CAPACITY_TYPE, ZONE


@dataclass(frozen=True, slots=True)
class Offering:
    """
    Where and how an instance type can be launched, and its price per hour.

    ``room`` is what the host of the offering has free, where the hosts are visible.
    """

    labels: Labels
    price: float
    available: bool = True
    reservation: str = ""
    reservation_capacity: int = 0
    room: HostRoom | None = field(default=None, compare=False)

    @property
    def capacity_type(self) -> str:
        return dict(self.labels).get(CAPACITY_TYPE, "")

    @property
    def zone(self) -> str:
        return dict(self.labels).get(ZONE, "")


@dataclass(frozen=True, slots=True)
class InstanceType:
    """
    A shape of a machine; resources are in thousandths, volume limits per CSI driver.

    ``guest`` is the size that the machine takes from its host, which is more than a node reports.
    """

    name: str
    capacity: Mapping[str, int] = field(hash=False)
    overhead: Mapping[str, int] = field(hash=False)
    requirements: tuple[LabelRequirement, ...]
    offerings: tuple[Offering, ...]
    volume_limits: tuple[tuple[str, int], ...] = ()
    guest: GuestSize | None = field(default=None, compare=False)

    @property
    def allocatable(self) -> dict[str, int]:
        """What pods can use; huge pages are taken from memory."""
        result = less(self.capacity, self.overhead)
        pages = sum(a for name, a in self.capacity.items() if name.startswith(HUGE_PAGES))
        if pages and MEMORY in result:
            result[MEMORY] = max(0, result[MEMORY] - pages)
        return result

    def offering_price(self, zone: str, capacity_type: str) -> float | None:
        """The price of the first offering of a zone and capacity type."""
        wanted = (zone, capacity_type)
        return next((o.price for o in self.offerings if (o.zone, o.capacity_type) == wanted), None)
