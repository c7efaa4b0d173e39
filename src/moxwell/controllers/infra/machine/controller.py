"""
``infra.machine``: one Proxmox guest for each ProxmoxMachine.

State lives in the spec (the claim) and on the guest (the owner mark). Task back-off, ISO cache,
reservations and agent polling are kept in memory and may be lost.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, assert_never

from moxwell.api.capi.core import Machine
from moxwell.api.capi.shared import MANAGED_BY
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.machine_reasons import ProxmoxMachineReason
from moxwell.api.infra.warm_guests import is_warm
from moxwell.api.ipam import IPAddress, IPAddressClaim
from moxwell.controllers.infra.iso_cache import IsoCache, IsoChange
from moxwell.controllers.infra.machine import address_moves
from moxwell.controllers.infra.machine.clone_slots import (
    ClaimedClone,
    CloneSlots,
    CloneTarget,
    FindClaim,
)
from moxwell.controllers.infra.machine.describe import describe
from moxwell.controllers.infra.machine.guest_agent import GuestAgentProbe
from moxwell.controllers.infra.machine.moves import (
    AdoptGuest,
    ClaimAddresses,
    DeleteWarmGuest,
    ForgetStaleClone,
    Move,
    RecordApplied,
    ReleaseAddresses,
    ReserveVMID,
    SetAddressesAside,
    SetProviderID,
    SpecPatch,
    TakeStep,
    name_of,
)
from moxwell.controllers.infra.machine.observed import ObservedProxmoxMachine
from moxwell.controllers.infra.machine.plan import plan
from moxwell.controllers.infra.machine.see import MachineObserver
from moxwell.controllers.infra.machine.stale_clone import StaleCloneObserver
from moxwell.controllers.infra.owners import cluster_key
from moxwell.controllers.infra.task_backoff import TaskBackoff
from moxwell.kube.client import Kube
from moxwell.kube.errors import NotFound
from moxwell.kube.reader import Reader
from moxwell.pve.model import InventoryChange, InventoryEvent, ObservedGuest
from moxwell.pve.ownership import Mark
from moxwell.pve.regions import Region, Regions
from moxwell.pve.reservations import Reservations
from moxwell.pve.steps import (
    Clone,
    DeleteVolume,
    Destroy,
    ResizeDisk,
    Shutdown,
    Start,
    Stop,
    UploadIso,
)
from moxwell.pve.tasks import TaskEnded
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.watches import Watch

NAME = "infra.machine"
FINALIZER = "proxmoxmachine.infrastructure.cluster.x-k8s.io"
BY_MARK, BY_CLUSTER = "infra.mark", "infra.cluster"
AT_ONCE, POLL_SECONDS, SAFETY_SECONDS = 0.1, 3.0, 60.0
TASKS = (UploadIso, DeleteVolume, ResizeDisk, Start)  # their end causes the next pass
ENDINGS = (Shutdown, Stop, Destroy)  # so does theirs, if they have a task
URGENT_STATUS = ("initialization",)  # the Machine waits for it
EVENTS = frozenset({"Clone", "Start", "Destroy", "Shutdown", "RemoveStaleClone", "RemoveDisk"})


class MachineReconciler(Reconciler[ProxmoxMachine, ObservedProxmoxMachine, Move, dict[str, Any]]):
    """Creates, maintains and deletes the guest of each ProxmoxMachine."""

    kind = ProxmoxMachine
    finalizer = FINALIZER

    def __init__(
        self,
        kube: Kube,
        regions: Regions,
        machines: Cache[ProxmoxMachine],
        *,
        observer: MachineObserver,
        agent: GuestAgentProbe,
        reservations: Reservations,
        backoff: TaskBackoff,
        isos: IsoCache,
        stale_clones: StaleCloneObserver,
        clone_slots: CloneSlots,
    ) -> None:
        self._clone_slots = clone_slots
        self._kube, self._regions, self._machines = kube, regions, machines
        self._observer, self._agent, self._reservations = observer, agent, reservations
        self._backoff, self._isos, self._stale_clones = backoff, isos, stale_clones
        machines.add_index(BY_MARK, _guest_index)
        machines.add_index(BY_CLUSTER, _cluster_index)
        machines.subscribe(self._machine_changed)
        self.watches: Sequence[Watch] = (
            Watch(Machine, _machine_keys, is_relevant),
            Watch(ProxmoxCluster, self._cluster_keys),
            Watch(IPAddressClaim, _owner_keys, is_assigned),
            Watch(IPAddress, _address_keys),
        )

    async def see(self, obj: ProxmoxMachine, reader: Reader) -> ObservedProxmoxMachine:
        """Observe the machine; see :mod:`.see`."""
        return await self._observer.see(obj, reader)

    def plan(self, obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> Move:
        """Decide the next move; see :mod:`.plan`."""
        return plan(obj, seen)

    def describe(
        self, obj: ProxmoxMachine, seen: ObservedProxmoxMachine, move: Move
    ) -> dict[str, Any]:
        """Compute the status; see :mod:`.describe`."""
        return describe(obj, seen, move)

    def events(
        self, obj: ProxmoxMachine, seen: ObservedProxmoxMachine, move: Move
    ) -> Sequence[Note]:
        """Events for placements and for the main steps."""
        if isinstance(move, ReserveVMID):
            names = ", ".join(move.claim.stale_clones)
            text = f"abandoned {names}: a clone could not be completed"
            warning = (Note(ProxmoxMachineReason.STALE_CLONE, text, "Warning"),) if names else ()
            return (Note(ProxmoxMachineReason.PLACED, move.message), *warning)
        if isinstance(move, SetAddressesAside):
            return (Note(ProxmoxMachineReason.ADDRESS_TAKEN, move.message, "Warning"),)
        name = name_of(move)
        if isinstance(move, TakeStep) and name in EVENTS:
            return (Note(name, f"{name} guest {move.step.vmid} in region {move.step.region}"),)
        return ()

    def requeue_after(
        self, obj: ProxmoxMachine, seen: ObservedProxmoxMachine, move: Move
    ) -> float | None:
        """At once after a write whose result is known; later where only polling shows it."""
        if isinstance(move, Done):
            return None
        if isinstance(move, Wait):
            return move.requeue_after or seen.backoff_seconds or SAFETY_SECONDS
        if isinstance(move, ClaimAddresses | ReleaseAddresses):
            return POLL_SECONDS
        if isinstance(move, TakeStep):
            waits = isinstance(move.step, TASKS) or self._is_followed(move)
            follows = not waits and move.step.expects() is not None
            return AT_ONCE if follows else POLL_SECONDS
        return AT_ONCE

    # ---- act

    async def act(self, move: Move) -> ProxmoxMachine | None:
        """Execute a move; never waits for a task."""
        match move:
            case TakeStep():
                await self._take_step(move)
            case ClaimAddresses() | SetAddressesAside() | ReleaseAddresses():
                await address_moves.act(self._kube, move)
            case ReserveVMID() | AdoptGuest() | RecordApplied() | SetProviderID():
                return await self._patch(move)
            case ForgetStaleClone():
                return await self._patch(move)
            case DeleteWarmGuest():
                await self._delete_warm_guest(move)
            case Wait() | Done():
                return None
            case _:
                assert_never(move)
        return None

    async def _take_step(self, move: TakeStep) -> None:
        step = move.step
        region = self._regions.scope(move.scope)[step.region]
        if isinstance(step, Clone):
            await self._clone(move, step, region)
            return
        upid = await region.perform(step, move.owner)
        if isinstance(step, UploadIso | DeleteVolume):
            change = IsoChange(step.volid, isinstance(step, UploadIso))
            self._isos.expect(upid, region, step.storage, change)

    def _is_followed(self, move: TakeStep) -> bool:
        """Whether the end of the step's task causes the next pass."""
        region = self._regions.scope(move.scope)[move.step.region]
        return isinstance(move.step, ENDINGS) and bool(region.tasks.of(move.owner))

    async def _clone(self, move: TakeStep, step: Clone, region: Region) -> None:
        """Start a clone, unless another pass took the last place since the decision."""
        target = CloneTarget(step.template_host, step.storage, step.full)
        if not self._clone_slots.take(move.owner, region, target):
            return
        upid = None
        try:
            upid = await region.perform(step, move.owner)
        finally:
            if upid is None:
                self._clone_slots.free(move.owner)

    async def _patch(self, move: SpecPatch) -> ProxmoxMachine:
        """Patch the spec; fails if the object changed since the decision."""
        target = move.target
        if isinstance(move, ReserveVMID):
            self._reservations.add(move.reservation)  # before anything is awaited
        change = move.patch()
        meta: dict[str, Any] = {"resourceVersion": target.resource_version}
        if labels := change.pop("labels", None):
            meta["labels"] = labels
        body = {"metadata": meta, **change}
        written = await self._kube.merge(ProxmoxMachine, target.name, body, target.namespace)
        self._backoff.forget(target.key)
        self._stale_clones.forget(target.uid)
        return written

    async def _delete_warm_guest(self, move: DeleteWarmGuest) -> None:
        target = move.target
        with suppress(NotFound):
            await self._kube.delete(ProxmoxMachine, target.name, target.namespace, uid=target.uid)

    # ---- events from caches, tasks and inventories

    def _machine_changed(
        self, old: ProxmoxMachine | None, new: ProxmoxMachine | None, listed: bool
    ) -> None:
        """Release the reservation when the claim is visible; forget deleted machines."""
        if new is None and old is not None:
            self._reservations.remove(old.uid)
            self._agent.forget(old.uid)
            self._stale_clones.forget(old.uid)
            self._backoff.forget(Key(old.namespace, old.name))
            self._clone_slots.free(Key(old.namespace, old.name))
        elif new is not None and new.spec.virtual_machine_id in self._reserved(new):
            self._reservations.remove(new.uid)

    def _reserved(self, machine: ProxmoxMachine) -> tuple[int, ...]:
        return tuple(r.vmid for r in self._reservations.open() if r.owner == machine.uid)

    def _cluster_keys(self, cluster: ProxmoxCluster) -> Iterable[Key]:
        key = cluster_key(cluster) or Key(cluster.namespace, cluster.name)
        return [Key(m.namespace, m.name) for m in self._machines.by(BY_CLUSTER, str(key))]

    def listen(self, wake: Callable[[Key], None]) -> None:
        """Enqueue machines when their tasks end, their guests change or a region's health does."""

        def on_task(ended: TaskEnded) -> None:
            self._isos.task_ended(ended)
            if isinstance(ended.owner, Key):
                if ended.upid.type == "qmclone":
                    self._clone_slots.free(ended.owner)
                self._backoff.task_ended(ended)
                wake(ended.owner)

        def on_event(event: InventoryEvent) -> None:
            for key in self._event_keys(event):
                wake(key)

        self._regions.subscribe_tasks(on_task)
        self._regions.subscribe(on_event)

    def _event_keys(self, event: InventoryEvent) -> Iterable[Key]:
        if not isinstance(event, InventoryChange):
            found = [m for m in self._machines.list() if m.spec.region == event.region]
        else:
            guest = event.after or event.before
            if not isinstance(guest, ObservedGuest):
                return []
            names = {f"{event.region}/{guest.vmid}", *guest.owner_keys}
            found = [m for name in names for m in self._machines.by(BY_MARK, name)]
        return {Key(m.namespace, m.name) for m in found}


