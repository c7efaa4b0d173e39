"""
State of launches in memory: unseen capacity, failed launches, offerings without room.

Unseen capacity is what caches do not show yet. Nothing is persisted; after a restart the next
launch finds out again.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass

from moxwell.api.capi.core import Machine
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec
from moxwell.api.infra.warm_guests import is_warm
from moxwell.clock import Clock
from moxwell.controllers.karpenter.provider import LaunchFailure
from moxwell.controllers.karpenter.proxmox.instance_record import InstanceRecord, record_of
from moxwell.scheduling.guest_hardware import compute
from moxwell.scheduling.inventory_model import GIB, MIB, HostKey, PendingGuest
from moxwell.scheduling.numa.guests import GuestCpuUse, read_use

BLOCKED_SECONDS = 180.0  # how long Karpenter's providers do not offer what had no capacity
FAILURE_SECONDS = 180.0
UNSEEN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FailedLaunch:
    """Why a launch made no machine."""

    failure: LaunchFailure
    message: str


def pending_guest(record: InstanceRecord, storage: str = "") -> PendingGuest:
    """The machine of a record as used capacity."""
    return PendingGuest(
        HostKey(record.region, record.host),
        record.cpus,
        record.memory_mib * MIB,
        storage,
        record.disk_gib * GIB,
        record_use(record),
    )


def record_use(record: InstanceRecord) -> GuestCpuUse:
    """What the machine of a record uses of its host's CPUs and NUMA nodes."""
    spec = ProxmoxMachineSpec(
        num_cores=record.cpus, memory_mib=record.memory_mib, numa_nodes=record.numa_nodes
    )
    return read_use(compute(spec), record.cpu_pinning.cpus if record.cpu_pinning else "")


def launched_names(machines: Iterable[ProxmoxMachine]) -> set[str]:
    """The namespaces and names of the Machines that own these; warm guests are not launched."""
    return {
        f"{m.namespace}/{next((o.name for o in m.metadata.owner_references), m.name)}"
        for m in machines
        if not is_warm(m)
    }


def begun_launches(machines: Iterable[Machine], known: Container[str]) -> dict[str, PendingGuest]:
    """Machines with a record that have no ProxmoxMachine yet, by namespace and name."""
    named = ((f"{m.namespace}/{m.name}", m) for m in machines if not m.deleting)
    return {
        name: pending_guest(record)
        for name, machine in named
        if name not in known and (record := record_of(machine)) is not None
    }


class LaunchedCapacity:
    """Machines that were created but are not in the cache yet; shared by all clusters."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unseen: dict[str, tuple[float, PendingGuest]] = {}

    def add(self, machine: str, guest: PendingGuest) -> None:
        """Count a machine, named by namespace and name, until the cache shows it."""
        self._unseen[machine] = (self._clock.monotonic() + UNSEEN_SECONDS, guest)

    def names(self) -> frozenset[str]:
        """The machines that count here, those included that the cache shows since."""
        return frozenset(self._unseen)

    def unseen(self, known: Container[str]) -> tuple[PendingGuest, ...]:
        """The machines that are not among the known ones."""
        now = self._clock.monotonic()
        self._unseen = {
            name: entry
            for name, entry in self._unseen.items()
            if name not in known and entry[0] > now
        }
        return tuple(guest for _, guest in self._unseen.values())


class UnavailableOfferings:
    """Sizes that are not offered on a host for a while: it had no room, or others need it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[tuple[str, HostKey], float] = {}
        self._counted: dict[str, float] = {}

    def block(self, instance_type: str, host: HostKey, uid: str) -> None:
        """Do not offer the size on the host; a failure of the same claim counts once."""
        now = self._clock.monotonic()
        self._counted = {u: t for u, t in self._counted.items() if now - t < 2 * BLOCKED_SECONDS}
        if uid not in self._counted:
            self._counted[uid] = now
            self._until[instance_type, host] = now + BLOCKED_SECONDS

    def hold_back(self, instance_type: str, host: HostKey) -> None:
        """Do not offer the size on the host, whose room others need."""
        self._until[instance_type, host] = self._clock.monotonic() + BLOCKED_SECONDS

    def current(self) -> frozenset[tuple[str, HostKey]]:
        """The offerings that are blocked now."""
        now = self._clock.monotonic()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return frozenset(self._until)


class FailedLaunches:
    """Launches of one cluster that made no machine, by the UID of the claim."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[float, FailedLaunch]] = {}

    def add(self, uid: str, failed: FailedLaunch) -> None:
        self._failed[uid] = (self._clock.monotonic() + FAILURE_SECONDS, failed)

    def find(self, uid: str) -> FailedLaunch | None:
        now = self._clock.monotonic()
        self._failed = {u: entry for u, entry in self._failed.items() if entry[0] > now}
        found = self._failed.get(uid)
        return found[1] if found else None

    def remove(self, uid: str) -> None:
        self._failed.pop(uid, None)
