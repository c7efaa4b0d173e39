"""
Nodes and node claims of the scaled cluster, joined by provider id. Pure.

As in Karpenter, a node that is not registered has the labels and taints of its node claim, and one
that is not initialized has the capacity that its node claim promises.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from moxwell.api.core.nodes import Taint
from moxwell.api.karpenter import nodeclaims
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.kinds import as_dict
from moxwell.controllers.karpenter.durations import seconds_or_never
from moxwell.controllers.karpenter.state.pods import seconds_of
from moxwell.controllers.karpenter.state.pools import taints_of
from moxwell.errors import Invalid
from moxwell.scheduling.disruption.cluster_state import DisruptionNode
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.nodes import ClusterNode
from moxwell.scheduling.packing.pod_parsing import label_pairs, pool_requirements
from moxwell.scheduling.packing.pods import pairs
from moxwell.scheduling.packing.rescheduling import DISRUPTED_TAINT
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.resource_lists import MILLI, NODES, offered
from moxwell.scheduling.taints import expected_taints, same_taint
from moxwell.scheduling.well_known_labels import HOSTNAME, INITIALIZED, INSTANCE_TYPE, REGISTERED

Json = Mapping[str, Any]
TypesByName = Mapping[str, InstanceType]


@dataclass(frozen=True, slots=True)
class JoinedNode:
    """A Node, a NodeClaim, or both."""

    claim: NodeClaim | None = None
    node: Json | None = None

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the Node object."""
        return dict((self.node or {"metadata": {}})["metadata"].get("labels") or {})

    @property
    def registered(self) -> bool:
        return self.claim is None or self.labels.get(REGISTERED) == "true"

    @property
    def initialized(self) -> bool:
        return self.claim is None or self.labels.get(INITIALIZED) == "true"

    @property
    def name(self) -> str:
        """The name in snapshots: that of the node claim until the node is registered."""
        if self.claim is not None and not (self.node and self.registered):
            return self.claim.metadata.name
        return self.node_name

    @property
    def node_name(self) -> str:
        """The name of the Node object; empty without one."""
        return str(self.node["metadata"]["name"]) if self.node else ""

    @property
    def taints(self) -> tuple[Taint, ...]:
        """The taints of the Node object."""
        spec = (self.node or {}).get("spec") or {}
        return msgspec.convert(spec.get("taints") or (), tuple[Taint, ...])

    @property
    def is_disrupted(self) -> bool:
        """Whether a disruption command has tainted the node."""
        return any(same_taint(t, DISRUPTED_TAINT) for t in self.taints)

    @property
    def deleting(self) -> bool:
        """Whether the node or its node claim is deleted."""
        gone = self.claim is not None and self.claim.metadata.deletion_timestamp is not None
        meta = (self.node or {"metadata": {}})["metadata"]
        return gone or bool(meta.get("deletionTimestamp"))


def joined_nodes(claims: Iterable[NodeClaim], nodes: Iterable[Json]) -> tuple[JoinedNode, ...]:
    """Every node claim with its node, then the nodes without one."""
    by_id: dict[str, Json] = {}
    without: list[Json] = []
    for node in nodes:
        provider_id = str((node.get("spec") or {}).get("providerID") or "")
        if provider_id and provider_id not in by_id:
            by_id[provider_id] = node
        else:
            without.append(node)
    found = [JoinedNode(claim, by_id.pop(claim.status.provider_id, None)) for claim in claims]
    others = sorted((*by_id.values(), *without), key=lambda n: str(n["metadata"]["name"]))
    return (*found, *(JoinedNode(None, node) for node in others))


