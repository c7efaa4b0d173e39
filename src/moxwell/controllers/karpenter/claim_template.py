"""
Node claims as node pools make them: labels, annotations, requirements and owner. Pure.

The name is derived from the pods, so that a repeated creation after a lost answer meets the first
one instead of making a second machine.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from moxwell.api.karpenter.fields import NodeClaimRequirement, NodeClassReference, Operator
from moxwell.api.karpenter.nodeclaims import NodeClaim, NodeClaimSpec, ResourceRequests
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.kinds import as_dict, owner_reference
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.karpenter.names import HASH, HASH_VERSION
from moxwell.controllers.karpenter.planned_size import plan_annotations
from moxwell.controllers.karpenter.state.intentions import EXPECTED_PODS, record
from moxwell.controllers.karpenter.state.pools import label_rules, node_class_label
from moxwell.scheduling.disruption.commands import NodeReplacement
from moxwell.scheduling.packing.host_ledger import HostSlot
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.results import PlannedClaim
from moxwell.scheduling.requirement_sets import RequirementSet
from moxwell.scheduling.requirements import LabelRequirement, RequirementOperator
from moxwell.scheduling.resource_lists import quantity_text
from moxwell.scheduling.well_known_labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    INITIALIZED,
    INSTANCE_TYPE,
    NODE_POOL,
    REGISTERED,
)

VERSION = "moxwell-v1"  # of the hash; Karpenter takes nodes with another version over undrifted
MIN_VALUES_RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed"
_SIMULATED = frozenset({REGISTERED, INITIALIZED, HOSTNAME})  # no requirements of a node claim
_NAME_LENGTH, _DIGEST_LENGTH = 63, 8


def pool_hash(pool: NodePool) -> str:
    """The hash of the template of a pool without its requirements; drift compares it."""
    template = as_dict(pool)["spec"]["template"]
    spec = {k: v for k, v in template["spec"].items() if k != "requirements"}
    for name in ("taints", "startupTaints"):
        spec[name] = sorted(json.dumps(t, sort_keys=True) for t in spec.get(name) or ())
    tree = [template.get("metadata") or {}, spec]
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def claim_name(pool: str, *parts: Iterable[str]) -> str:
    """A name that is the same for the same pool and parts."""
    text = json.dumps([sorted(part) for part in parts])
    digest = base64.b32encode(hashlib.sha256(f"{pool}\n{text}".encode()).digest()).decode()
    return f"{pool[: _NAME_LENGTH - _DIGEST_LENGTH - 1]}-{digest[:_DIGEST_LENGTH].lower()}"


def planned_claim(pool: NodePool, plan: PlannedClaim, name: str) -> NodeClaim:
    """The node claim of a planned one, with its pods recorded."""
    relaxed = "true" if plan.min_values_relaxed else "false"
    annotations = {
        EXPECTED_PODS: record(p.uid for p in plan.pods),
        MIN_VALUES_RELAXED: relaxed,
    }
    if plan.slot is not None:
        annotations |= plan_annotations(plan.slot)
    types = plan.instance_types
    requirements = _narrowed(plan.requirements, types, plan.capacity_types)
    return _claim(pool, name, requirements, plan.requests, annotations)


def replacement_claim(
    pool: NodePool,
    plan: NodeReplacement,
    name: str,
    annotations: Mapping[str, str],
    slot: HostSlot | None = None,
) -> NodeClaim:
    """The node claim of a replacement, with the pods that move to it recorded, and its host."""
    kinds = {
        o.capacity_type
        for i in plan.options
        for o in plan.claim.table.launchable(i, plan.requirements)
    }
    requirements = _narrowed(plan.requirements, plan.instance_types, sorted(kinds))
    own = {EXPECTED_PODS: record(p.uid for p in plan.claim.pods)} | dict(annotations)
    if slot is not None:
        own |= plan_annotations(slot)
    return _claim(pool, name, requirements, plan.claim.requests, own)


def static_claim(pool: NodePool, name: str, annotations: Mapping[str, str]) -> NodeClaim:
    """A node claim of a pool with ``replicas``; the provider chooses the instance type."""
    given = pool.spec.template.spec.requirements
    labels = {NODE_POOL: pool.metadata.name} | _fixed_labels(pool)
    single = [NodeClaimRequirement(key=k, operator="In", values=(v,)) for k, v in labels.items()]
    own = tuple(
        NodeClaimRequirement(
            key=r.key, operator=r.operator, values=r.values, min_values=r.min_values
        )
        for r in given
    )
    return _made(pool, name, (*own, *single), {}, labels, annotations)


def _narrowed(
    requirements: RequirementSet, types: Sequence[InstanceType], capacity_types: Iterable[str]
) -> dict[str, LabelRequirement]:
    entries = {k: r for k, r in requirements.entries.items() if k not in _SIMULATED}
    known = entries.get(INSTANCE_TYPE)
    least = known.min_values if known else None
    names = frozenset(t.name for t in types)
    entries[INSTANCE_TYPE] = LabelRequirement(INSTANCE_TYPE, False, names, min_values=least)
    if kinds := frozenset(capacity_types):
        before = entries.get(CAPACITY_TYPE)
        least = before.min_values if before else None
        entries[CAPACITY_TYPE] = LabelRequirement(CAPACITY_TYPE, False, kinds, min_values=least)
    return entries


def _claim(
    pool: NodePool,
    name: str,
    requirements: Mapping[str, LabelRequirement],
    requests: Mapping[str, int],
    annotations: Mapping[str, str],
) -> NodeClaim:
    listed = tuple(
        NodeClaimRequirement(
            key=key, operator=_operator(operator), values=values, min_values=each.min_values
        )
        for key, each in sorted(requirements.items())
        for operator, values in each.expressions()
    )
    labels = _custom_labels(requirements) | _fixed_labels(pool) | {NODE_POOL: pool.metadata.name}
    texts = {n: quantity_text(n, amount) for n, amount in sorted(requests.items())}
    return _made(pool, name, listed, texts, labels, annotations)


def _made(
    pool: NodePool,
    name: str,
    requirements: tuple[NodeClaimRequirement, ...],
    requests: Mapping[str, str],
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> NodeClaim:
    template, ref = pool.spec.template, pool.spec.template.spec.node_class_ref
    stamped = {HASH: pool_hash(pool), HASH_VERSION: VERSION}
    owner = owner_reference(pool, controller=False)
    return NodeClaim(
        metadata=ObjectMeta(
            name=name,
            generate_name=f"{pool.metadata.name}-",
            labels=dict(labels),
            annotations=dict(template.metadata.annotations) | stamped | dict(annotations),
            owner_references=(owner,),
        ),
        spec=NodeClaimSpec(
            taints=template.spec.taints,
            startup_taints=template.spec.startup_taints,
            requirements=requirements,
            resources=ResourceRequests(requests=dict(requests)) if requests else None,
            node_class_ref=NodeClassReference(group=ref.group, kind=ref.kind, name=ref.name),
            termination_grace_period=template.spec.termination_grace_period,
            expire_after=template.spec.expire_after,
        ),
    )


def _operator(operator: RequirementOperator) -> Operator:
    return cast(Operator, str(operator))


def _fixed_labels(pool: NodePool) -> dict[str, str]:
    key, name = node_class_label(pool.spec.template.spec.node_class_ref)
    return dict(pool.spec.template.metadata.labels) | {key: name}


def _custom_labels(requirements: Mapping[str, LabelRequirement]) -> dict[str, str]:
    """One allowed value of each label that no instance type decides."""
    known = label_rules()
    found: dict[str, str] = {}
    for key, each in requirements.items():
        if key in known.well_known or known.refusal(key):
            continue
        if each.values and not each.complement:
            found[key] = min(each.values)
        elif each.complement and each.gte is not None:
            found[key] = str(each.gte)
    return found
