"""``cloud.node``: initializes nodes and keeps their addresses and topology labels up to date."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from moxwell.api.core.nodes import Node, NodeAddress
from moxwell.clock import Clock
from moxwell.controllers.cloud import loops
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.guest_lookup import guest_of
from moxwell.controllers.cloud.metrics import CloudMetrics
from moxwell.controllers.cloud.node.plan import (
    CloudNodeMove,
    CloudNodeReason,
    InitializeCloudNode,
    ObservedCloudNode,
    RefreshAddresses,
    RelabelNode,
    is_new,
    plan_node,
)
from moxwell.controllers.cloud.node.see import CloudNodeObserver
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.pve.model import InventoryChange, InventoryEvent, ObservedGuest
from moxwell.pve.regions import Regions
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.reconciler import Note, Reconciler

NAME = loops.NODE
RETRY_SECONDS = 10.0
PINNED_SECONDS = 60.0
Json = dict[str, Any]


def by_guest(node: Node) -> Iterable[str]:
    """Index nodes by ``region/vmid``."""
    guest = guest_of(node)
    return (f"{guest[0]}/{guest[1]}",) if guest else ()


def by_short_name(node: Node) -> Iterable[str]:
    """Index nodes without provider ID by the name that their guest should have."""
    return () if guest_of(node) else (node.name.partition(".")[0],)


INDEXES = {"cloud.guest": by_guest, "cloud.name": by_short_name}


class CloudNodeReconciler(Reconciler[Node, ObservedCloudNode, CloudNodeMove, Json]):
    """One pass per node."""

    kind = Node

    def __init__(
        self,
        kube: Kube,
        observer: CloudNodeObserver,
        features: Features,
        nodes: Cache[Node],
        *,
        clock: Clock,
        metrics: CloudMetrics,
        refresh_seconds: float = loops.REFRESH_SECONDS,
    ) -> None:
        self._kube, self._observer, self._features = kube, observer, features
        self._nodes, self._clock, self._metrics = nodes, clock, metrics
        self._refresh = refresh_seconds

    async def see(self, obj: Node, reader: Reader) -> ObservedCloudNode:
        return await self._observer.see(obj, reader)

    def plan(self, obj: Node, seen: ObservedCloudNode) -> CloudNodeMove:
        return plan_node(obj, seen, self._features)

    async def act(self, move: CloudNodeMove) -> Node | None:
        match move:
            case InitializeCloudNode():
                written = await self._kube.merge(Node, move.name, move.change)
                if move.created is not None:
                    delay = self._clock.now() - move.created
                    self._metrics.node_initialized(delay.total_seconds())
                return written
            case RelabelNode():
                change = {"metadata": {"labels": dict(move.labels)}}
                return await self._kube.merge(Node, move.name, change)
        return None  # addresses are part of the status

    def describe(self, obj: Node, seen: ObservedCloudNode, move: CloudNodeMove) -> Json | None:
        """The addresses; the rest of the status is the kubelet's."""
        if not isinstance(move, InitializeCloudNode | RelabelNode | RefreshAddresses):
            return None
        return {"addresses": [msgspec.to_builtins(a) for a in move.addresses]}

    def events(self, obj: Node, seen: ObservedCloudNode, move: CloudNodeMove) -> Sequence[Note]:
        match move:
            case InitializeCloudNode():
                synced = Note(CloudNodeReason.SYNCED, "Node synced successfully")
                return (synced, *_missing_address(move))
            case RelabelNode(moved_to=moved_to) if moved_to:
                return (Note(CloudNodeReason.RELABELLED, f"the guest was migrated to {moved_to}"),)
            case Wait(reason, message) if is_new(obj) or reason in (
                CloudNodeReason.ZONE_LABEL_KEPT,
                CloudNodeReason.NEVER_INITIALIZED,
            ):
                return (Note(reason, message, "Warning"),)
        return ()

    def requeue_after(
        self, obj: Node, seen: ObservedCloudNode, move: CloudNodeMove
    ) -> float | None:
        if not isinstance(move, Wait):
            asked_too_early = seen.young and _waits_for_address(obj, move)
            return RETRY_SECONDS if asked_too_early else self._refresh
        if is_new(obj):
            soon = move.reason != CloudNodeReason.GUEST_NOT_FOUND or seen.young
            return RETRY_SECONDS if soon else self._refresh
        kept = move.reason == CloudNodeReason.ZONE_LABEL_KEPT
        return PINNED_SECONDS if kept else self._refresh

    def subscribe(self, regions: Regions, wake: Callable[[Key], None]) -> Callable[[], None]:
        """Reconcile nodes whose guest starts, moves or is renamed; returns the end of it."""

        def changed(event: InventoryEvent) -> None:
            if isinstance(event, InventoryChange):
                for name in self._nodes_of(event):
                    wake(Key("", name))

        return regions.subscribe(changed)

    def _nodes_of(self, event: InventoryChange) -> Iterable[str]:
        guest = event.after or event.before
        if not isinstance(guest, ObservedGuest):
            return ()
        named = self._nodes.by("cloud.guest", f"{event.region}/{guest.vmid}")
        unnamed = self._nodes.by("cloud.name", guest.name.partition(".")[0])
        return [n.name for n in (*named, *unnamed)]


def _waits_for_address(obj: Node, move: CloudNodeMove) -> bool:
    """Whether a guest's node has no address, as before its guest agent runs."""
    if isinstance(move, Done):
        return guest_of(obj) is not None and not _has_address(obj.status.addresses)
    return not isinstance(move, Wait) and not _has_address(move.addresses)


def _has_address(rows: Iterable[NodeAddress]) -> bool:
    return any(a.type in {"InternalIP", "ExternalIP"} for a in rows)


def _missing_address(move: InitializeCloudNode) -> Sequence[Note]:
    if _has_address(move.addresses):
        return ()
    text = "no address is known: start the kubelet with --node-ip, or set network.mode: auto"
    return (Note(CloudNodeReason.NO_ADDRESS, text, "Warning"),)
