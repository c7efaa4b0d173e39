"""
Chooses the host of a guest, and explains the choice host by host. Pure.

The input is a :class:`PlacementRequest`, the candidate hosts, the matching templates, the placed
replicas and the pending guests. The result names the chosen host, if any, and for every other host
what it lacks, with figures. Ties are decided by name, so equal input gives equal results.
"""

from collections.abc import Iterable, Sequence

from moxwell.scheduling import host_checks
from moxwell.scheduling.inventory_model import (
    CandidateHost,
    HostKey,
    PendingGuest,
    PlacedReplica,
    Template,
)
from moxwell.scheduling.placement_model import HostVerdict, Placement, PlacementRequest


def choose_host(
    request: PlacementRequest,
    hosts: Iterable[CandidateHost],
    *,
    templates: Sequence[Template],
    replicas: Iterable[PlacedReplica] = (),
    pending: Iterable[PendingGuest] = (),
) -> Placement:
    """
    Choose the best fitting host: fewest replicas in its zone, fewest on it, least load.

    Replicas of an earlier template count last, so that a rollout ends spread as evenly as a new
    group.
    """
    unseen, placed = tuple(pending), tuple(replicas)
    candidates = [h for h in hosts if _is_candidate(request, h)]
    verdicts = tuple(
        _evaluate(request, h, templates, placed, unseen) for h in sorted(candidates, key=_by_key)
    )
    fitting = [v for v in verdicts if v.fits]
    return Placement(min(fitting, key=_rank, default=None), verdicts)


def _by_key(host: CandidateHost) -> HostKey:
    return host.key


def _rank(verdict: HostVerdict) -> tuple[int, int, int, int, bool, float, HostKey]:
    return (
        verdict.zone_new_replicas,
        verdict.new_replicas,
        verdict.zone_replicas,
        verdict.replicas,
        verdict.migrate_after_clone,
        round(verdict.load, 2),
        verdict.key,
    )


def _is_candidate(request: PlacementRequest, host: CandidateHost) -> bool:
    """Whether the host is a candidate: the region and zone match."""
    return not (request.region and host.key.region != request.region) and not (
        request.zone and host.zone != request.zone
    )


def _evaluate(
    request: PlacementRequest,
    host: CandidateHost,
    templates: Sequence[Template],
    placed: Sequence[PlacedReplica],
    pending: Sequence[PendingGuest],
) -> HostVerdict:
    usage = host_checks.usage_of(host, pending)
    template, migrate_after_clone = _reach(request, host, templates)
    replicas = sum(n.key == host.key for n in placed)
    in_zone = [n for n in placed if n.zone == host.zone and n.key.region == host.key.region]
    in_zone = [] if request.zone else in_zone
    why = [
        *host_checks.availability(request, host),
        *host_checks.affinity(request, replicas),
        *host_checks.template_reasons(request, host, template, templates),
        *host_checks.compute_reasons(request, host, usage),
        *host_checks.storage_reasons(request, host, usage, template),
        *host_checks.capability_reasons(request, host),
    ]
    return HostVerdict(
        host.key,
        host.zone,
        tuple(why),
        template,
        migrate_after_clone,
        replicas,
        len(in_zone),
        host_checks.load_of(host, usage),
        sum(n.key == host.key and not n.leaving for n in placed),
        sum(not n.leaving for n in in_zone),
    )


def _reach(
    request: PlacementRequest, host: CandidateHost, templates: Sequence[Template]
) -> tuple[Template | None, bool]:
    """The best template for the host: on it, then on shared storage, then clone and migrate."""
    ours = [t for t in templates if t.key.region == host.key.region]
    here = [t for t in ours if t.key == host.key]
    wanted = host.stores.get(request.storage or host.capabilities.storage)
    # Proxmox clones to another host only if the storage of the copy is shared too
    reaches = wanted is None or wanted.shared
    shared = [t for t in ours if t.shared and reaches and all(s in host.stores for s in t.storages)]
    for found in (here, shared):
        if found:
            return min(found, key=lambda t: (t.key, t.vmid)), False
    if ours and not request.linked:
        return min(ours, key=lambda t: (t.key, t.vmid)), True
    return None, False
