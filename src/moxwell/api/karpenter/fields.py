"""Fields that several Karpenter kinds share: requirements, taints, quantities, references."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from moxwell.api.kinds import Column
from moxwell.api.meta import Value
from moxwell.api.schema import atomic

GROUP = "karpenter.sh"
AGE = Column("Age", ".metadata.creationTimestamp", "date")
READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]
TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
QUALIFIED_NAME = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?"
    r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
)
LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
DURATION = r"^([0-9]+(s|m|h))+$"
DURATION_OR_NEVER = r"^(([0-9]+(s|m|h))+|Never)$"
QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


def validated(*rules: tuple[str, str], **extra: Any) -> Meta:
    """Add CEL rules (expression, message) and schema keywords to a field."""
    checks = [{"rule": rule, "message": message} for rule, message in rules]
    return Meta(extra_json_schema={"x-kubernetes-validations": checks} | extra if checks else extra)


ResourceQuantity = Annotated[str | int, Meta(extra_json_schema={"pattern": QUANTITY})]
Resources = Mapping[str, ResourceQuantity]

KARPENTER_DOMAIN = (
    'self in ["karpenter.sh/capacity-type", "karpenter.sh/nodepool"]'
    ' || !self.find("^([^/]+)").endsWith("karpenter.sh")',
    'label domain "karpenter.sh" is restricted',
)
NO_HOSTNAME = (
    'self != "kubernetes.io/hostname"',
    'label "kubernetes.io/hostname" is restricted',
)
NO_NODEPOOL = ('self != "karpenter.sh/nodepool"', 'label "karpenter.sh/nodepool" is restricted')
IN_HAS_VALUES = (
    "self.all(x, x.operator == 'In' ? x.values.size() != 0 : true)",
    "requirements with operator 'In' must have a value defined",
)
NOT_IN_HAS_VALUES = (
    "self.all(x, x.operator == 'NotIn' ? x.values.size() != 0 : true)",
    "requirements with operator 'NotIn' must have a value defined",
)
_COMPARISONS = (
    "x.operator == 'Gt' || x.operator == 'Lt' || x.operator == 'Gte' || x.operator == 'Lte'"
)
COMPARISON_HAS_ONE_INTEGER = (
    f"self.all(x, ({_COMPARISONS}) ? (x.values.size() == 1 && int(x.values[0]) >= 0) : true)",
    "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value",
)
ENOUGH_VALUES = (
    "self.all(x, (x.operator == 'In' && has(x.minValues)) ? x.values.size() >= x.minValues : true)",
    "requirements with 'minValues' must have at least that many values specified in the 'values'"
    " field",
)
RequirementKey = Annotated[
    str,
    Meta(max_length=316, pattern=QUALIFIED_NAME),
    validated(KARPENTER_DOMAIN, NO_HOSTNAME),
]
PoolRequirementKey = Annotated[
    str,
    Meta(max_length=316, pattern=QUALIFIED_NAME),
    validated(KARPENTER_DOMAIN, NO_NODEPOOL, NO_HOSTNAME),
]
RequirementValues = Annotated[tuple[str, ...], atomic()]
MinValues = Annotated[int, Meta(ge=1, le=50)] | None


class NodeClaimRequirement(Value, frozen=True, kw_only=True):
    """A node selector requirement with the least number of values that must stay possible."""

    key: RequirementKey
    operator: Operator
    values: RequirementValues = ()
    min_values: MinValues = field(name="minValues", default=None)


class NodePoolRequirement(Value, frozen=True, kw_only=True):
    """A requirement of a NodePool's template; the pool's own label is restricted."""

    key: PoolRequirementKey
    operator: Operator
    values: RequirementValues = ()
    min_values: MinValues = field(name="minValues", default=None)


class NodeOverlayRequirement(Value, frozen=True, kw_only=True):
    """A requirement that selects the instance types of a NodeOverlay."""

    key: RequirementKey
    operator: Operator
    values: RequirementValues = ()


class NodeClaimTaint(Value, frozen=True, kw_only=True):
    """A taint of the node."""

    key: Annotated[str, Meta(min_length=1, pattern=QUALIFIED_NAME)]
    effect: TaintEffect
    value: Annotated[str, Meta(pattern=QUALIFIED_NAME)] | None = None
    time_added: datetime | None = field(name="timeAdded", default=None)


NodeClaimTaints = Annotated[tuple[NodeClaimTaint, ...], atomic()]


class NodeClassReference(Value, frozen=True, kw_only=True):
    """A reference to a node class."""

    group: Annotated[
        str, Meta(pattern="^[^/]*$"), validated(("self != ''", "group may not be empty"))
    ]
    kind: Annotated[str, validated(("self != ''", "kind may not be empty"))]
    name: Annotated[str, validated(("self != ''", "name may not be empty"))]
