"""
Whether the quota of a tenant has room for a machine, before a VMID is reserved or a guest grows.

The limits are an annotation of the tenant's namespace. Machines that are not placed yet all belong
to one shard, and from reading the other machines to reserving a VMID nothing is awaited, so that
two machines cannot both take the last room.
"""

from collections.abc import Callable, Mapping

from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec
from moxwell.api.infra.warm_guests import is_warm
from moxwell.api.kinds import Resource
from moxwell.controllers.infra.machine.observed import MachineGuest
from moxwell.kube.errors import KubeForbidden
from moxwell.kube.reader import Reader
from moxwell.pve.guests import GuestConfig
from moxwell.pve.reservations import Reservations
from moxwell.runtime.cache import Cache
from moxwell.scheduling import guest_hardware, quota
from moxwell.scheduling.quota import Amounts, Excess, Limits

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
VolumeBytes = Callable[[str], int]  # the bytes of all volumes of a tenant, by its namespace


class QuotaReader:
    """Reads the limits of tenants and what their machines use."""

    def __init__(
        self,
        machines: Cache[ProxmoxMachine],
        reservations: Reservations,
        volumes: VolumeBytes = lambda namespace: 0,
    ) -> None:
        self._machines, self._reservations, self._volumes = machines, reservations, volumes

    async def limits(self, namespace: str, reader: Reader) -> Mapping[str, Limits]:
        """
        The limits of the tenant of a namespace and of those above it.

        An operator that may not read namespaces has no tenants: they are its cluster-wide objects.
        """
        found = {}
        for tenant in quota.tenant_namespaces(namespace):
            try:
                space = await reader.find(NAMESPACES, tenant)
            except KubeForbidden:
                return {}
            if limits := quota.read_annotation((space or {}).get("metadata") or {}):
                found[tenant] = limits
        return found

    def excess_of_new(
        self, machine: ProxmoxMachine, limits: Mapping[str, Limits]
    ) -> tuple[Excess, ...]:
        """The limits that a machine without a VMID would exceed; never awaits."""
        return self._excess(machine, limits, amounts_of(machine), Amounts(), unplaced=False)

    def excess_of_growth(
        self, machine: ProxmoxMachine, guest: MachineGuest, limits: Mapping[str, Limits]
    ) -> tuple[Excess, ...]:
        """
        The limits that a larger size of a running guest would exceed.

        Machines that are not placed yet count too: another process may place them now.
        """
        asked = quota.machine_amounts(machine.spec)
        before = present_amounts(machine.spec, guest)
        return self._excess(machine, limits, asked, before, unplaced=True)

    def _excess(
        self,
        machine: ProxmoxMachine,
        limits: Mapping[str, Limits],
        asked: Amounts,
        before: Amounts,
        *,
        unplaced: bool,
    ) -> tuple[Excess, ...]:
        found: list[Excess] = []
        for tenant, limit in limits.items():
            others = machine_usage(
                self._machines,
                self._reservations,
                tenant,
                excluding=machine.uid,
                unplaced=unplaced,
            )
            used = others + Amounts(storage=self._volumes(tenant))
            found += quota.excesses(tenant, limit, asked=asked, used=used, before=before)
        return tuple(found)


def machine_usage(
    machines: Cache[ProxmoxMachine],
    reservations: Reservations,
    tenant: str,
    *,
    excluding: str = "",
    unplaced: bool = False,
) -> Amounts:
    """What the machines of a tenant use that have a VMID, or one reserved; never awaits."""
    reserved = {r.owner for r in reservations.open()}
    return quota.total(
        amounts_of(m)
        for m in machines.list()
        if m.uid != excluding
        and quota.belongs_to(m.namespace, tenant)
        and (unplaced or m.spec.virtual_machine_id is not None or m.uid in reserved)
    )


def amounts_of(machine: ProxmoxMachine) -> Amounts:
    """What a machine uses; a warm guest is stopped and uses storage only."""
    found = quota.machine_amounts(machine.spec)
    return Amounts(storage=found.storage) if is_warm(machine) else found


def grows(spec: ProxmoxMachineSpec, guest: MachineGuest) -> bool:
    """Whether the spec asks for more than the guest has."""
    wanted, has = quota.machine_amounts(spec), present_amounts(spec, guest)
    return has.at_least(wanted) != has


def present_amounts(spec: ProxmoxMachineSpec, guest: MachineGuest) -> Amounts:
    """What the guest has now; what was not read counts as it is specified."""
    wanted, seen = quota.machine_amounts(spec), guest.seen
    return Amounts(
        cpu=int(seen.cpus) if spec.num_cores or spec.num_sockets else wanted.cpu,
        memory=seen.memory_bytes if spec.memory_mib else wanted.memory,
        storage=wanted.storage if guest.config is None else _disk_bytes(spec, guest.config),
        nodes=1,
    )


def _disk_bytes(spec: ProxmoxMachineSpec, config: GuestConfig) -> int:
    if spec.disks is None:
        return 0
    boot = spec.disks.boot_volume
    slots = [boot.disk or guest_hardware.boot_disk(config.raw)] if boot else []
    slots += [disk.disk for disk in spec.disks.extra]
    return sum(config.size_bytes(slot) for slot in slots)
