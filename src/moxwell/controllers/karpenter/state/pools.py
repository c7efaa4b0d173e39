"""Node pools of the scaled cluster as the decisions see them. Pure."""

from collections.abc import Iterable

from moxwell.api.core.nodes import Taint
from moxwell.api.karpenter.fields import NodeClaimTaint, NodeClassReference
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.karpenter.proxmox import PROVIDER_GROUP
from moxwell.api.kinds import as_dict
from moxwell.controllers.karpenter.durations import seconds_or_never
from moxwell.scheduling.disruption.cluster_state import DisruptionPool
from moxwell.scheduling.packing.cluster import ProvisioningPool
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.pod_parsing import label_pairs, pool_requirements
from moxwell.scheduling.resource_lists import MILLI, NODES, offered
from moxwell.scheduling.well_known_labels import KARPENTER_LABELS, LabelRules

PROVIDER_LABELS = frozenset(
    f"{PROVIDER_GROUP}/{name}"
    for name in ("instance-family", "instance-cpu-type", "instance-image-id")
)


def label_rules() -> LabelRules:
    """The well-known labels of Karpenter and its Proxmox provider."""
    return LabelRules(well_known=KARPENTER_LABELS | PROVIDER_LABELS)


def node_class_label(reference: NodeClassReference) -> tuple[str, str]:
    """The label that names the node class of a node."""
    return f"{reference.group}/{reference.kind.lower()}", reference.name


def taints_of(taints: Iterable[NodeClaimTaint]) -> tuple[Taint, ...]:
    """Taints as nodes have them."""
    return tuple(Taint(key=t.key, value=t.value or "", effect=t.effect) for t in taints)


def provisioning_pool(pool: NodePool, types: tuple[InstanceType, ...]) -> ProvisioningPool:
    """A node pool that may create nodes of these types."""
    template = pool.spec.template
    requirements = as_dict(pool)["spec"]["template"]["spec"].get("requirements") or ()
    return ProvisioningPool(
        pool.metadata.name,
        types,
        pool_requirements(requirements),
        label_pairs(template.metadata.labels),
        taints_of(template.spec.taints),
        taints_of(template.spec.startup_taints),
        pool.spec.weight or 0,
        offered(pool.spec.limits),
        node_class_label(template.spec.node_class_ref),
    )


def disruption_pool(pool: NodePool, types: tuple[InstanceType, ...]) -> DisruptionPool:
    """A node pool with its disruption policy."""
    given = pool.spec.disruption
    limit = offered(pool.spec.limits).get(NODES)
    return DisruptionPool(
        pool.metadata.name,
        types,
        given.consolidation_policy,
        seconds_or_never(given.consolidate_after),
        given.budgets,
        pool.spec.replicas,
        None if limit is None else limit // MILLI,
    )


def is_ready(pool: NodePool) -> bool:
    """Whether a pool may create nodes: its Ready condition is true and it is not deleted."""
    true = any(c.type == "Ready" and c.status == "True" for c in pool.status.conditions)
    return true and pool.metadata.deletion_timestamp is None
