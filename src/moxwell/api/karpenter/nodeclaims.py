"""The ``karpenter.sh/v1`` NodeClaim: one machine that Karpenter asks for."""

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import Meta, field

from moxwell.api.conditions import Condition
from moxwell.api.karpenter.fields import (
    AGE,
    COMPARISON_HAS_ONE_INTEGER,
    DURATION,
    DURATION_OR_NEVER,
    ENOUGH_VALUES,
    GROUP,
    IN_HAS_VALUES,
    READY,
    NodeClaimRequirement,
    NodeClaimTaints,
    NodeClassReference,
    Resources,
    validated,
)
from moxwell.api.kinds import Column, Object, ValidationRule, kind
from moxwell.api.meta import Value
from moxwell.api.schema import atomic, keyed

LAUNCHED = "Launched"
REGISTERED = "Registered"
INITIALIZED = "Initialized"
CONSOLIDATABLE = "Consolidatable"
DRIFTED = "Drifted"
DRAINED = "Drained"
VOLUMES_DETACHED = "VolumesDetached"
INSTANCE_TERMINATING = "InstanceTerminating"
CONSISTENT_STATE_FOUND = "ConsistentStateFound"
DISRUPTION_REASON = "DisruptionReason"


class NodeClaimCondition(Condition, frozen=True, kw_only=True):
    """A condition of a NodeClaim; unlike others, reason and message may be empty."""


class ResourceRequests(Value, frozen=True, kw_only=True):
    """The resources that the node must have at least."""

    requests: Resources = field(default_factory=dict)


class NodeClaimSpec(Value, frozen=True, kw_only=True):
    """The desired state of a NodeClaim; it never changes."""

    taints: NodeClaimTaints = ()
    startup_taints: NodeClaimTaints = field(name="startupTaints", default=())
    requirements: Annotated[
        tuple[NodeClaimRequirement, ...],
        Meta(max_length=100),
        atomic(),
        validated(IN_HAS_VALUES, COMPARISON_HAS_ONE_INTEGER, ENOUGH_VALUES),
    ]
    resources: ResourceRequests | None = None
    node_class_ref: NodeClassReference = field(name="nodeClassRef")
    termination_grace_period: Annotated[str, Meta(pattern=DURATION)] | None = field(
        name="terminationGracePeriod", default=None
    )
    expire_after: Annotated[str, Meta(pattern=DURATION_OR_NEVER)] = field(
        name="expireAfter", default="720h"
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule("self == oldSelf", "spec is immutable", lambda self, old: self == old),
    )


class NodeClaimStatus(Value, frozen=True, kw_only=True):
    """The observed state of a NodeClaim."""

    node_name: str = field(name="nodeName", default="")
    provider_id: str = field(name="providerID", default="")
    image_id: str = field(name="imageID", default="")
    capacity: Resources = field(default_factory=dict)
    allocatable: Resources = field(default_factory=dict)
    conditions: Annotated[tuple[NodeClaimCondition, ...], keyed("type")] = ()
    last_pod_event_time: datetime | None = field(name="lastPodEventTime", default=None)


@kind(
    group=GROUP,
    version="v1",
    plural="nodeclaims",
    scope="Cluster",
    categories=("karpenter",),
    status=True,
    columns=(
        Column("Type", r".metadata.labels.node\.kubernetes\.io/instance-type"),
        Column("Capacity", r".metadata.labels.karpenter\.sh/capacity-type"),
        Column("Zone", r".metadata.labels.topology\.kubernetes\.io/zone"),
        Column("Node", ".status.nodeName"),
        READY,
        AGE,
        Column("ImageID", ".status.imageID", priority=1),
        Column("ID", ".status.providerID", priority=1),
        Column("NodePool", r".metadata.labels.karpenter\.sh/nodepool", priority=1),
        Column("NodeClass", ".spec.nodeClassRef.name", priority=1),
        Column("Drifted", '.status.conditions[?(@.type=="Drifted")].status', priority=1),
    ),
)
class NodeClaim(Object, frozen=True, kw_only=True):
    """A request for one node, and the machine that answers it."""

    spec: NodeClaimSpec
    status: NodeClaimStatus = field(default_factory=NodeClaimStatus)


KINDS = (NodeClaim,)
