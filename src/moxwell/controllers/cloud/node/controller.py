"""The loop over nodes: give new ones their identity, keep addresses and places true."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from moxwell.api.core.nodes import Node
from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.controllers.cloud import identity
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.guest_lookup import guest_of
from moxwell.controllers.cloud.identity import Place
from moxwell.controllers.cloud.metrics import CloudMetrics
from moxwell.controllers.cloud.node import plan
from moxwell.controllers.cloud.node.see import Eyes
from moxwell.kube.client import Kube
from moxwell.pve.model import Change, Event, GuestSeen
from moxwell.pve.regions import Regions
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Wait
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

NAME = "cloud.node"
REFRESH_SECONDS = 300.0
RETRY_SECONDS = 10.0
PINNED_SECONDS = 60.0
STORAGE = "storage.k8s.io"
ATTACHMENTS = Resource(STORAGE, "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)


def by_guest(node: Node) -> Iterable[str]:
    """Index nodes by ``region/vmid``."""
    place = guest_of(node)
    return (f"{place[0]}/{place[1]}",) if place else ()


def by_short_name(node: Node) -> Iterable[str]:
    """Index nodes that nobody has named yet by the name their guest should have."""
    return () if guest_of(node) else (node.name.partition(".")[0],)


INDEXES = {"cloud.guest": by_guest, "cloud.name": by_short_name}


class CloudNodes:
    """One pass for each node."""

    kind = Node
    finalizer = ""
    watches: Sequence[Watch] = ()

    def __init__(
        self,
        kube: Kube,
        eyes: Eyes,
        features: Features,
        nodes: Cache[Node],
        *,
        clock: Clock,
        metrics: CloudMetrics,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        self._kube, self._eyes, self._features, self._nodes = kube, eyes, features, nodes
        self._clock, self._metrics, self._refresh = clock, metrics, refresh_seconds

    async def reconcile(self, node: Node) -> Outcome[Any]:
        answer, place = await self._eyes.see(node)
        pinned = await self._is_pinned(node) if self._moves(node, place) else False
        move = plan.next_move(node, answer, place, self._features, pinned)
        match move:
            case plan.Initialize(change, addresses):
                return await self._initialise(node, change, addresses)
            case plan.Relabel(labels, addresses, where):
                change = {"metadata": {"labels": dict(labels)}}
                left = await self._kube.merge(Node, node.name, change)
                told = (Note("Relabelled", f"the guest has moved to {where}"),) if where else ()
                return Outcome(_status(addresses), self._refresh, notes=told, left=left)
            case plan.Refresh(addresses):
                return Outcome(_status(addresses), again=self._refresh)
            case Wait(reason, message):
                return self._told(node, reason, message)
        return Outcome(None, again=self._refresh)

    async def _initialise(self, node: Node, change: Any, addresses: Sequence[Any]) -> Outcome[Any]:
        left = await self._kube.merge(Node, node.name, change)
        if (born := node.metadata.creation_timestamp) is not None:
            self._metrics.initialised((self._clock.now() - born).total_seconds())
        told = [Note("Synced", "Node synced successfully")]
        if not any(a.type in {"InternalIP", "ExternalIP"} for a in addresses):
            why = "no address is known: start the kubelet with --node-ip, or set network.mode: auto"
            told.append(Note("NoAddress", why, "Warning"))
        return Outcome(_status(addresses), self._refresh, notes=tuple(told), left=left)

    def _told(self, node: Node, reason: str, message: str) -> Outcome[Any]:
        """Wait, and say for what where somebody can do something about it."""
        if plan.is_new(node):
            soon = reason != "GuestNotFound" or self._eyes.is_young(node)
            again = RETRY_SECONDS if soon else self._refresh
        elif reason == "ZoneLabelKept":
            again = PINNED_SECONDS
        else:
            again = self._refresh
        speaks = plan.is_new(node) or reason in {"ZoneLabelKept", "NeverInitialized"}
        told = (Note(reason, message, "Warning"),) if speaks else ()
        return Outcome(None, again=again, notes=told)

    def _moves(self, node: Node, place: Place | None) -> bool:
        if place is None or plan.is_new(node):
            return False
        return plan.has_moved(node, place, self._features)

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

    def listen(self, regions: Regions, wake: Callable[[Key], None]) -> Callable[[], None]:
        """Let guests that start, move or are renamed wake their nodes; answers the end of it."""

        def heard(event: Event) -> None:
            if isinstance(event, Change):
                for name in self._concerned(event):
                    wake(Key("", name))

        return regions.subscribe(heard)

    def _concerned(self, event: Change) -> Iterable[str]:
        guest = event.after or event.before
        if not isinstance(guest, GuestSeen):
            return ()
        named = self._nodes.by("cloud.guest", f"{event.region}/{guest.vmid}")
        unnamed = self._nodes.by("cloud.name", guest.name.partition(".")[0])
        return [n.name for n in (*named, *unnamed)]


def _status(addresses: Sequence[Any]) -> dict[str, Any]:
    return {"addresses": [msgspec.to_builtins(a) for a in addresses]}


def _only_in(volume: dict[str, Any], zone: str) -> bool:
    affinity = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    return any(
        expression.get("key") == identity.ZONE and zone in (expression.get("values") or ())
        for term in affinity.get("nodeSelectorTerms") or ()
        for expression in term.get("matchExpressions") or ()
    )
