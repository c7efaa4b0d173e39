"""
Explains where a pod was placed, and why other places were rejected. Pure.

The sentence answers first; the details name every node pool that was passed over, the next cheaper
types and the other hosts, each with its reason. For a pod that
no instance type can hold, the nearest type and what it lacks are named.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from moxwell.scheduling.packing.failures import NoInstanceType, PodFailure
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.results import PlannedClaim, SchedulingResult
from moxwell.scheduling.packing.type_table import bits
from moxwell.scheduling.resource_lists import quantity_text

_SHOWN_TYPES = 5


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
    index = claim.slot.type if claim.slot is not None else claim.options[0]
    chosen, others = claim.table.types[index], len(claim.options) - 1
    company = len(claim.pods) - 1
    choice = f"{chosen.name} at {claim.price:g} per hour"
    choice += f" on the host {claim.slot.host}" if claim.slot is not None else ""
    choice += f", or one of {others} other types" if others else ""
    shared = f" together with {company} other pods" if company else ""
    return PodExplanation(
        f"{pod.key} needs a new node of the node pool {claim.pool}{shared}: {choice}.",
        tuple(_claim_details(claim, index)),
    )


def _claim_details(claim: PlannedClaim, index: int) -> Iterator[str]:
    """Why not another pool, a cheaper type or another host."""
    for pool, failure in claim.passed_over:
        yield f"node pool {pool}: {failure}"
    yield from _cheaper_types(claim, index)
    if claim.slot is not None and (nodes := claim.slot.guest.numa_nodes):
        yield f"NUMA nodes of the host {claim.slot.host}: {', '.join(map(str, nodes))}"
    for host, why in claim.other_hosts:
        yield f"host {host}: {why}"
    yield f"requirements of the node: {claim.requirements}"


def _cheaper_types(claim: PlannedClaim, index: int) -> Iterator[str]:
    """Why the types that are cheaper than the chosen one were not taken, dearest first."""
    table, wanted = claim.table, claim.requests
    usable = table.usable(claim.requirements)
    order = [i for price, i in table.by_price(claim.requirements) if price < claim.price]
    cheaper = [i for i in order if usable >> i & 1 and i != index]
    for each in cheaper[: -_SHOWN_TYPES - 1 : -1]:
        lacks = _lacks(table.types[each], wanted)
        yield f"type {table.types[each].name} {lacks or 'is excluded by hosts, ports or volumes'}"
    if len(cheaper) > _SHOWN_TYPES:
        yield f"{len(cheaper) - _SHOWN_TYPES} more types are cheaper and too small or excluded"
    if others := len(table.types) - usable.bit_count():
        yield f"{others} types do not meet the requirements of the node or have no offering for it"


def _lacks(each: InstanceType, wanted: Mapping[str, int]) -> str:
    room = each.allocatable
    short = {n: a - room.get(n, 0) for n, a in wanted.items() if a > room.get(n, 0)}
    return "lacks " + _amounts(short) if short else ""


def _amounts(short: Mapping[str, int]) -> str:
    return ", ".join(f"{quantity_text(n, a)} {n}" for n, a in sorted(short.items()))


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
    return search.table.types[index], _amounts(short)