def cluster_node(
    given: JoinedNode, types: TypesByName, attach_limits: Mapping[str, Json], *, leaving: bool
) -> ClusterNode:
    """A node as the solver sees it; ``leaving`` nodes take no pods."""
    own = given.labels
    labels = own if given.registered and given.node else claim_labels(given.claim, types)
    taints = given.taints
    if given.claim is not None and not given.registered:
        taints = taints_of(given.claim.spec.taints)
    if given.claim is not None and not given.initialized:
        taints = expected_taints(taints, taints_of(given.claim.spec.startup_taints))
    if given.node is not None and (given.node.get("spec") or {}).get("unschedulable"):
        taints = (*taints, Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"))
    return ClusterNode(
        given.name,
        label_pairs({HOSTNAME: given.name} | labels),
        _resources(given, types, "capacity") | {NODES: MILLI},
        _resources(given, types, "allocatable"),
        tuple(replace_time(t) for t in taints),
        label_pairs(own) if given.node else (),
        tuple(replace_time(t) for t in given.taints) if given.node else (),
        given.node is not None,
        given.claim is not None,
        given.initialized,
        leaving or given.deleting,
        _volume_limits(attach_limits.get(given.node_name)),
    )


def replace_time(taint: Taint) -> Taint:
    """A taint without the time at which it was added."""
    return msgspec.structs.replace(taint, time_added=None)


def claim_labels(claim: NodeClaim | None, types: TypesByName) -> dict[str, str]:
    """The labels of a node claim, with those that its requirements leave no choice about."""
    if claim is None:
        return {}
    single = {r.key: r.only for r in _requirements(claim) if r.only is not None}
    options = _options(claim, types)
    common = [{r.key: r.only for r in t.requirements if r.only is not None} for t in options]
    shared = (
        {k: v for k, v in common[0].items() if all(c.get(k) == v for c in common)} if common else {}
    )
    return shared | single | dict(claim.metadata.labels)


def _requirements(claim: NodeClaim) -> tuple[LabelRequirement, ...]:
    """The requirements of a claim; none if somebody wrote a claim with an invalid one."""
    try:
        return pool_requirements(as_dict(claim)["spec"].get("requirements") or ())
    except Invalid:
        return ()


def _options(claim: NodeClaim, types: TypesByName) -> list[InstanceType]:
    chosen = claim.metadata.labels.get(INSTANCE_TYPE)
    if chosen is not None:
        return [types[chosen]] if chosen in types else []
    wanted = next((r for r in claim.spec.requirements if r.key == INSTANCE_TYPE), None)
    names = wanted.values if wanted is not None and wanted.operator == "In" else ()
    return [types[name] for name in names if name in types]


def _resources(given: JoinedNode, types: TypesByName, field: str) -> dict[str, int]:
    status = (given.node or {}).get("status") or {}
    own = offered(status.get(field))
    if given.claim is None or given.initialized:
        return own
    promised = offered(getattr(given.claim.status, field)) or _least(given.claim, types, field)
    return promised | {name: amount for name, amount in own.items() if amount}


def _least(claim: NodeClaim, types: TypesByName, field: str) -> dict[str, int]:
    """What every instance type that the claim may become has."""
    lists = [dict(getattr(t, field)) for t in _options(claim, types)]
    if not lists:
        return {}
    return {n: min(each.get(n, 0) for each in lists) for n in lists[0]}


def _volume_limits(csi_node: Json | None) -> tuple[tuple[str, int], ...]:
    drivers = ((csi_node or {}).get("spec") or {}).get("drivers") or ()
    counts = ((d["name"], (d.get("allocatable") or {}).get("count")) for d in drivers)
    return tuple(sorted((name, int(count)) for name, count in counts if count is not None))


def disruption_node(
    given: JoinedNode,
    node: ClusterNode,
    *,
    nominated: bool,
    in_progress: bool,
    has_buffer: bool = False,
) -> DisruptionNode:
    """A node as input of disruption; nodes without a node claim are no candidates."""
    base = DisruptionNode(
        node,
        created=_created(given),
        annotations=_annotations(given),
        ready=_is_ready(given.node),
        consolidatable=False,
        nominated=nominated,
        in_progress=in_progress,
        has_buffer=has_buffer,
    )
    return base if given.claim is None else _of_claim(base, given.claim)


def _of_claim(base: DisruptionNode, claim: NodeClaim) -> DisruptionNode:
    true = {c.type: c for c in claim.status.conditions if c.status == "True"}
    event = claim.status.last_pod_event_time
    grace = claim.spec.termination_grace_period
    return replace(
        base,
        consolidatable=nodeclaims.CONSOLIDATABLE in true,
        initialized_at=_since(true.get(nodeclaims.INITIALIZED)),
        last_pod_event=event.timestamp() if event else None,
        drifted_since=_since(true.get(nodeclaims.DRIFTED)),
        expire_after=seconds_or_never(claim.spec.expire_after),
        termination_grace_period=None if grace is None else seconds_or_never(grace),
        instance_terminating=nodeclaims.INSTANCE_TERMINATING in true,
    )


def _since(condition: nodeclaims.NodeClaimCondition | None) -> float | None:
    if condition is None:
        return None
    moment = condition.last_transition_time
    return moment.timestamp() if moment else 0.0


def _created(given: JoinedNode) -> float:
    if given.claim is not None:
        moment = given.claim.metadata.creation_timestamp
        return moment.timestamp() if moment else 0.0
    meta: Json = (given.node or {"metadata": {}})["metadata"]
    return seconds_of(meta.get("creationTimestamp")) or 0.0


def _annotations(given: JoinedNode) -> tuple[tuple[str, str], ...]:
    if given.claim is not None and not (given.node and given.registered):
        return pairs(given.claim.metadata.annotations)
    return pairs((given.node or {"metadata": {}})["metadata"].get("annotations"))


def _is_ready(node: Json | None) -> bool:
    conditions = ((node or {}).get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
