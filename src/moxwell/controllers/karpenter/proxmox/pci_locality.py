"""
Finds the NUMA nodes of the PCI devices that guests of a node class get.

The devices are those of the template, which a clone inherits, and of the operator's settings; a
resource mapping says which devices it means on each host. Templates are read once in ten minutes.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from moxwell.clock import Clock
from moxwell.controllers.karpenter.proxmox.node_class_check import SelectedZone
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults
from moxwell.errors import Retryable, Terminal
from moxwell.pve.regions import Region
from moxwell.scheduling.inventory_model import HostKey, Template
from moxwell.scheduling.numa.devices import Addresses, near_nodes
from moxwell.scheduling.numa.topology import HostTopology

KEEP_SECONDS, KEEP_UNKNOWN_SECONDS = 600.0, 60.0
_SLOT = re.compile(r"hostpci\d+")
Slots = Mapping[str, str]  # ``hostpciN`` and its value


@dataclass(frozen=True, slots=True)
class PassedDevices:
    """The devices of guests by template, and what mappings mean on each host."""

    slots: Mapping[tuple[str, int], Slots] = field(default_factory=dict)  # by region and VMID
    mapped: Mapping[HostKey, Addresses] = field(default_factory=dict)

    def near(self, zone: SelectedZone, topology: HostTopology) -> tuple[frozenset[int], ...]:
        """The NUMA nodes of each device that a guest gets on the host of a zone."""
        found = self.slots.get((zone.template.key.region, zone.template.vmid), {})
        return near_nodes(topology, found.values(), self.mapped.get(zone.key, {}))


class PassedDeviceReader:
    """Reads the devices of templates and mappings; the answers about templates are cached."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[tuple[str, int], tuple[float, Slots]] = {}  # with expiry

    async def read(
        self,
        regions: Mapping[str, Region],
        templates: Iterable[Template],
        defaults: MachineDefaults,
    ) -> dict[tuple[str, int], Slots]:
        """The devices of guests of each template; those that have none are left out."""
        own = operator_slots(defaults)
        found: dict[tuple[str, int], Slots] = {}
        for template in templates:
            region = regions.get(template.key.region)
            if region is not None:
                slots = dict(await self._of(region, template)) | own
                found |= {(region.name, template.vmid): slots} if slots else {}
        return found

    async def _of(self, region: Region, template: Template) -> Slots:
        key = (region.key, template.vmid)
        expiry, slots = self._known.get(key, (0.0, {}))
        if expiry > self._clock.monotonic():
            return slots
        try:
            config = await region.reader.qemu.config(template.key.name, template.vmid)
        except (Retryable, Terminal):
            keep = KEEP_UNKNOWN_SECONDS
        else:
            keep = KEEP_SECONDS
            slots = {k: str(v) for k, v in config.raw.items() if _SLOT.fullmatch(k)}
        self._known[key] = (self._clock.monotonic() + keep, slots)
        return slots


def operator_slots(defaults: MachineDefaults) -> dict[str, str]:
    """The devices that the operator's settings give to all machines."""
    devices = defaults.spec.get("pciDevices") or ()
    return {
        f"hostpci{n}": f"mapping={d['mapping']}" if d.get("mapping") else str(d.get("host", ""))
        for n, d in enumerate(devices)
    }


def near_by_zone(
    passed: PassedDevices, zones: Iterable[SelectedZone]
) -> Callable[[HostKey, HostTopology], tuple[frozenset[int], ...]]:
    """The NUMA nodes of the devices that a guest gets on a host of the node class."""
    known = {zone.key: zone for zone in zones}

    def near(key: HostKey, topology: HostTopology) -> tuple[frozenset[int], ...]:
        return passed.near(known[key], topology) if key in known else ()

    return near


def by_host(region: str, mapped: Mapping[str, Addresses] | None) -> dict[HostKey, Addresses]:
    """What mappings mean on the hosts of a region; nothing if it is unknown."""
    return {HostKey(region, host): found for host, found in (mapped or {}).items()}