def shard(obj: ProxmoxMachine) -> str:
    """The shard of an object: its region."""
    return obj.spec.region or ""


def needs(obj: ProxmoxMachine) -> bool:
    """Whether the object is ours to reconcile; externally managed ones are not."""
    return MANAGED_BY not in obj.metadata.annotations and MANAGED_BY not in obj.metadata.labels


def is_being_created(obj: ProxmoxMachine) -> bool:
    """
    Whether the steps follow each other until the node can join; each has a status of its own.

    Later passes describe what they changed once, so that their status must not be left out. The
    launch of node claims reads from the status whether a warm guest is free.
    """
    if obj.deleting or obj.status.initialization.provisioned or is_warm(obj):
        return False
    return all(c.reason != ProxmoxMachineReason.WARM for c in obj.status.conditions)


def _guest_index(obj: ProxmoxMachine) -> Iterable[str]:
    spec = obj.spec
    if spec.virtual_machine_id is None:
        return ()
    name = f"{spec.region}/{spec.virtual_machine_id}"
    return (name, Mark(spec.claim.uuid).key) if spec.claim else (name,)


def claimed_clones(machines: Cache[ProxmoxMachine]) -> FindClaim:
    """Find the machine that has claimed a VMID, and where its guest is cloned."""

    def find(region: str, vmid: int) -> ClaimedClone | None:
        for machine in machines.by(BY_MARK, f"{region}/{vmid}"):
            if claim := machine.spec.claim:
                target = CloneTarget(claim.template_host, claim.storage, not claim.linked)
                return Key(machine.namespace, machine.name), target
        return None

    return find


