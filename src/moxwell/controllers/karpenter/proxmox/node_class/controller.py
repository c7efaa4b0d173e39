"""``karpenter.nodeclass``: reconciles the ProxmoxNodeClasses of a cluster that is scaled."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import (
    PROVIDER_GROUP,
    ProxmoxNodeClass,
    ProxmoxNodeClassStatus,
)
from moxwell.controllers.karpenter.proxmox.node_class.plan import (
    ChangeMachines,
    NodeClassMove,
    ObservedNodeClass,
    describe,
    next_move,
)
from moxwell.controllers.karpenter.proxmox.node_class.see import NodeClassObserver
from moxwell.controllers.karpenter.proxmox.provider import ProviderParts
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Writes

NAME = "karpenter.nodeclass"
FINALIZER = f"{PROVIDER_GROUP}/termination"


def _class_of(claim: NodeClaim) -> list[Key]:
    ref = claim.spec.node_class_ref
    return [Key("", ref.name)] if ref.kind == "ProxmoxNodeClass" else []


def _comes_or_goes(old: NodeClaim | None, new: NodeClaim | None) -> bool:
    return old is None or new is None


class NodeClassController(
    Reconciler[ProxmoxNodeClass, ObservedNodeClass, NodeClassMove, ProxmoxNodeClassStatus]
):
    """Checks node classes, and changes their machines in place."""

    kind = ProxmoxNodeClass
    finalizer = FINALIZER
    watches: Sequence[Watch] = (Watch(NodeClaim, _class_of, _comes_or_goes),)

    def __init__(
        self, scaled: Kube, cluster: Key, parts: ProviderParts, claims: Cache[NodeClaim]
    ) -> None:
        self._kube, self._management = scaled, parts.management
        self._observer = NodeClassObserver(cluster, parts, claims)

    async def see(self, obj: ProxmoxNodeClass, reader: Reader) -> ObservedNodeClass:
        return await self._observer.see(obj)

    def plan(self, obj: ProxmoxNodeClass, seen: ObservedNodeClass) -> NodeClassMove:
        return next_move(obj, seen)

    async def act(self, move: NodeClassMove) -> Any:
        if isinstance(move, ChangeMachines):
            await move.writes.perform(self._management)
        elif isinstance(move, Writes):
            return await move.perform(self._kube, ProxmoxNodeClass)
        return None

    def describe(
        self, obj: ProxmoxNodeClass, seen: ObservedNodeClass, move: NodeClassMove
    ) -> ProxmoxNodeClassStatus | None:
        return None if obj.deleting else describe(obj, seen, move)
