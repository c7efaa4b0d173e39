"""
ClusterResourceSet and ClusterResourceSetBinding of Cluster API, in v1beta2 and v1beta1.

Both versions have the same spec; conditions are converted as those of the other kinds.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from moxwell.api.capi.machinesets import AGE
from moxwell.api.capi.shared import CONTRACT, UPSTREAM
from moxwell.api.conditions import Condition, LegacyCondition
from moxwell.api.kinds import Column, Object, ValidationRule, kind
from moxwell.api.meta import Value
from moxwell.api.selectors import LabelSelector

ADDONS = "addons.cluster.x-k8s.io"
RESOURCE_SET_SECRET = "addons.cluster.x-k8s.io/resource-set"  # the type of its Secrets
NEWER: dict[str, Any] = {**UPSTREAM, "group": ADDONS, "version": "v1beta2", "labels": CONTRACT}
OLDER: dict[str, Any] = {**NEWER, "version": "v1beta1", "storage": False}
APPLIED = Column("Applied", '.status.conditions[?(@.type=="ResourcesApplied")].status')


class ClusterResourceRef(Value, frozen=True, kw_only=True):
    """A ConfigMap or Secret in the namespace of the set, whose values are manifests."""

    name: str
    kind: Literal["Secret", "ConfigMap"]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class ClusterResourceSetSpec(Value, frozen=True, kw_only=True):
    """Which resources are applied to which clusters of the namespace."""

    rules = (
        ValidationRule(
            "self.clusterSelector == oldSelf.clusterSelector",
            "clusterSelector is immutable",
            lambda self, old: self.cluster_selector == old.cluster_selector,
        ),
        ValidationRule(
            "!has(oldSelf.strategy) || (has(self.strategy) && self.strategy == oldSelf.strategy)",
            "strategy is immutable",
            lambda self, old: self.strategy == old.strategy,
        ),
    )

    cluster_selector: LabelSelector = field(name="clusterSelector")
    resources: Annotated[tuple[ClusterResourceRef, ...], Meta(min_length=1, max_length=100)]
    strategy: Literal["ApplyOnce", "Reconcile"] = "ApplyOnce"


class ClusterResourceSetStatus(Value, frozen=True, kw_only=True):
    """Whether the resources are applied to all clusters that the selector matches."""

    conditions: tuple[Condition, ...] = ()
    observed_generation: int = field(name="observedGeneration", default=0)


class ClusterResourceSetStatusV1Beta1(Value, frozen=True, kw_only=True):
    """The status in v1beta1."""

    conditions: tuple[LegacyCondition, ...] = ()
    observed_generation: int = field(name="observedGeneration", default=0)


@kind(plural="clusterresourcesets", columns=(APPLIED, AGE), **NEWER)
class ClusterResourceSet(Object, frozen=True, kw_only=True):
    """Manifests that are applied to clusters, such as a CNI."""

    spec: ClusterResourceSetSpec
    status: ClusterResourceSetStatus = field(default_factory=ClusterResourceSetStatus)


@kind(name="ClusterResourceSet", plural="clusterresourcesets", columns=(AGE,), **OLDER)
class ClusterResourceSetV1Beta1(Object, frozen=True, kw_only=True):
    """Manifests that are applied to clusters, such as a CNI."""

    spec: ClusterResourceSetSpec
    status: ClusterResourceSetStatusV1Beta1 = field(default_factory=ClusterResourceSetStatusV1Beta1)


class ResourceBinding(Value, frozen=True, kw_only=True):
    """One resource that was applied to the cluster, and the hash of what was applied."""

    name: str
    kind: Literal["Secret", "ConfigMap"]
    hash: str = ""
    last_applied_time: datetime | None = field(name="lastAppliedTime", default=None)
    applied: bool = False


class ResourceSetBinding(Value, frozen=True, kw_only=True):
    """The resources of one ClusterResourceSet."""

    cluster_resource_set_name: str = field(name="clusterResourceSetName")
    resources: tuple[ResourceBinding, ...] = ()


class ClusterResourceSetBindingSpec(Value, frozen=True, kw_only=True):
    """What has been applied to a cluster."""

    bindings: tuple[ResourceSetBinding, ...] = ()
    cluster_name: str = field(name="clusterName", default="")


WITHOUT_STATUS: Mapping[str, Any] = {"plural": "clusterresourcesetbindings", "columns": (AGE,)}


@kind(**WITHOUT_STATUS, **{**NEWER, "status": False})
class ClusterResourceSetBinding(Object, frozen=True, kw_only=True):
    """The record of a cluster; it has the cluster's name."""

    spec: ClusterResourceSetBindingSpec = field(default_factory=ClusterResourceSetBindingSpec)


@kind(name="ClusterResourceSetBinding", **WITHOUT_STATUS, **{**OLDER, "status": False})
class ClusterResourceSetBindingV1Beta1(Object, frozen=True, kw_only=True):
    """The record of a cluster; it has the cluster's name."""

    spec: ClusterResourceSetBindingSpec = field(default_factory=ClusterResourceSetBindingSpec)


KINDS: tuple[type[Object], ...] = (
    ClusterResourceSet,
    ClusterResourceSetV1Beta1,
    ClusterResourceSetBinding,
    ClusterResourceSetBindingV1Beta1,
)
