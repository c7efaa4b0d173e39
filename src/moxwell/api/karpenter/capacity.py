"""NodeOverlay (``karpenter.sh/v1alpha1``) and CapacityBuffer (``autoscaling.x-k8s.io/v1beta1``)."""

from typing import Annotated, ClassVar

from msgspec import Meta, field

from moxwell.api.conditions import Condition
from moxwell.api.karpenter.fields import (
    AGE,
    COMPARISON_HAS_ONE_INTEGER,
    GROUP,
    IN_HAS_VALUES,
    NOT_IN_HAS_VALUES,
    READY,
    NodeOverlayRequirement,
    Resources,
    validated,
)
from moxwell.api.kinds import Column, Object, ValidationRule, kind
from moxwell.api.meta import Value
from moxwell.api.schema import atomic

BUFFER_GROUP = "autoscaling.x-k8s.io"
ACTIVE_CAPACITY = "buffer.x-k8s.io/active-capacity"
_PRICE_ADJUSTMENT = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$"
_EXTENDED_RESOURCES = (
    "self.all(x, !(x in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
    "invalid resource restricted",
)
_OVERLAY_COMPARISON = (
    COMPARISON_HAS_ONE_INTEGER[0],
    "requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value",
)


class NodeOverlaySpec(Value, frozen=True, kw_only=True):
    """What the overlay changes of the instance types that it selects."""

    requirements: Annotated[
        tuple[NodeOverlayRequirement, ...],
        Meta(max_length=100),
        atomic(),
        validated(NOT_IN_HAS_VALUES, IN_HAS_VALUES, _OVERLAY_COMPARISON),
    ]
    price: Annotated[str, Meta(pattern=r"^\d+(\.\d+)?$")] | None = None
    price_adjustment: Annotated[str, Meta(pattern=_PRICE_ADJUSTMENT)] | None = field(
        name="priceAdjustment", default=None
    )
    capacity: Annotated[Resources, validated(_EXTENDED_RESOURCES)] = field(default_factory=dict)
    weight: Annotated[int, Meta(ge=1, le=10000)] | None = None

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "!has(self.price) || !has(self.priceAdjustment)",
            "cannot set both 'price' and 'priceAdjustment'",
            lambda self, old: self.price is None or self.price_adjustment is None,
        ),
    )


class NodeOverlayStatus(Value, frozen=True, kw_only=True):
    """The observed state of a NodeOverlay."""

    conditions: tuple[Condition, ...] = ()


@kind(
    group=GROUP,
    version="v1alpha1",
    plural="nodeoverlays",
    scope="Cluster",
    categories=("karpenter",),
    short=("overlays",),
    status=True,
    columns=(READY, AGE, Column("Weight", ".spec.weight", "integer", priority=1)),
)
class NodeOverlay(Object, frozen=True, kw_only=True):
    """Changes price or extended resources of instance types for scheduling decisions."""

    spec: NodeOverlaySpec
    status: NodeOverlayStatus = field(default_factory=NodeOverlayStatus)


class BufferTemplateRef(Value, frozen=True, kw_only=True):
    """A PodTemplate in the namespace of the buffer."""

    name: Annotated[str, Meta(min_length=1)]


class BufferScalableRef(Value, frozen=True, kw_only=True):
    """An object with a scale subresource in the namespace of the buffer."""

    api_group: str = field(name="apiGroup", default="")
    kind: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)]


class CapacityBufferSpec(Value, frozen=True, kw_only=True):
    """The capacity that stays free for new pods."""

    provisioning_strategy: str = field(name="provisioningStrategy", default=ACTIVE_CAPACITY)
    pod_template_ref: BufferTemplateRef | None = field(name="podTemplateRef", default=None)
    scalable_ref: BufferScalableRef | None = field(name="scalableRef", default=None)
    replicas: Annotated[int, Meta(ge=0)] | None = None
    percentage: Annotated[int, Meta(ge=0)] | None = None
    limits: Resources | None = None

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
            "If podTemplateRef is set, replicas or limits must also be set",
            lambda self, old: (
                self.pod_template_ref is None
                or self.replicas is not None
                or self.limits is not None
            ),
        ),
        ValidationRule(
            "!(has(self.podTemplateRef) && has(self.scalableRef))",
            "You must define either PodTemplateRef or ScalableRef, but not both",
            lambda self, old: self.pod_template_ref is None or self.scalable_ref is None,
        ),
    )


class CapacityBufferStatus(Value, frozen=True, kw_only=True):
    """The observed state of a CapacityBuffer."""

    pod_template_ref: BufferTemplateRef | None = field(name="podTemplateRef", default=None)
    pod_template_generation: int | None = field(name="podTemplateGeneration", default=None)
    replicas: int | None = None
    provisioning_strategy: str = field(name="provisioningStrategy", default="")
    conditions: tuple[Condition, ...] = ()


@kind(
    group=BUFFER_GROUP,
    version="v1beta1",
    plural="capacitybuffers",
    categories=("autoscaling",),
    short=("cb",),
    status=True,
    columns=(
        Column("Strategy", ".spec.provisioningStrategy"),
        Column("PodTemplate", ".status.podTemplateRef.name"),
        Column("Replicas", ".status.replicas", "integer"),
        Column("ConditionsType", ".status.conditions[*].type"),
        Column("ConditionsStatus", ".status.conditions[*].status"),
        Column("ConditionsReason", ".status.conditions[*].reason"),
        AGE,
    ),
)
class CapacityBuffer(Object, frozen=True, kw_only=True):
    """Capacity that Karpenter keeps free for future pods."""

    spec: CapacityBufferSpec
    status: CapacityBufferStatus = field(default_factory=CapacityBufferStatus)


KINDS = (NodeOverlay, CapacityBuffer)
