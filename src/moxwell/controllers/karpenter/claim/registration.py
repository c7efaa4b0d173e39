"""What a node gets from its node claim, and when it is initialized. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec

from moxwell.api.core.nodes import Node, Taint
from moxwell.api.karpenter.fields import NodeClaimTaint
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.claim.reasons import NodeClaimReason
from moxwell.controllers.karpenter.names import (
    DO_NOT_SYNC_TAINTS,
    FINALIZER,
    UNREGISTERED,
)
from moxwell.runtime.writes import Merge
from moxwell.scheduling.resource_lists import offered, requested
from moxwell.scheduling.taints import is_ephemeral, same_taint, taint_text
from moxwell.scheduling.well_known_labels import INITIALIZED, REGISTERED

LEAST_SHARE = 0.9  # of the expected capacity that a consistent node has


def register(claim: NodeClaim, node: Node) -> Merge:
    """Give a node the labels, annotations, taints, owner and finalizer of its node claim."""
    meta = node.metadata
    change: dict[str, Any] = {
        "resourceVersion": meta.resource_version,
        "labels": {**claim.metadata.labels, REGISTERED: "true"},
        "ownerReferences": _owners(claim, node),
        "finalizers": sorted({*meta.finalizers, FINALIZER}),
    }
    if claim.metadata.annotations:
        change["annotations"] = dict(claim.metadata.annotations)
    taints = [msgspec.to_builtins(t) for t in _taints(claim, node)]
    return Merge(Node, meta.name, {"metadata": change, "spec": {"taints": taints or None}})


def initialize(node: Node) -> Merge:
    """Mark a node as initialized."""
    return Merge(Node, node.metadata.name, {"metadata": {"labels": {INITIALIZED: "true"}}})


def _owners(claim: NodeClaim, node: Node) -> list[dict[str, Any]]:
    kept = [o for o in node.metadata.owner_references if o.uid != claim.metadata.uid]
    own = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "blockOwnerDeletion": True,
    }
    return [*(msgspec.to_builtins(o) for o in kept), own]


def _taints(claim: NodeClaim, node: Node) -> list[Taint]:
    taints = [t for t in node.spec.taints if not same_taint(t, UNREGISTERED)]
    if node.metadata.labels.get(DO_NOT_SYNC_TAINTS) == "true":
        return taints
    for wanted in as_taints((*claim.spec.taints, *claim.spec.startup_taints)):
        if not any(same_taint(wanted, t) for t in taints):
            taints.append(wanted)
    return taints


def as_taints(taints: Iterable[NodeClaimTaint]) -> tuple[Taint, ...]:
    """The taints of a node claim as taints of a node."""
    return tuple(Taint(key=t.key, value=t.value or "", effect=t.effect) for t in taints)


def lacks_unregistered_taint(node: Node) -> bool:
    """Whether pods could be bound before the node had the taints of its node claim."""
    if node.metadata.labels.get(REGISTERED) == "true":
        return False
    return not any(same_taint(t, UNREGISTERED) for t in node.spec.taints)


def uninitialized_reason(claim: NodeClaim, node: Node) -> tuple[NodeClaimReason, str] | None:
    """The reason and the message while a node is not initialized; None if nothing is missing."""
    if not node.status.is_true("Ready"):
        return NodeClaimReason.NODE_NOT_READY, "Node status is NotReady"
    startup = as_taints(claim.spec.startup_taints)
    for taint in node.spec.taints:
        if any(same_taint(taint, s) for s in startup):
            return (
                NodeClaimReason.STARTUP_TAINTS_EXIST,
                f'StartupTaint "{taint_text(taint)}" still exists',
            )
    for taint in node.spec.taints:
        if is_ephemeral(taint):
            text = f'KnownEphemeralTaint "{taint_text(taint)}" still exists'
            return NodeClaimReason.KNOWN_EPHEMERAL_TAINTS_EXIST, text
    allocatable = offered(node.status.allocatable)
    for name, amount in sorted(_requests(claim).items()):
        if amount and not allocatable.get(name):
            text = f'Resource "{name}" was requested but not registered'
            return NodeClaimReason.RESOURCE_NOT_REGISTERED, text
    return None


def inconsistencies(claim: NodeClaim, node: Node) -> tuple[str, ...]:
    """The requested resources of which the node has less than 90 % of what was expected."""
    expected, found = offered(claim.status.capacity), offered(node.status.capacity)
    return tuple(
        f"expected {claim.status.capacity[name]} of resource {name}, but found "
        f"{node.status.capacity.get(name, 0)} ({100 * found.get(name, 0) / expected[name]:.1f}% "
        "of expected)"
        for name, amount in sorted(_requests(claim).items())
        if amount and expected.get(name) and found.get(name, 0) < LEAST_SHARE * expected[name]
    )


def _requests(claim: NodeClaim) -> dict[str, int]:
    return requested(claim.spec.resources.requests if claim.spec.resources else None)
