"""The ``karpenter.sh/v1`` NodePool: which nodes Karpenter may make, and when it removes them."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

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
    LABEL_VALUE,
    READY,
    NodeClaimTaints,
    NodeClassReference,
    NodePoolRequirement,
    Resources,
    validated,
)
from moxwell.api.kinds import Column, Object, ScalePaths, ValidationRule, kind
from moxwell.api.meta import Value
from moxwell.api.schema import atomic, unique

DisruptionReasonName = Literal["Underutilized", "Empty", "Drifted"]
ConsolidationPolicy = Literal["WhenEmptyOrUnderutilized", "WhenEmpty", "Balanced"]
VALIDATION_SUCCEEDED = "ValidationSucceeded"
NODE_CLASS_READY = "NodeClassReady"
NODE_REGISTRATION_HEALTHY = "NodeRegistrationHealthy"
CRON = (
    r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))"
    r"|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$"
)
_LABEL_RULES = (
    (
        'self.all(x, x in ["karpenter.sh/capacity-type", "karpenter.sh/nodepool"]'
        ' || !x.find("^([^/]+)").endsWith("karpenter.sh"))',
        'label domain "karpenter.sh" is restricted',
    ),
    (
        'self.all(x, x != "karpenter.sh/nodepool")',
        'label "karpenter.sh/nodepool" is restricted',
    ),
    (
        'self.all(x, x != "kubernetes.io/hostname")',
        'label "kubernetes.io/hostname" is restricted',
    ),
)
_BOUNDED_LABELS: dict[str, Any] = {"maxProperties": 100, "x-kubernetes-map-type": "atomic"}
_BUDGET_RULE = (
    "self.all(x, has(x.schedule) == has(x.duration))",
    "'schedule' must be set with 'duration'",
)


class DisruptionBudget(Value, frozen=True, kw_only=True):
    """How many nodes may be disrupted at the same time."""

    nodes: Annotated[str, Meta(pattern="^((100|[0-9]{1,2})%|[0-9]+)$")] = "10%"
    reasons: Annotated[tuple[DisruptionReasonName, ...], Meta(max_length=50), unique()] = ()
    schedule: Annotated[str, Meta(pattern=CRON)] | None = None
    duration: Annotated[str, Meta(pattern="^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$")] | None = (
        None
    )


class NodePoolDisruption(Value, frozen=True, kw_only=True):
    """When and how fast nodes of the pool are disrupted."""

    consolidate_after: Annotated[str, Meta(pattern=DURATION_OR_NEVER)] = field(
        name="consolidateAfter"
    )
    consolidation_policy: ConsolidationPolicy = field(
        name="consolidationPolicy", default="WhenEmptyOrUnderutilized"
    )
    budgets: Annotated[
        tuple[DisruptionBudget, ...],
        Meta(max_length=50),
        atomic(),
        validated(_BUDGET_RULE, default=[{"nodes": "10%"}]),
    ] = (DisruptionBudget(),)


class NodePoolTemplateMeta(Value, frozen=True, kw_only=True):
    """Labels and annotations of the pool's nodes."""

    labels: Annotated[
        Mapping[str, Annotated[str, Meta(max_length=63, pattern=LABEL_VALUE)]],
        validated(*_LABEL_RULES, **_BOUNDED_LABELS),
    ] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class PoolNodeClassReference(NodeClassReference, frozen=True, kw_only=True):
    """The node class of a pool; its group and kind never change."""

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "self.group == oldSelf.group",
            "nodeClassRef.group is immutable",
            lambda self, old: self.group == old.group,
        ),
        ValidationRule(
            "self.kind == oldSelf.kind",
            "nodeClassRef.kind is immutable",
            lambda self, old: self.kind == old.kind,
        ),
    )


class NodePoolTemplateSpec(Value, frozen=True, kw_only=True):
    """The NodeClaims that the pool makes."""

    taints: NodeClaimTaints = ()
    startup_taints: NodeClaimTaints = field(name="startupTaints", default=())
    requirements: Annotated[
        tuple[NodePoolRequirement, ...],
        Meta(max_length=100),
        atomic(),
        validated(IN_HAS_VALUES, COMPARISON_HAS_ONE_INTEGER, ENOUGH_VALUES),
    ]
    node_class_ref: PoolNodeClassReference = field(name="nodeClassRef")
    termination_grace_period: Annotated[str, Meta(pattern=DURATION)] | None = field(
        name="terminationGracePeriod", default=None
    )
    expire_after: Annotated[str, Meta(pattern=DURATION_OR_NEVER)] = field(
        name="expireAfter", default="720h"
    )


class NodePoolTemplate(Value, frozen=True, kw_only=True):
    """The template of the pool's NodeClaims."""

    metadata: NodePoolTemplateMeta = field(default_factory=NodePoolTemplateMeta)
    spec: NodePoolTemplateSpec


class NodePoolSpec(Value, frozen=True, kw_only=True):
    """The desired state of a NodePool; ``replicas`` makes it static."""

    template: NodePoolTemplate
    disruption: Annotated[NodePoolDisruption, validated(default={"consolidateAfter": "0s"})] = (
        NodePoolDisruption(consolidate_after="0s")
    )
    limits: Resources = field(default_factory=dict)
    weight: Annotated[int, Meta(ge=1, le=100)] | None = None
    replicas: Annotated[int, Meta(ge=0)] | None = None

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "has(self.replicas) == has(oldSelf.replicas)",
            "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset)"
            " provisioning modes",
            lambda self, old: (self.replicas is None) == (old.replicas is None),
        ),
        ValidationRule(
            "!has(self.replicas) || (!has(self.limits) || size(self.limits) == 0"
            " || (size(self.limits) == 1 && 'nodes' in self.limits))",
            "only 'limits.nodes' is supported on static NodePools",
            lambda self, old: self.replicas is None or set(self.limits) <= {"nodes"},
        ),
        ValidationRule(
            "!has(self.replicas) || !has(self.weight)",
            "'weight' is not supported on static NodePools",
            lambda self, old: self.replicas is None or self.weight is None,
        ),
    )


class NodePoolStatus(Value, frozen=True, kw_only=True):
    """The observed state of a NodePool."""

    resources: Resources = field(default_factory=dict)
    nodes: int = 0
    node_class_observed_generation: int = field(name="nodeClassObservedGeneration", default=0)
    conditions: tuple[Condition, ...] = ()


@kind(
    group=GROUP,
    version="v1",
    plural="nodepools",
    scope="Cluster",
    categories=("karpenter",),
    status=True,
    scale=ScalePaths(".spec.replicas", ".status.nodes"),
    columns=(
        Column("NodeClass", ".spec.template.spec.nodeClassRef.name"),
        Column("Nodes", ".status.nodes"),
        READY,
        AGE,
        Column("Weight", ".spec.weight", "integer", priority=1),
        Column("CPU", ".status.resources.cpu", priority=1),
        Column("Memory", ".status.resources.memory", priority=1),
    ),
)
class NodePool(Object, frozen=True, kw_only=True):
    """Nodes of one kind that Karpenter makes and removes."""

    spec: NodePoolSpec
    status: NodePoolStatus = field(default_factory=NodePoolStatus)


KINDS = (NodePool,)
