"""Which machines, node claims and nodes are deleted because their counterpart is gone. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import REGISTERED, NodeClaim
from moxwell.controllers.karpenter.karpenter_conditions import is_true
from moxwell.controllers.karpenter.names import FINALIZER
from moxwell.controllers.karpenter.provider import InstanceState, NodeInstance

_NOT_ALIVE = (InstanceState.TERMINATING, InstanceState.LOST)


@dataclass(frozen=True, slots=True)
class KarpenterInventory:
    """
    Machines, node claims and nodes of the scaled cluster.

    The machines are read before the node claims: a machine whose node claim is missing has lost it,
    unless an object could not be decoded (``unreadable``).
    """

    instances: tuple[NodeInstance, ...]
    claims: tuple[NodeClaim, ...]
    nodes: tuple[Node, ...]
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What garbage collection deletes."""

    instances: tuple[NodeInstance, ...] = ()
    claims: tuple[NodeClaim, ...] = ()
    nodes: tuple[Node, ...] = ()


def leftovers(seen: KarpenterInventory) -> Leftovers:
    """Machines without node claim, and node claims and nodes without machine."""
    if seen.unreadable:
        return Leftovers()
    uids = {c.metadata.uid for c in seen.claims}
    alive = [i for i in seen.instances if i.state not in _NOT_ALIVE]
    machines = {i.uid for i in alive}
    provider_ids = {i.provider_id for i in alive if i.provider_id}
    ready = {n.spec.provider_id for n in seen.nodes if n.status.is_true("Ready")}
    return Leftovers(
        tuple(i for i in seen.instances if i.uid not in uids),
        tuple(c for c in seen.claims if _lost_machine(c, machines, ready)),
        tuple(_orphaned(seen.nodes, uids, provider_ids)),
    )


def _lost_machine(claim: NodeClaim, machines: set[str], ready: set[str]) -> bool:
    """Only registered node claims: others have timeouts. A Ready node proves that it runs."""
    if claim.metadata.deletion_timestamp is not None or not is_true(claim, REGISTERED):
        return False
    return claim.metadata.uid not in machines and claim.status.provider_id not in ready


def _orphaned(nodes: Iterable[Node], claims: set[str], provider_ids: set[str]) -> Iterable[Node]:
    """Nodes that a node claim owned which does not exist any more, and whose machine is gone."""
    for node in nodes:
        owners = [o for o in node.metadata.owner_references if o.kind == "NodeClaim"]
        if FINALIZER not in node.metadata.finalizers or not owners:
            continue
        gone = not any(o.uid in claims for o in owners)
        stopped = node.spec.provider_id not in provider_ids and not node.status.is_true("Ready")
        if gone and stopped and node.metadata.deletion_timestamp is None:
            yield node
