"""
What a pod's volumes say about nodes: the scheduler's volume binding, restrictions and limits.

In: the pod's claims, as they stand. Out: for each node the first obstacle, and the claims that wait
for a node to be chosen. A claim that waits gets a volume that is there already and can be reached
from the node, or else the node's name as an annotation; the pod is bound when its volumes are. The
surprise: a claim for which a node was chosen keeps its pod to that node until the provisioner gives
it up.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moxwell.embedded.controllermanager.storage import binding, provision_request
from moxwell.embedded.controllermanager.storage import labels as storage_labels
from moxwell.embedded.controllermanager.storage.labels import (
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

    @property
    def key(self) -> str:
        meta = self.claim["metadata"]
        return f"{meta['namespace']}/{meta['name']}"


@dataclass(frozen=True, slots=True)
class Needs:
    """All that the volumes of one pod say."""

    why_not: str = ""  # no node will do, and why
    bound: tuple[Json, ...] = ()  # volumes
    waiting: tuple[Waiting, ...] = ()
    rooms: tuple[Json, ...] = ()
    there: tuple[Json, ...] = ()  # volumes that nobody has yet, or that are meant for a claim
    csi_nodes: Mapping[str, Json] | None = None
    used: Mapping[str, frozenset[str]] | None = None  # node -> claims in use there

    @property
    def selected(self) -> str:
        """The node that was chosen before."""
        chosen = {storage_labels.annotation(w.claim, storage_labels.SELECTED) for w in self.waiting}
        return next(iter(chosen)) if len(chosen) == 1 else ""

    def obstacle(self, node: Mapping[str, Any]) -> str:
        """The first thing in the way on a node; empty: none."""
        labels = node["metadata"].get("labels") or {}
        if not all(_reaches(volume, labels) for volume in self.bound):
            return CONFLICT
        ready = self.ready(node)
        missing = [w for w in self.waiting if w.key not in ready]
        if not all(self._may_be_made(w, labels) for w in missing):
            return NOT_THERE
        if not all(self._has_room(w, labels) for w in missing):
            return NO_ROOM
        return TOO_MANY if self._is_full(node["metadata"]["name"]) else ""

    def ready(self, node: Mapping[str, Any]) -> dict[str, str]:
        """The volumes that are there for claims that wait, by claim, if the pod goes to a node."""
        labels = node["metadata"].get("labels") or {}
        found: dict[str, str] = {}
        near = [v for v in self.there if _reaches(v, labels)]
        for waiting in sorted(self.waiting, key=lambda w: storage_labels.asked(w.claim)):
            meant = [v for v in self.there if binding.is_for(v, waiting.claim)]
            if not meant and storage_labels.annotation(waiting.claim, storage_labels.SELECTED):
                continue  # its volume is being made
            free = [v for v in near if v["metadata"]["name"] not in found.values()]
            name = binding.choose_static(waiting.claim, free)
            if meant:
                name = next((v["metadata"]["name"] for v in meant if v in near), "")
            if name:
                found[waiting.key] = name
        return found

    def _may_be_made(self, waiting: Waiting, labels: Mapping[str, str]) -> bool:
        by = waiting.klass["provisioner"]
        meant = any(binding.is_for(v, waiting.claim) for v in self.there)
        made = by != binding.NO_PROVISIONER and not meant
        return made and provision_request.is_allowed(waiting.klass, labels)

    def _has_room(self, waiting: Waiting, labels: Mapping[str, str]) -> bool:
        asked, klass = storage_labels.asked(waiting.claim), waiting.klass["metadata"]["name"]
        return any(
            room["storageClassName"] == klass
            and binding.matches(room.get("nodeTopology") or {}, labels)
            and storage_labels.size(
                {"storage": room.get("maximumVolumeSize") or room.get("capacity")}
            )
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
                yield waiting.key


async def see(kube: Kube, pod: Json, others: Sequence[Json]) -> Needs:
    """Read what the pod's claims say."""
    space, bound, waiting = pod["metadata"]["namespace"], [], []
    for name in storage_labels.claims_of(pod):
        claim = await kube.find(CLAIMS, name, space)
        if claim is None:
            return Needs(why_not=_missing(pod, name))
        if why := storage_labels.misowned(pod, claim):
            return Needs(why_not=why)
        if "deletionTimestamp" in claim["metadata"]:
            return Needs(why_not=f'persistentvolumeclaim "{name}" is being deleted')
        volume = await kube.find(VOLUMES, claim["spec"].get("volumeName") or "-")
        if storage_labels.phase(claim) == "Bound" and volume is not None:
            bound.append(volume)
            continue
        klass = await kube.find(CLASSES, claim["spec"].get("storageClassName") or "-")
        if klass is None or not binding.waits(klass):
            return Needs(why_not="pod has unbound immediate PersistentVolumeClaims")
        waiting.append(Waiting(claim, klass))
    if not bound and not waiting:
        return Needs()
    rooms = (await kube.list(CAPACITIES)).items if waiting else []
    there = [v for v in (await kube.list(VOLUMES)).items if _is_free(v)] if waiting else []
    nodes = {n["metadata"]["name"]: n for n in (await kube.list(CSI_NODES)).items}
    return Needs(
        bound=tuple(bound),
        waiting=tuple(waiting),
        rooms=tuple(rooms),
        there=tuple(there),
        csi_nodes=nodes,
        used=used_on(others),
    )


def _is_free(volume: Json) -> bool:
    return (
        "deletionTimestamp" not in volume["metadata"]
        and storage_labels.phase(volume) == "Available"
    )


def _missing(pod: Json, name: str) -> str:
    if name in {storage_labels.brought_name(pod, v) for v in storage_labels.brought(pod)}:
        wait = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
        return f'{wait} "{name}"'
    return f'persistentvolumeclaim "{name}" not found'


def used_on(pods: Iterable[Json]) -> dict[str, frozenset[str]]:
    """The claims that pods use, by node."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        space = pod["metadata"]["namespace"]
        for claim in storage_labels.claims_of(pod):
            found.setdefault(pod["spec"]["nodeName"], set()).add(f"{space}/{claim}")
    return {node: frozenset(claims) for node, claims in found.items()}


def _reaches(volume: Json, labels: Mapping[str, str]) -> bool:
    required = ((volume["spec"].get("nodeAffinity") or {}).get("required")) or {}
    terms = required.get("nodeSelectorTerms") or ()
    return not terms or any(binding.matches(term, labels) for term in terms)