def _cluster_index(obj: ProxmoxMachine) -> Iterable[str]:
    key = cluster_key(obj)
    return (str(key),) if key else ()


def is_relevant(old: Machine | None, new: Machine | None) -> bool:
    """Whether a change of a Machine matters here; most change only its conditions."""
    return old is None or new is None or _read_of(old) != _read_of(new)


def _read_of(machine: Machine) -> object:
    meta, status = machine.metadata, machine.status
    return (
        meta.uid,
        meta.labels,
        meta.annotations,
        meta.owner_references,
        machine.deleting,
        machine.spec,
        status.node_ref,
        status.initialization,
    )


def _machine_keys(machine: Machine) -> Iterable[Key]:
    ref = machine.spec.infrastructure_ref
    if ref is None or ref.kind != ProxmoxMachine.resource.kind:
        return ()
    return (Key(machine.namespace, ref.name),)


def _owner_keys(claim: IPAddressClaim) -> Iterable[Key]:
    owners = claim.metadata.owner_references
    return [Key(claim.namespace, o.name) for o in owners if o.kind == ProxmoxMachine.resource.kind]


def is_assigned(old: IPAddressClaim | None, new: IPAddressClaim | None) -> bool:
    """Whether a claim got or lost its address, or is deleted; other changes are not read."""
    return new is None or new.deleting or _assigned(old) != _assigned(new)


def _assigned(claim: IPAddressClaim | None) -> object:
    if claim is None:
        return None
    ref = claim.status.address_ref
    return (claim.spec, claim.metadata.owner_references, ref) if ref.name else None


def _address_keys(address: IPAddress) -> Iterable[Key]:
    stem = address.spec.claim_ref.name.rpartition("-net")[0]
    return [Key(address.namespace, stem)] if stem else []
