"""
What a pod's volumes say about nodes: the scheduler's volume binding, restrictions and limits.

In: the pod's claims, as they stand. Out: for each node the first obstacle, and the claims that wait
for a node to be chosen. A claim that waits gets the node's name as an annotation; the pod is bound
when its volumes are. The surprise: a claim for which a node was chosen keeps its pod to that node
until the provisioner gives it up.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moxwell.api.selectors import Requirement
from moxwell.controllers.upstream.storage import binding, names, ordering
from moxwell.controllers.upstream.storage.names import (
    CAPACITIES,
    CLAIMS,
    CLASSES,
    CSI_NODES,
    VOLUMES,
    Json,
)
from moxwell.kube.client import Kube

NO_ROOM = "node(s) did not have enough free storage"
CONFLICT = "node(s) had volume node affinity conflict"
TOO_MANY = "node(s) exceed max volume count"
NOT_THERE = "node(s) didn't find available persistent volumes to bind"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A claim that waits for its first consumer."""

    claim: Json
    klass: Json


@dataclass(frozen=True, slots=True)
class Needs:
    """All that the volumes of one pod say."""

    why_not: str = ""  # no node will do, and why
    bound: tuple[Json, ...] = ()  # volumes
    waiting: tuple[Waiting, ...] = ()
    rooms: tuple[Json, ...] = ()
    csi_nodes: Mapping[str, Json] | None = None
    used: Mapping[str, frozenset[str]] | None = None  # node -> claims in use there

    @property
    def selected(self) -> str:
        """The node that was chosen before."""
        chosen = {names.annotation(w.claim, names.SELECTED) for w in self.waiting}
        return next(iter(chosen)) if len(chosen) == 1 else ""

    def obstacle(self, node: Mapping[str, Any]) -> str:
        """The first thing in the way on a node; empty: none."""
        labels = node["metadata"].get("labels") or {}
        if not all(_reaches(volume, labels) for volume in self.bound):
            return CONFLICT
        if not all(ordering.is_allowed(w.klass, labels) for w in self.waiting):
            return NOT_THERE
        if not all(self._has_room(w, labels) for w in self.waiting):
            return NO_ROOM
        return TOO_MANY if self._is_full(node["metadata"]["name"]) else ""

    def _has_room(self, waiting: Waiting, labels: Mapping[str, str]) -> bool:
        asked, klass = names.asked(waiting.claim), waiting.klass["metadata"]["name"]
        return any(
            room["storageClassName"] == klass
            and _matches(room.get("nodeTopology") or {}, labels)
            and names.size({"storage": room.get("maximumVolumeSize") or room.get("capacity")})
            >= asked
            for room in self.rooms
        )

    def _is_full(self, node: str) -> bool:
        """Count by driver; volumes that are there already take no second place."""
        rows = ((self.csi_nodes or {}).get(node) or {}).get("spec", {}).get("drivers") or ()
        there = (self.used or {}).get(node, frozenset())
        for row in rows:
            limit = (row.get("allocatable") or {}).get("count")
            fresh = {c for c in self._claims(row["name"]) if c not in there}
            if limit is not None and fresh and len(there) + len(fresh) > limit:
                return True
        return False

    def _claims(self, driver: str) -> Iterable[str]:
        for volume in self.bound:
            if (volume["spec"].get("csi") or {}).get("driver") == driver:
                ref = volume["spec"]["claimRef"]
                yield f"{ref['namespace']}/{ref['name']}"
        for waiting in self.waiting:
            if waiting.klass["provisioner"] == driver:
                meta = waiting.claim["metadata"]
                yield f"{meta['namespace']}/{meta['name']}"


async def see(kube: Kube, pod: Json, others: Sequence[Json]) -> Needs:
    """Read what the pod's claims say."""
    space, bound, waiting = pod["metadata"]["namespace"], [], []
    for name in names.claims_of(pod):
        claim = await kube.find(CLAIMS, name, space)
        if claim is None:
            return Needs(why_not=f'persistentvolumeclaim "{name}" not found')
        if "deletionTimestamp" in claim["metadata"]:
            return Needs(why_not=f'persistentvolumeclaim "{name}" is being deleted')
        volume = await kube.find(VOLUMES, claim["spec"].get("volumeName") or "-")
        if names.phase(claim) == "Bound" and volume is not None:
            bound.append(volume)
            continue
        klass = await kube.find(CLASSES, claim["spec"].get("storageClassName") or "-")
        if klass is None or not binding.waits(klass):
            return Needs(why_not="pod has unbound immediate PersistentVolumeClaims")
        waiting.append(Waiting(claim, klass))
    if not bound and not waiting:
        return Needs()
    rooms = (await kube.list(CAPACITIES)).items if waiting else []
    nodes = {n["metadata"]["name"]: n for n in (await kube.list(CSI_NODES)).items}
    return Needs("", tuple(bound), tuple(waiting), tuple(rooms), nodes, used_on(others))


def used_on(pods: Iterable[Json]) -> dict[str, frozenset[str]]:
    """The claims that pods use, by node."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        space = pod["metadata"]["namespace"]
        for claim in names.claims_of(pod):
            found.setdefault(pod["spec"]["nodeName"], set()).add(f"{space}/{claim}")
    return {node: frozenset(claims) for node, claims in found.items()}


def _reaches(volume: Json, labels: Mapping[str, str]) -> bool:
    required = ((volume["spec"].get("nodeAffinity") or {}).get("required")) or {}
    terms = required.get("nodeSelectorTerms") or ()
    return not terms or any(_matches(term, labels) for term in terms)


def _matches(term: Json, labels: Mapping[str, Any]) -> bool:
    plain = term.get("matchLabels") or {}
    return all(labels.get(k) == v for k, v in plain.items()) and all(
        Requirement(e["key"], e["operator"], tuple(e.get("values") or ())).matches(labels)
        for e in term.get("matchExpressions") or ()
    )
