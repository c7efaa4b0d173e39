"""
``karpenter.adopt``: adopts guests that karpenter-provider-proxmox made, one by one.

A node claim whose guest has the operator's tag ``moxwell-adopt.NAMESPACE.CLUSTER`` gets a Machine
and a ProxmoxMachine; ``infra.machine`` then sets the owner mark, and the guest, its node and its
claim stay as they are. A guest without the tag is never touched; if its claim ends, an event says
that it stays.
"""

from collections.abc import Sequence
from typing import Any

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.proxmox.adopt.plan import (
    AdoptionReason,
    ObservedForeignClaim,
    next_move,
    place_of,
    staying_message,
)
from moxwell.controllers.karpenter.proxmox.instance_record import machine_name
from moxwell.controllers.karpenter.proxmox.provider import ProviderParts
from moxwell.kube.reader import Reader
from moxwell.pve.model import ObservedGuest
from moxwell.pve.ownership import Mark
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.writes import Writes

NAME = "karpenter.adopt"


class ClaimAdoption(Reconciler[NodeClaim, ObservedForeignClaim, Writes | Done, None]):
    """Creates the objects of guests that the operator lets a cluster adopt."""

    kind = NodeClaim

    def __init__(self, cluster: Key, parts: ProviderParts) -> None:
        self._cluster, self._parts = cluster, parts
        self._tag = Mark("", str(cluster)).adopt_tag

    async def see(self, obj: NodeClaim, reader: Reader) -> ObservedForeignClaim:
        place, ref = place_of(obj), obj.spec.node_class_ref
        if place is None or ref.kind != "ProxmoxNodeClass":
            return ObservedForeignClaim(self._cluster)
        management, namespace = self._parts.sources.management, self._cluster.namespace
        name = machine_name(self._cluster.name, obj.metadata.name, obj.metadata.uid)
        machine = management.machines.find(Key(namespace, name))
        proxmox = management.proxmox_machines.find(Key(namespace, name))
        if proxmox is not None:
            return ObservedForeignClaim(self._cluster, machine=machine, proxmox=proxmox)
        if obj.deleting:
            return ObservedForeignClaim(self._cluster, staying=self._staying(place))
        guest = self._guest(place)
        node_class = self._parts.node_classes.find(Key("", ref.name))
        if guest is None or node_class is None or node_class.deleting:
            return ObservedForeignClaim(self._cluster, machine=machine)
        read = await self._parts.reader.read(node_class)
        zones = [z for z in read.checked.zones if z.key.region == place[0]]
        zone = next((z for z in zones if z.key.name == guest.host), None)
        defaults = self._parts.sources.defaults()
        return ObservedForeignClaim(
            self._cluster, guest, zone, node_class, machine, proxmox, defaults
        )

    def _guest(self, place: tuple[str, int]) -> ObservedGuest | None:
        """The guest of a claim, if the operator's tag is on it."""
        region = self._parts.reader.region(place[0])
        found = region.inventory.find(place[1]) if region else None
        if found is None or found.template or found.kind != "qemu":
            return None
        return found if self._tag in {tag.lower() for tag in found.tags} else None

    def _staying(self, place: tuple[str, int]) -> ObservedGuest | None:
        """The guest of a claim that has no ProxmoxMachine, unless it is one of Moxwell's."""
        region = self._parts.reader.region(place[0])
        found = region.inventory.find(place[1]) if region else None
        return found if found is not None and not found.owner_keys else None

    def events(
        self, obj: NodeClaim, seen: ObservedForeignClaim, move: Writes | Done
    ) -> Sequence[Note]:
        """A warning that a guest stays although its node claim ends."""
        if seen.staying is None:
            return ()
        text = staying_message(seen.staying)
        return (Note(AdoptionReason.NOT_OURS, text, "Warning"),)

    def plan(self, obj: NodeClaim, seen: ObservedForeignClaim) -> Writes | Done:
        return next_move(obj, seen)

    async def act(self, move: Writes | Done) -> Any:
        if isinstance(move, Writes):
            await move.perform(self._parts.management)
        return None

    def describe(self, obj: NodeClaim, seen: ObservedForeignClaim, move: Writes | Done) -> None:
        return None
