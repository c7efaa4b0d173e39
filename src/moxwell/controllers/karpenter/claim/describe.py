"""The status of a node claim. Pure."""

from collections.abc import Mapping

from msgspec import field

from moxwell.api.karpenter.nodeclaims import (
    CONSISTENT_STATE_FOUND,
    DRAINED,
    INITIALIZED,
    INSTANCE_TERMINATING,
    LAUNCHED,
    REGISTERED,
    VOLUMES_DETACHED,
    NodeClaim,
    NodeClaimCondition,
)
from moxwell.api.meta import Value
from moxwell.controllers.karpenter.claim.observed import LaunchRecord, ObservedNodeClaim
from moxwell.controllers.karpenter.claim.reasons import NodeClaimReason
from moxwell.controllers.karpenter.claim.registration import (
    inconsistencies,
    uninitialized_reason,
)
from moxwell.controllers.karpenter.karpenter_conditions import condition, ready
from moxwell.controllers.karpenter.node_termination import NodeTermination, TerminationPhase
from moxwell.controllers.karpenter.provider import InstanceState
from moxwell.scheduling import well_known_labels

OWNED = (CONSISTENT_STATE_FOUND,)  # removed when the node is not initialized any more


class ClaimLifecycleStatus(Value, frozen=True, kw_only=True):
    """The fields of the status that this controller owns."""

    node_name: str = field(name="nodeName", default="")
    provider_id: str = field(name="providerID", default="")
    image_id: str = field(name="imageID", default="")
    capacity: Mapping[str, str | int] = field(default_factory=dict)
    allocatable: Mapping[str, str | int] = field(default_factory=dict)
    conditions: tuple[NodeClaimCondition, ...] = ()


def describe_claim(claim: NodeClaim, seen: ObservedNodeClaim) -> ClaimLifecycleStatus:
    """The machine, the node, and how far they are."""
    record, node = _record(seen), seen.node
    steps = (launched(seen), registered(seen), initialized(claim, seen))
    return ClaimLifecycleStatus(
        node_name=node.metadata.name if node and seen.is_registered else record.node_name,
        provider_id=record.provider_id,
        image_id=record.image_id,
        capacity=dict(record.capacity),
        allocatable=dict(record.allocatable),
        conditions=(*steps, ready(steps), *_consistency(claim, seen), *_termination(claim, seen)),
    )


def _record(seen: ObservedNodeClaim) -> LaunchRecord:
    """The launch record: the machine as it is, or as it was."""
    instance = seen.instance
    if instance is None or not seen.is_launched or not instance.provider_id:
        return seen.record
    return LaunchRecord(
        provider_id=seen.record.provider_id or instance.provider_id,
        image_id=instance.image_id,
        node_name=seen.record.node_name,
        capacity=tuple(sorted(instance.capacity.items())),
        allocatable=tuple(sorted(instance.allocatable.items())),
    )


def launched(seen: ObservedNodeClaim) -> NodeClaimCondition:
    if seen.is_launched:
        return condition(LAUNCHED, "True")
    instance = seen.instance
    if instance is None:
        return condition(
            LAUNCHED, "Unknown", NodeClaimReason.LAUNCHING, "the machine is not made yet"
        )
    if instance.state is InstanceState.FAILED:
        reason = instance.failure or NodeClaimReason.LAUNCH_FAILED
        return condition(LAUNCHED, "Unknown", reason, instance.message)
    text = instance.message or "the machine is being made"
    return condition(LAUNCHED, "Unknown", NodeClaimReason.LAUNCHING, text)


def registered(seen: ObservedNodeClaim) -> NodeClaimCondition:
    if seen.is_registered:
        return condition(REGISTERED, "True")
    if len(seen.nodes) > 1:
        text = "Invariant violated, matched multiple nodes"
        return condition(REGISTERED, "False", NodeClaimReason.MULTIPLE_NODES_FOUND, text)
    text = "Node not registered with cluster"
    return condition(REGISTERED, "Unknown", NodeClaimReason.NODE_NOT_FOUND, text)


def initialized(claim: NodeClaim, seen: ObservedNodeClaim) -> NodeClaimCondition:
    node = seen.node
    if node is None or not seen.is_registered:
        text = "Node not registered with cluster"
        return condition(INITIALIZED, "Unknown", NodeClaimReason.NODE_NOT_FOUND, text)
    if node.metadata.labels.get(well_known_labels.INITIALIZED) == "true":
        return condition(INITIALIZED, "True")
    missing = uninitialized_reason(claim, node)
    reason, text = missing or (NodeClaimReason.UNINITIALIZED, "the node is being labelled")
    return condition(INITIALIZED, "Unknown", reason, text)


def _consistency(claim: NodeClaim, seen: ObservedNodeClaim) -> tuple[NodeClaimCondition, ...]:
    if seen.node is None or initialized(claim, seen).status != "True":
        return ()
    if inconsistencies(claim, seen.node):
        reason, text = NodeClaimReason.CONSISTENCY_CHECK_FAILED, "Consistency Check Failed"
        return (condition(CONSISTENT_STATE_FOUND, "False", reason, text),)
    return (condition(CONSISTENT_STATE_FOUND, "True"),)


def _termination(claim: NodeClaim, seen: ObservedNodeClaim) -> tuple[NodeClaimCondition, ...]:
    if claim.metadata.deletion_timestamp is None:
        return ()
    nodes = seen.terminations
    found = list(_drain(nodes[0]) if nodes else ())
    ending = seen.instance is None or seen.instance.state is InstanceState.TERMINATING
    if ending and seen.is_launched and not any(_is_before(n) for n in nodes):
        found.append(condition(INSTANCE_TERMINATING, "True"))
    return tuple(found)


def _is_before(node: NodeTermination) -> bool:
    return node.phase is not TerminationPhase.TERMINATING


def _drain(node: NodeTermination) -> tuple[NodeClaimCondition, ...]:
    phase = node.phase
    if phase is TerminationPhase.DRAINING:
        reason = NodeClaimReason.DRAINING
        return (condition(DRAINED, "Unknown", reason, reason),)
    drained = condition(DRAINED, "True")
    if phase is TerminationPhase.DETACHING:
        reason = NodeClaimReason.AWAITING_VOLUME_DETACHMENT
        return drained, condition(VOLUMES_DETACHED, "Unknown", reason, reason)
    if node.attachments:
        reason = NodeClaimReason.TERMINATION_GRACE_PERIOD_ELAPSED
        return drained, condition(VOLUMES_DETACHED, "False", reason, reason)
    return drained, condition(VOLUMES_DETACHED, "True")
