"""
Where a pod can be placed: what existing nodes and new node claims have in common.

A bin has a host name, taints and requirements; the host name is kept apart from the requirements,
so that bins with equal labels share a requirement set.
"""

from moxwell.api.core.nodes import Taint
from moxwell.scheduling.packing.failures import (
    IncompatibleRequirements,
    PlacementFailure,
    UnsatisfiableTopology,
)
from moxwell.scheduling.packing.pod_classes import PodClass
from moxwell.scheduling.packing.shape_traits import HostSplit
from moxwell.scheduling.packing.topology_groups import TopologyGroup, TopologyType
from moxwell.scheduling.requirement_sets import (
    RequirementAlgebra,
    RequirementMismatch,
    RequirementSet,
)
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.well_known_labels import HOSTNAME


class NodeRules:
    """The rules by which a pod narrows the requirements of a bin."""

    def __init__(self, algebra: RequirementAlgebra) -> None:
        self.algebra = algebra

    def admitted(
        self, own: RequirementSet, host: str, pod: PodClass, lenient: bool
    ) -> RequirementSet | PlacementFailure:
        """The requirements of a bin and a pod together, before volumes and topology."""
        found = self.algebra.mismatches(own, pod.requirements, lenient=lenient)
        if found:
            return IncompatibleRequirements(found)
        if pod.host is not None and not pod.host.has(host):
            return IncompatibleRequirements((_host_mismatch(pod.host, host),))
        return self.algebra.intersection(own, pod.requirements)

    def with_volume(
        self, base: RequirementSet, host: str, volume: HostSplit, lenient: bool
    ) -> RequirementSet | PlacementFailure:
        """The requirements of a bin with one alternative of a pod's volumes."""
        wanted, wanted_host = volume
        found = self.algebra.mismatches(base, wanted, lenient=lenient)
        if not found and wanted_host is not None and not wanted_host.has(host):
            found = (_host_mismatch(wanted_host, host),)
        if found:
            return IncompatibleRequirements(found, "incompatible volume requirements, ")
        return self.algebra.intersection(base, wanted)

    def with_topology(
        self, base: RequirementSet, host: str, pod: PodClass, lenient: bool
    ) -> RequirementSet | PlacementFailure:
        """The requirements of a bin narrowed to the domains that the topology groups allow."""
        for group, selects in pod.host_groups:
            if not group.allows_host(host, selects, pod.strict_host):
                return _unsatisfiable(group, pod, _only_host(host))
        return self.with_domains(base, pod, lenient) if pod.domain_groups else base

    def with_domains(
        self, base: RequirementSet, pod: PodClass, lenient: bool
    ) -> RequirementSet | PlacementFailure:
        """The same for the groups of other labels than the host name."""
        chosen: dict[str, LabelRequirement] = {}
        for group, selects in pod.domain_groups:
            node = base.get(group.key)
            domains = group.domains(selects, pod.pod_domains(group), node)
            if not domains:
                return _unsatisfiable(group, pod, node)
            allowed = LabelRequirement(group.key, False, domains)
            known = chosen.get(group.key, node)
            chosen[group.key] = allowed if known is None else allowed.intersection(known)
        return self._narrowed(base, chosen, lenient)

    def _narrowed(
        self, base: RequirementSet, chosen: dict[str, LabelRequirement], lenient: bool
    ) -> RequirementSet | PlacementFailure:
        for key, wanted in chosen.items():
            known = base.get(key)
            if known is None:
                if not (lenient and key in self.algebra.well_known) and not wanted.is_negative:
                    return IncompatibleRequirements((RequirementMismatch(key, wanted, None),), "")
            elif known.conflicts(wanted):
                return IncompatibleRequirements((RequirementMismatch(key, wanted, known),), "")
        for wanted in chosen.values():
            if base.get(wanted.key) != wanted:
                base = self.algebra.with_requirement(base, wanted)
        return base

    def record(
        self,
        pod: PodClass,
        recording: list[TopologyGroup],
        host: str,
        taints: tuple[Taint, ...],
        requirements: RequirementSet,
    ) -> None:
        """Count a placed pod in the groups that select it and that count the bin."""
        for group in recording:
            if group.node_filter is not None and not group.node_filter.matches(
                self.algebra, taints, requirements, host
            ):
                continue
            if group.is_host:
                group.record(host)
                continue
            domains = requirements.get(group.key)
            if domains is None:
                continue
            if group.rule.type is TopologyType.ANTI_AFFINITY:
                for domain in domains.values:
                    group.record(domain)
            elif (only := domains.only) is not None:
                group.record(only)
        for group in pod.inverse_owned:
            if group.is_host:
                group.record(host)
            elif (domains := requirements.get(group.key)) is not None:
                for domain in domains.values:
                    group.record(domain)


def _only_host(host: str) -> LabelRequirement:
    return LabelRequirement(HOSTNAME, False, frozenset({host}))


def _host_mismatch(wanted: LabelRequirement, host: str) -> RequirementMismatch:
    return RequirementMismatch(HOSTNAME, wanted, _only_host(host))


def _unsatisfiable(
    group: TopologyGroup, pod: PodClass, node: LabelRequirement | None
) -> UnsatisfiableTopology:
    return UnsatisfiableTopology(group, pod.pod_domains(group), node)
