"""
The spot guests of a cluster, and which of them are deleted to free capacity.

Capacity is needed by pods that may not run on spot machines, by machines without a host and by
hosts whose running guests have too much memory. In maintenance mode a host loses all spot guests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from moxwell.api.capi.core import Machine
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.names import INTERRUPTED
from moxwell.controllers.karpenter.proxmox.class_reader import NodeClassReader
from moxwell.controllers.karpenter.proxmox.instance_record import (
    CLAIM_UID,
    InstanceRecord,
    guest_name,
    record_of,
)
from moxwell.controllers.karpenter.proxmox.launches import UnavailableOfferings
from moxwell.controllers.karpenter.proxmox.node_policy import machine_use
from moxwell.controllers.karpenter.proxmox.spot_board import SpotBoard
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.scheduling.guest_sizes import guest_price
from moxwell.scheduling.inventory_model import MIB, HostKey
from moxwell.scheduling.simulate import PlacementInput
from moxwell.scheduling.spot_room import (
    RoomNeed,
    SpotGuest,
    SpotInterruption,
    interruptions,
    placement_need,
)
from moxwell.scheduling.well_known_labels import CAPACITY_TYPE, SPOT


@dataclass(frozen=True, slots=True)
class SpotSources:
    """Where spot guests and needs are read; the board and the placements are of the process."""

    machines: Cache[Machine]
    proxmox_machines: Cache[ProxmoxMachine]
    claims: Cache[NodeClaim]
    waiting: Callable[[], Mapping[Key, PlacementInput]]  # of machines without a host
    board: SpotBoard
    unavailable: UnavailableOfferings


class SpotGuestReader:
    """Reads the spot guests of one cluster."""

    def __init__(self, cluster: Key, sources: SpotSources, reader: NodeClassReader) -> None:
        self._cluster, self._sources, self._reader = cluster, sources, reader

    def read(self, machines: Iterable[Machine]) -> tuple[SpotGuest, ...]:
        """The spot guests among the machines of the cluster's node claims."""
        claims = {c.metadata.uid: c for c in self._sources.claims.list()}
        found = []
        for machine in machines:
            record, uid = record_of(machine), machine.metadata.labels.get(CLAIM_UID, "")
            if record is not None and record.labels.get(CAPACITY_TYPE) == SPOT:
                leaves = machine.deleting or _leaves(claims.get(uid))
                found.append(self._guest(uid, machine, record, leaves))
        self._sources.board.report(self._cluster, found)
        return tuple(found)

    async def interruptions(
        self, own: Sequence[SpotGuest], pods: Iterable[RoomNeed]
    ) -> tuple[SpotInterruption, ...]:
        """
        Which of the cluster's guests end; ``pods`` are the needs of its pods.

        Spot machines are not offered for a while on the hosts that they leave.
        """
        board = self._sources.board
        board.need(self._cluster, pods)
        if not own:
            return ()
        hosts = {g.host for g in own}
        emptied = await self._reader.hosts_in_maintenance(hosts)
        needs = (*board.needs(), *self._waiting(), *self._reader.memory_needs(hosts))
        known = {g.claim for g in own}
        every = interruptions(needs, board.guests(), emptied)
        found = tuple(i for i in every if i.guest.claim in known)
        self._hold_back({g.host for g in own if self._is_interrupted(g)})
        self._hold_back({i.guest.host for i in found})
        return found

    def _waiting(self) -> Iterable[RoomNeed]:
        """The needs of machines without a host, those of spot claims aside."""
        guests = self._sources.board.guests()
        for key, given in sorted(self._sources.waiting().items()):
            machine = self._sources.proxmox_machines.find(key)
            if machine is None or machine.deleting or machine.spec.claim is not None:
                continue
            need = placement_need(f"machine {key}", given, guests)
            if need is not None and not self._is_spot(machine):
                yield need

    def _is_spot(self, machine: ProxmoxMachine) -> bool:
        owners = [o.name for o in machine.metadata.owner_references if o.kind == "Machine"]
        found = (self._sources.machines.find(Key(machine.namespace, name)) for name in owners)
        records = (record_of(m) for m in found if m is not None)
        return any(r is not None and r.labels.get(CAPACITY_TYPE) == SPOT for r in records)

    def _is_interrupted(self, guest: SpotGuest) -> bool:
        return any(
            INTERRUPTED in c.metadata.annotations
            for c in self._sources.claims.list()
            if c.metadata.uid == guest.claim
        )

    def _hold_back(self, hosts: Iterable[HostKey]) -> None:
        for host in hosts:
            for name in self._reader.spot_sizes:
                self._sources.unavailable.hold_back(name, host)

    def _guest(
        self, uid: str, machine: Machine, record: InstanceRecord, leaving: bool
    ) -> SpotGuest:
        made = self._sources.proxmox_machines.find(Key(machine.namespace, guest_name(machine)))
        host = record.host
        region = self._reader.region(record.region)
        vmid = made.spec.virtual_machine_id if made else None
        if region is not None and vmid is not None and (guest := region.inventory.find(vmid)):
            host = guest.host  # it may have been migrated
        memory = record.memory_mib * MIB
        return SpotGuest(
            uid,
            HostKey(record.region, host),
            record.cpus,
            memory,
            guest_price(record.cpus, memory, SPOT),
            leaving,
            machine_use(made) if made else None,
        )


def _leaves(claim: NodeClaim | None) -> bool:
    """Whether a claim is being deleted or is about to be."""
    return claim is None or claim.deleting or INTERRUPTED in claim.metadata.annotations
