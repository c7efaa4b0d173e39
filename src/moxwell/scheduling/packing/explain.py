"""
Why a pod went where it went, and why not elsewhere. Pure.

The sentence answers first; the details name every node pool that was passed over. For a pod that
no instance type can hold, the nearest type and what it lacks are named.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from moxwell.scheduling.packing.failures import NoInstanceType, PodFailure
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.results import PlannedClaim, SchedulingResult
from moxwell.scheduling.packing.type_table import bits
from moxwell.scheduling.resource_lists import quantity_text


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """One sentence, and the details behind it."""

    sentence: str
    details: tuple[str, ...] = ()


def explain_pod(pod: PodDemand, result: SchedulingResult) -> PodExplanation:
    """Explain the decision about a pod."""
    for name, pods in result.existing.items():
        if any(p.uid == pod.uid for p in pods):
            return PodExplanation(f"{pod.key} fits on the existing node {name}.")
    for claim in result.claims:
        if any(p.uid == pod.uid for p in claim.pods):
            return _on_claim(pod, claim)
    failure = result.failures.get(pod.uid)
    if failure is None:
        return PodExplanation(f"{pod.key} was not part of this decision.")
    return _failed(pod, failure)


def _on_claim(pod: PodDemand, claim: PlannedClaim) -> PodExplanation:
    cheapest, others = claim.instance_types[0], len(claim.options) - 1
    company = len(claim.pods) - 1
    choice = f"{cheapest.name} at {claim.price:g} per hour"
    choice += f" or one of {others} dearer types" if others else ""
    shared = f" together with {company} other pods" if company else ""
    passed = tuple(f"node pool {pool}: {failure}" for pool, failure in claim.passed_over)
    return PodExplanation(
        f"{pod.key} needs a new node of the node pool {claim.pool}{shared}: {choice}.",
        (*passed, f"requirements of the node: {claim.requirements}"),
    )


def _failed(pod: PodDemand, failure: PodFailure) -> PodExplanation:
    if failure.is_deferred:
        sentence = f"{pod.key} waits for reserved capacity."
    elif not failure.attempts:
        sentence = f"{pod.key} has no node: no node pool has a usable instance type."
    else:
        pool, first = failure.attempts[0]
        sentence = f"{pod.key} has no node: in the node pool {pool}, {first}."
    return PodExplanation(sentence, tuple(_details(failure)))


def _details(failure: PodFailure) -> Iterator[str]:
    for pool, each in failure.attempts:
        yield f"node pool {pool}: {each}"
        if isinstance(each, NoInstanceType) and (nearest := nearest_type(each)):
            found, lacks = nearest
            yield f"node pool {pool}: the nearest type is {found.name}, which lacks {lacks}"


def nearest_type(failure: NoInstanceType) -> tuple[InstanceType, str] | None:
    """The compatible type that lacks least, by the largest missing share of a resource."""
    search = failure.search
    wanted = search.axis.amounts(search.requests)
    compatible = search.table.usable(search.requirements) & search.options
    ranked = []
    for index in bits(compatible):
        room = search.table.types[index].allocatable
        short = {n: a - room.get(n, 0) for n, a in wanted.items() if a > room.get(n, 0)}
        if short:
            share = max(amount / wanted[name] for name, amount in short.items())
            ranked.append((share, index, short))
    if not ranked:
        return None
    _, index, short = min(ranked, key=lambda r: r[:2])
    lacks = ", ".join(f"{quantity_text(n, a)} {n}" for n, a in sorted(short.items()))
    return search.table.types[index], lacks
