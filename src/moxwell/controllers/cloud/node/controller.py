"""The loop over nodes: give new ones their identity, keep addresses and places true."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from moxwell.api.core.nodes import Node
from moxwell.api.kinds import Resource
from moxwell.controllers.cloud import identity
from moxwell.controllers.cloud.node import plan
from moxwell.controllers.cloud.node.see import Eyes
from moxwell.controllers.cloud.settings import Features
from moxwell.kube.client import Kube
from moxwell.pve.regions import Regions
from moxwell.pve.seen import Change, Event, GuestSeen
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Wait
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

NAME = "cloud.node"
REFRESH_SECONDS = 300.0
RETRY_SECONDS = 10.0
STORAGE = "storage.k8s.io"
ATTACHMENTS = Resource(STORAGE, "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)


class CloudNodes:
    """One pass for each node."""

    kind = Node
    finalizer = ""
    watches: Sequence[Watch] = ()

    def __init__(self, kube: Kube, eyes: Eyes, features: Features, nodes: Cache[Node]) -> None:
        self._kube, self._eyes, self._features, self._nodes = kube, eyes, features, nodes

    async def reconcile(self, node: Node) -> Outcome[Any]:
        answer, place = await self._eyes.see(node)
        pinned = await self._is_pinned(node) if place is not None and self._asks(node) else False
        move = plan.next_move(node, answer, place, self._features, pinned)
        match move:
            case plan.Initialize(change, addresses):
                left = await self._kube.merge(Node, node.name, change)
                told = (Note("Synced", "Node synced successfully"),)
                return Outcome(_status(addresses), REFRESH_SECONDS, notes=told, left=left)
            case plan.Relabel(labels, addresses):
                change = {"metadata": {"labels": dict(labels)}}
                left = await self._kube.merge(Node, node.name, change)
                where = f"{labels[identity.REGION]}/{labels[identity.ZONE]}"
                told = (Note("Relabelled", f"the guest has moved to {where}"),)
                return Outcome(_status(addresses), REFRESH_SECONDS, notes=told, left=left)
            case plan.Refresh(addresses):
                return Outcome(_status(addresses), again=REFRESH_SECONDS)
            case Wait(reason, message) if plan.is_new(node) or reason == "ZoneLabelKept":
                told = (Note(reason, message, "Warning"),)
                return Outcome(None, again=RETRY_SECONDS, notes=told)
        return Outcome(None, again=REFRESH_SECONDS)

    def _asks(self, node: Node) -> bool:
        return self._features.force_update_labels and not plan.is_new(node)

    async def _is_pinned(self, node: Node) -> bool:
        """Whether an attached volume can only be in the zone the node is labelled with."""
        zone = node.metadata.labels.get(identity.ZONE, "")
        held = (await self._kube.list(ATTACHMENTS)).items
        names = {
            v["spec"].get("source", {}).get("persistentVolumeName")
            for v in held
            if v["spec"].get("nodeName") == node.name
        }
        if not names:
            return False
        volumes = (await self._kube.list(VOLUMES)).items
        return any(v["metadata"]["name"] in names and _only_in(v, zone) for v in volumes)

    # What wakes it

    def listen(self, regions: Regions, wake: Callable[[Key], None]) -> None:
        """Let guests that start, move or are renamed wake their nodes."""

        def heard(event: Event) -> None:
            if isinstance(event, Change):
                for name in self._concerned(event):
                    wake(Key("", name))

        regions.subscribe(heard)

    def _concerned(self, event: Change) -> Iterable[str]:
        guest = event.after or event.before
        if not isinstance(guest, GuestSeen):
            return ()
        provider = f"proxmox://{event.region}/{guest.vmid}"
        return [
            n.name
            for n in self._nodes.list()
            if n.spec.provider_id == provider or n.name.partition(".")[0] == guest.name
        ]


def _status(addresses: Sequence[Any]) -> dict[str, Any]:
    return {"addresses": [msgspec.to_builtins(a) for a in addresses]}


def _only_in(volume: dict[str, Any], zone: str) -> bool:
    affinity = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    return any(
        expression.get("key") == identity.ZONE and zone in (expression.get("values") or ())
        for term in affinity.get("nodeSelectorTerms") or ()
        for expression in term.get("matchExpressions") or ()
    )
