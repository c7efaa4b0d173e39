"""
Pods as the solver sees them: what they request and where they may run.

Pods of one workload share a :class:`PodShape`; the solver decides once per shape what does not
depend on the pod. Preferences are part of the shape; relaxing one gives another shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from moxwell.api.core.pods import Toleration
from moxwell.scheduling.requirements import LabelRequirement

Labels = tuple[tuple[str, str], ...]
NodeTerm = tuple[LabelRequirement, ...]


def pairs(labels: Mapping[str, str] | None) -> Labels:
    """Labels as sorted pairs."""
    return tuple(sorted((labels or {}).items()))


@dataclass(frozen=True, slots=True)
class PodSelector:
    """A selector of pods: labels, and expressions ``(key, operator, values)``."""

    labels: Labels = ()
    expressions: frozenset[tuple[str, str, frozenset[str]]] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is selected."""
        return all(labels.get(k) == v for k, v in self.labels) and all(
            _matches(labels.get(key), operator, values)
            for key, operator, values in self.expressions
        )

    def narrowed(self, key: str, value: str) -> "PodSelector":
        """The selector with one more label value."""
        added = (key, "In", frozenset({value}))
        return PodSelector(self.labels, self.expressions | {added})


def _matches(value: str | None, operator: str, values: frozenset[str]) -> bool:
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
    return value is None


@dataclass(frozen=True, slots=True)
class PodAffinityRule:
    """A term of pod affinity or anti-affinity; without a selector it selects nothing."""

    topology_key: str
    selector: PodSelector | None = None
    namespaces: frozenset[str] = frozenset()
    namespace_selector: PodSelector | None = None
    weight: int = 0


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str = "DoNotSchedule"
    selector: PodSelector | None = None
    min_domains: int | None = None
    node_taints_policy: str = "Ignore"
    node_affinity_policy: str = "Honor"
    match_label_keys: tuple[str, ...] = ()

    @property
    def is_preference(self) -> bool:
        return self.when_unsatisfiable == "ScheduleAnyway"


@dataclass(frozen=True, slots=True)
class PreferredNodeTerm:
    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port that a pod occupies on its node."""

    address: IPv4Address | IPv6Address | None
    port: int
    protocol: str

    def conflicts(self, other: "HostPort") -> bool:
        """Whether both cannot be on one node."""
        if self.port != other.port or self.protocol != other.protocol:
            return False
        return self.address == other.address or self.is_wildcard or other.is_wildcard

    @property
    def is_wildcard(self) -> bool:
        return self.address is not None and self.address.is_unspecified


@dataclass(frozen=True, slots=True)
class PodShape:
    """Everything about a pod that decides where it may run."""

    namespace: str = "default"
    labels: Labels = ()
    requests: tuple[tuple[str, int], ...] = (("pods", 1000),)
    node_selector: Labels = ()
    required_terms: tuple[NodeTerm, ...] = ()
    preferred_terms: tuple[PreferredNodeTerm, ...] = ()
    affinity: tuple[PodAffinityRule, ...] = ()
    preferred_affinity: tuple[PodAffinityRule, ...] = ()
    anti_affinity: tuple[PodAffinityRule, ...] = ()
    preferred_anti_affinity: tuple[PodAffinityRule, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    volume_topologies: tuple[NodeTerm, ...] = ()
    volumes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PodDemand:
    """
    A pod that is to be scheduled, or one that runs.

    Times are seconds of one clock. ``annotations`` and what follows matter only to disruption.
    """

    uid: str
    name: str
    shape: PodShape
    created: float = 0.0
    node_name: str = ""
    phase: str = "Pending"
    owner: str = ""
    annotations: Labels = field(default=())
    priority: int | None = None
    started: float | None = None
    terminating: bool = False
    ready: bool = True

    @property
    def namespace(self) -> str:
        return self.shape.namespace

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.shape.namespace}/{self.name}"

    @property
    def is_terminal(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_daemon(self) -> bool:
        return self.owner == "DaemonSet"
