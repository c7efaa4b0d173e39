"""
The loop: look, decide, take one step, tell. And what wakes it: objects, tasks, guests, regions.

In flow ProxmoxMachines, out flow guests. All state is elsewhere: in the object's spec (the claim),
on the guest (the mark) and, as hints that may be lost, in the helpers given to the constructor.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from moxwell.api.capi.core import Machine
from moxwell.api.capi.shared import CLUSTER_NAME, MANAGED_BY
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import MachineStatus, ProxmoxMachine
from moxwell.api.ipam import IPAddress, IPAddressClaim, IPAddressClaimSpec
from moxwell.api.ipam import PoolRef as IpamPoolRef
from moxwell.api.kinds import own
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.iso_cache import Shelves
from moxwell.controllers.infra.machine import in_place, plan
from moxwell.controllers.infra.machine.describe import describe
from moxwell.controllers.infra.machine.guest_agent import Peer
from moxwell.controllers.infra.machine.observed import Seen
from moxwell.controllers.infra.machine.plan import Move, next_move
from moxwell.controllers.infra.machine.see import Eyes
from moxwell.controllers.infra.machine.stale_clone import Carcasses
from moxwell.controllers.infra.owners import cluster_key
from moxwell.controllers.infra.task_backoff import Setbacks
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, NotFound
from moxwell.pve.model import Change, Event, GuestSeen
from moxwell.pve.ownership import Mark
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Ledger
from moxwell.pve.steps import DeleteVolume, Step, UploadIso
from moxwell.pve.tasks import Ended
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

NAME = "infra.machine"
FINALIZER = "proxmoxmachine.infrastructure.cluster.x-k8s.io"
ZONE_LABEL = "topology.kubernetes.io/proxmox-zone"
BY_MARK, BY_CLUSTER = "infra.mark", "infra.cluster"
AT_ONCE, POLLED, SAFETY, ROOM = 0.1, 3.0, 60.0, 15.0
KEPT_DISK = 600.0  # somebody may have taken it away
TOLD = frozenset({"Clone", "Start", "Destroy", "Shutdown", "RemoveCarcass", "RemoveDisk"})


class MachineReconciler:
    """One guest for each ProxmoxMachine."""

    kind = ProxmoxMachine
    finalizer = FINALIZER

    def __init__(
        self,
        kube: Kube,
        regions: Regions,
        machines: Cache[ProxmoxMachine],
        *,
        eyes: Eyes,
        peer: Peer,
        ledger: Ledger,
        setbacks: Setbacks,
        shelves: Shelves,
        carcasses: Carcasses,
    ) -> None:
        self._kube, self._regions, self._machines = kube, regions, machines
        self._eyes, self._peer, self._ledger = eyes, peer, ledger
        self._setbacks, self._shelves, self._carcasses = setbacks, shelves, carcasses
        machines.add_index(BY_MARK, _marks)
        machines.add_index(BY_CLUSTER, _cluster)
        self.watches: Sequence[Watch] = (
            Watch(Machine, _infra_key),
            Watch(ProxmoxCluster, self._of_cluster),
            Watch(IPAddressClaim, _owner_keys),
            Watch(IPAddress, self._of_address),
        )

    async def reconcile(self, obj: ProxmoxMachine) -> Outcome[MachineStatus]:
        """One look and at most one step."""
        if obj.spec.claim is not None:
            self._ledger.settle(obj.uid)
        seen = await self._eyes.see(obj)
        move = next_move(obj, seen)
        again = await self._take(obj, seen, move)
        settled = isinstance(move, Done)
        if settled or isinstance(move, plan.NameIt | plan.TakeClaim):
            self._setbacks.forget(Key(obj.namespace, obj.name))
            self._carcasses.forget(obj)
        if settled and obj.deleting:
            self._ledger.settle(obj.uid)
            self._peer.forget(obj)
        return Outcome(describe(obj, seen, move), again, settled, _notes(move))

    # ---- steps

    async def _take(self, obj: ProxmoxMachine, seen: Seen, move: Move) -> float | None:
        """Take the move; answers when to look again if nothing wakes us before."""
        match move:
            case Done():
                return None
            case Wait():
                return _pause(seen, move)
            case Step():
                return await self._step(obj, move)
            case plan.TakeClaim():
                await self._claim(obj, move)
            case plan.Adopt():
                await self._patch(obj, {"claim": msgspec.to_builtins(move.claim)})
            case plan.ForgetCarcass():
                await self._patch(obj, {"claim": {"left": list(move.left) or None}})
            case plan.NameIt():
                await self._patch(obj, {"providerID": move.provider_id})
            case plan.AskAddresses():
                await self._ask(obj, seen, move)
            case plan.GiveBack():
                await self._give_back(obj, move)
        return POLLED  # the watch tells of our own writes

    async def _step(self, obj: ProxmoxMachine, step: Step) -> float:
        """A running task leaves time for something else; what nobody will tell of is polled."""
        upid = await self._regions[step.region].take(step, Key(obj.namespace, obj.name))
        if isinstance(step, UploadIso | DeleteVolume):
            there = isinstance(step, UploadIso)
            self._shelves.expect(upid, step.shelf, step.volid, there=there)
        return AT_ONCE if upid is not None or step.expects() is not None else POLLED

    async def _claim(self, obj: ProxmoxMachine, move: plan.TakeClaim) -> None:
        """The write that makes a choice a claim; bound to the version it was decided on."""
        choice = move.choice
        change = {
            "region": choice.region,
            "virtualMachineID": choice.vmid,
            "claim": msgspec.to_builtins(choice.claim),
        }
        await self._patch(obj, change, {ZONE_LABEL: choice.claim.zone or "default"})

    async def _patch(
        self, obj: ProxmoxMachine, spec: dict[str, Any], labels: dict[str, str] | None = None
    ) -> None:
        meta: dict[str, Any] = {"resourceVersion": obj.metadata.resource_version}
        if labels:
            meta["labels"] = labels
        change = {"metadata": meta, "spec": spec}
        await self._kube.merge(ProxmoxMachine, obj.name, change, obj.namespace)

    async def _ask(self, obj: ProxmoxMachine, seen: Seen, move: plan.AskAddresses) -> None:
        for name in move.wrong:
            await self._delete_claim(obj, name)
        cluster = seen.around.cluster.name if seen.around else ""
        for want in move.wants:
            meta = ObjectMeta(
                name=want.name,
                namespace=obj.namespace,
                labels={CLUSTER_NAME: cluster, ZONE_LABEL: seen.zone.zone or "default"},
                owner_references=(own(obj),),
            )
            ref = IpamPoolRef(
                api_group=want.pool.api_group, kind=want.pool.kind, name=want.pool.name
            )
            spec = IPAddressClaimSpec(cluster_name=cluster, pool_ref=ref)
            try:
                await self._kube.create(IPAddressClaim(metadata=meta, spec=spec))
            except AlreadyExists:
                continue  # the cache is a little behind, or the name is somebody else's

    async def _give_back(self, obj: ProxmoxMachine, move: plan.GiveBack) -> None:
        for name in move.claims:
            if move.keep:
                change = {"metadata": {"ownerReferences": None}}
                await self._kube.merge(IPAddressClaim, name, change, obj.namespace)
            else:
                await self._delete_claim(obj, name)

    async def _delete_claim(self, obj: ProxmoxMachine, name: str) -> None:
        try:
            await self._kube.delete(IPAddressClaim, name, obj.namespace)
        except NotFound:
            return

    # ---- what wakes it

    def _of_cluster(self, cluster: ProxmoxCluster) -> Iterable[Key]:
        key = cluster_key(cluster) or Key(cluster.namespace, cluster.name)
        return [Key(m.namespace, m.name) for m in self._machines.by(BY_CLUSTER, str(key))]

    def _of_address(self, address: IPAddress) -> Iterable[Key]:
        stem = address.spec.claim_ref.name.rpartition("-net")[0]
        return [Key(address.namespace, stem)] if stem else []

    def listen(self, wake: Callable[[Key], None]) -> None:
        """Let ended tasks, changed guests and regions that fall silent or answer wake it."""

        def on_task(ended: Ended) -> None:
            self._shelves.heard(ended)
            if isinstance(ended.owner, Key):
                self._setbacks.heard(ended)
                wake(ended.owner)

        def on_event(event: Event) -> None:
            for key in self._concerned(event):
                wake(key)

        self._regions.subscribe_tasks(on_task)
        self._regions.subscribe(on_event)

    def _concerned(self, event: Event) -> Iterable[Key]:
        if not isinstance(event, Change):
            found = [m for m in self._machines.list() if m.spec.region == event.region]
        else:
            guest = event.after or event.before
            if not isinstance(guest, GuestSeen):
                return []
            places = {f"{event.region}/{guest.vmid}", *guest.owner_keys}
            found = [m for place in places for m in self._machines.by(BY_MARK, place)]
        return {Key(m.namespace, m.name) for m in found}


def share(obj: ProxmoxMachine) -> str:
    """The region whose share of the work it is."""
    return obj.spec.region or ""


def needs(obj: ProxmoxMachine) -> bool:
    """Objects that somebody else manages are left alone."""
    return MANAGED_BY not in obj.metadata.annotations and MANAGED_BY not in obj.metadata.labels


def _marks(obj: ProxmoxMachine) -> Iterable[str]:
    spec = obj.spec
    if spec.virtual_machine_id is None:
        return ()
    place = f"{spec.region}/{spec.virtual_machine_id}"
    return (place, Mark(spec.claim.uuid).key) if spec.claim else (place,)


def _cluster(obj: ProxmoxMachine) -> Iterable[str]:
    key = cluster_key(obj)
    return (str(key),) if key else ()


def _infra_key(machine: Machine) -> Iterable[Key]:
    ref = machine.spec.infrastructure_ref
    if ref is None or ref.kind != ProxmoxMachine.resource.kind:
        return ()
    return (Key(machine.namespace, ref.name),)


def _owner_keys(claim: IPAddressClaim) -> Iterable[Key]:
    owners = claim.metadata.owner_references
    return [Key(claim.namespace, o.name) for o in owners if o.kind == ProxmoxMachine.resource.kind]


def _pause(seen: Seen, move: Wait) -> float:
    if move.reason == "WaitingForBootstrap":
        return seen.agent_pause
    if seen.pause_seconds:
        return seen.pause_seconds
    if move.reason == in_place.DISK_KEPT:
        return KEPT_DISK
    return ROOM if move.reason == "InsufficientResources" else SAFETY


def _notes(move: Move) -> tuple[Note, ...]:
    if isinstance(move, plan.TakeClaim):
        left = move.choice.claim.left
        said = f"gave up {', '.join(left)}: a clone there died or could not be made"
        told = (Note(plan.LEFT_BEHIND, said, "Warning"),) if left else ()
        return (Note("Placed", move.choice.placement.sentence()), *told)
    name = type(move).__name__
    if name in TOLD and isinstance(move, Step):
        return (Note(name, f"{name} guest {move.vmid} in region {move.region}"),)
    return ()
