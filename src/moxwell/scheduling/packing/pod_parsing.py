"""
Pods as Kubernetes objects to pods as the solver sees them. Pure.

Requests are what kube-scheduler counts: containers and sidecars, or the largest init container,
pod-level resources, overhead, and what an in-place resize has already given.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import msgspec

from moxwell.api.core.pods import Toleration
from moxwell.scheduling.packing.pods import (
    HostPort,
    Labels,
    NodeTerm,
    PodAffinityRule,
    PodSelector,
    PodShape,
    PreferredNodeTerm,
    SpreadConstraint,
    pairs,
)
from moxwell.scheduling.requirements import (
    InvalidRequirement,
    LabelRequirement,
    RequirementOperator,
    requirement,
)
from moxwell.scheduling.resource_lists import MILLI, PODS, largest, requested, total
from moxwell.scheduling.well_known_labels import normalized

Json = Mapping[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_POD_LEVEL = ("cpu", "memory")


def pod_shape(
    pod: Json,
    namespace: str = "default",
    volume_topologies: tuple[NodeTerm, ...] = (),
    volumes: tuple[tuple[str, str], ...] = (),
) -> PodShape:
    """The shape of a pod or pod template."""
    spec: Json = pod.get("spec") or {}
    affinity: Json = spec.get("affinity") or {}
    node: Json = affinity.get("nodeAffinity") or {}
    near: Json = affinity.get("podAffinity") or {}
    apart: Json = affinity.get("podAntiAffinity") or {}
    return PodShape(
        namespace=namespace,
        labels=pairs((pod.get("metadata") or {}).get("labels")),
        requests=tuple(sorted((pod_requests(pod) | {PODS: MILLI}).items())),
        node_selector=label_pairs(spec.get("nodeSelector")),
        required_terms=_required_terms(node),
        preferred_terms=_preferred_terms(node),
        affinity=tuple(map(_affinity_rule, near.get(_REQUIRED) or ())),
        preferred_affinity=_weighted(near),
        anti_affinity=tuple(map(_affinity_rule, apart.get(_REQUIRED) or ())),
        preferred_anti_affinity=_weighted(apart),
        spread=tuple(map(_spread, spec.get("topologySpreadConstraints") or ())),
        tolerations=msgspec.convert(spec.get("tolerations") or (), tuple[Toleration, ...]),
        host_ports=host_ports(spec.get("containers") or ()),
        volume_topologies=volume_topologies,
        volumes=volumes,
    )


def label_pairs(labels: Mapping[str, str] | None) -> Labels:
    """Labels of nodes as sorted pairs, under their stable names."""
    return tuple(sorted((normalized(k), v) for k, v in (labels or {}).items()))


def node_term(expressions: Iterable[Json]) -> NodeTerm:
    """``matchExpressions`` of a node selector term as requirements."""
    return tuple(
        _pod_requirement(normalized(e["key"]), e["operator"], tuple(e.get("values") or ()))
        for e in expressions
    )


def _pod_requirement(key: str, operator: str, values: tuple[str, ...]) -> LabelRequirement:
    """
    An expression of a pod; a malformed one that validation did not refuse is read as in Karpenter.

    A bound that is no integer counts as 0, an unknown operator as Exists.
    """
    try:
        return requirement(key, operator, values)
    except InvalidRequirement:
        is_bound = operator in set(RequirementOperator)
        return requirement(key, operator if is_bound else "Exists", ["0"] if is_bound else ())


def pool_requirements(expressions: Iterable[Json]) -> tuple[LabelRequirement, ...]:
    """``requirements`` of a NodePool or instance type."""
    return tuple(
        requirement(normalized(e["key"]), e["operator"], e.get("values") or (), e.get("minValues"))
        for e in expressions
    )


def _required_terms(affinity: Json) -> tuple[NodeTerm, ...]:
    terms: Sequence[Json] = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    return tuple(node_term(t.get("matchExpressions") or ()) for t in terms)


def _preferred_terms(affinity: Json) -> tuple[PreferredNodeTerm, ...]:
    found = (
        PreferredNodeTerm(t["weight"], node_term(t["preference"].get("matchExpressions") or ()))
        for t in affinity.get(_PREFERRED) or ()
    )
    return tuple(sorted(found, key=lambda t: -t.weight))


def _weighted(affinity: Json) -> tuple[PodAffinityRule, ...]:
    found = [
        _affinity_rule(t["podAffinityTerm"], t["weight"]) for t in affinity.get(_PREFERRED) or ()
    ]
    return tuple(sorted(found, key=lambda t: -t.weight))


def _affinity_rule(term: Json, weight: int = 0) -> PodAffinityRule:
    return PodAffinityRule(
        term["topologyKey"],
        selector_of(term.get("labelSelector")),
        frozenset(term.get("namespaces") or ()),
        selector_of(term.get("namespaceSelector")),
        weight,
    )


def selector_of(selector: Json | None) -> PodSelector | None:
    """A ``labelSelector``; None if it is absent."""
    if selector is None:
        return None
    return PodSelector(
        pairs(selector.get("matchLabels")),
        frozenset(
            (e["key"], e["operator"], frozenset(e.get("values") or ()))
            for e in selector.get("matchExpressions") or ()
        ),
    )


def _spread(constraint: Json) -> SpreadConstraint:
    return SpreadConstraint(
        topology_key=constraint["topologyKey"],
        max_skew=constraint["maxSkew"],
        when_unsatisfiable=constraint["whenUnsatisfiable"],
        selector=selector_of(constraint.get("labelSelector")),
        min_domains=constraint.get("minDomains"),
        node_taints_policy=constraint.get("nodeTaintsPolicy") or "Ignore",
        node_affinity_policy=constraint.get("nodeAffinityPolicy") or "Honor",
        match_label_keys=tuple(constraint.get("matchLabelKeys") or ()),
    )


def host_ports(containers: Iterable[Json]) -> tuple[HostPort, ...]:
    """The host ports of containers."""
    return tuple(
        HostPort(_address(p.get("hostIP") or "0.0.0.0"), p["hostPort"], p.get("protocol") or "")
        for container in containers
        for p in container.get("ports") or ()
        if p.get("hostPort")
    )


def _address(text: str) -> Any:
    try:
        address = ip_address(text)
    except ValueError:
        return None  # Karpenter compares an address that it cannot parse as equal to another such
    return getattr(address, "ipv4_mapped", None) or address


def pod_requests(pod: Json) -> dict[str, int]:
    """What a pod requests, in thousandths, without the ``pods`` resource."""
    spec: Json = pod.get("spec") or {}
    status: Json = pod.get("status") or {}
    given = {c["name"]: c for c in status.get("containerStatuses") or ()}
    given |= {c["name"]: c for c in status.get("initContainerStatuses") or ()}
    infeasible = _resize_is_infeasible(status)
    containers = [_effective(c, given, infeasible) for c in spec.get("containers") or ()]
    sidecars: dict[str, int] = {}
    init: dict[str, int] = {}
    for each in spec.get("initContainers") or ():
        if each.get("restartPolicy") == "Always":
            own = _effective(each, given, infeasible)
            containers.append(own)
            sidecars = total((sidecars, own))
            init = largest((init, sidecars))
        else:
            init = largest((init, total((_requests(each), sidecars))))
    result = largest((total(containers), init))
    at_pod_level = requested((spec.get("resources") or {}).get("requests"))
    result |= {n: a for n, a in at_pod_level.items() if _is_pod_level(n)}
    return total((result, requested(spec.get("overhead"))))


def _is_pod_level(name: str) -> bool:
    return name in _POD_LEVEL or name.startswith("hugepages-")


def _requests(container: Json) -> dict[str, int]:
    return requested((container.get("resources") or {}).get("requests"))


def _effective(container: Json, given: Mapping[str, Json], infeasible: bool) -> dict[str, int]:
    """The requests of a container, or more if a resize has not yet taken effect."""
    state = given.get(container.get("name", ""))
    if state is None or not state.get("resources"):
        return _requests(container)
    now = requested(state["resources"].get("requests"))
    allocated = requested(state.get("allocatedResources"))
    return largest((now, allocated) if infeasible else (_requests(container), now, allocated))


def _resize_is_infeasible(status: Json) -> bool:
    pending = (c for c in status.get("conditions") or () if c["type"] == "PodResizePending")
    return next((c.get("reason") == "Infeasible" for c in pending), False)
