"""
What the volumes of a pod require of a node: the volume plugins of kube-scheduler.

A claim that waits for its first consumer gets an available volume that the node can access, or the
node's name as an annotation for the provisioner. The pod is bound when its claims are. A claim with
a selected node keeps its pod to that node until the provisioner clears the annotation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moxwell.embedded.controllermanager.resources import (
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from moxwell.embedded.controllermanager.storage import labels as storage_labels
from moxwell.embedded.controllermanager.storage.persistentvolume import plan as binding
from moxwell.embedded.controllermanager.storage.provisioner.request import is_allowed
from moxwell.kube.reader import Reader

Json = dict[str, Any]

NO_CAPACITY = "node(s) did not have enough free storage"
AFFINITY_CONFLICT = "node(s) had volume node affinity conflict"
TOO_MANY_VOLUMES = "node(s) exceed max volume count"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"


@dataclass(frozen=True, slots=True)
class UnboundClaim:
    """A claim that waits for its first consumer."""

    claim: Json
    storage_class: Json

    @property
    def key(self) -> str:
        meta = self.claim["metadata"]
        return f"{meta['namespace']}/{meta['name']}"


@dataclass(frozen=True, slots=True)
class VolumeConstraints:
    """What the volumes of one pod require of a node."""

    problem: str = ""  # why no node fits at all
    bound: tuple[Json, ...] = ()  # volumes of bound claims
    waiting: tuple[UnboundClaim, ...] = ()
    capacities: tuple[Json, ...] = ()
    available: tuple[Json, ...] = ()  # volumes in phase Available, also those reserved for a claim
    csi_nodes: Mapping[str, Json] | None = None
    used: Mapping[str, frozenset[str]] | None = None  # node -> claims in use there

    @property
    def selected(self) -> str:
        """The node that an earlier pass selected."""
        chosen = {
            storage_labels.annotation(w.claim, storage_labels.SELECTED_NODE) for w in self.waiting
        }
        return next(iter(chosen)) if len(chosen) == 1 else ""

    def obstacle(self, node: Mapping[str, Any]) -> str:
        """Why a node does not fit; empty if it does."""
        labels = node["metadata"].get("labels") or {}
        if not all(_is_accessible(volume, labels) for volume in self.bound):
            return AFFINITY_CONFLICT
        assigned = self.assignments(node)
        missing = [w for w in self.waiting if w.key not in assigned]
        if not all(self._can_be_provisioned(w, labels) for w in missing):
            return NO_VOLUME
        if not all(self._has_capacity(w, labels) for w in missing):
            return NO_CAPACITY
        return TOO_MANY_VOLUMES if self._is_full(node["metadata"]["name"]) else ""

    def assignments(self, node: Mapping[str, Any]) -> dict[str, str]:
        """Available volumes for the waiting claims, by claim key, if the pod runs on a node."""
        labels = node["metadata"].get("labels") or {}
        found: dict[str, str] = {}
        near = [v for v in self.available if _is_accessible(v, labels)]
        for waiting in sorted(self.waiting, key=lambda w: storage_labels.requested_size(w.claim)):
            reserved = [v for v in self.available if binding.is_for(v, waiting.claim)]
            if not reserved and storage_labels.annotation(
                waiting.claim, storage_labels.SELECTED_NODE
            ):
                continue  # its volume is being provisioned
            free = [v for v in near if v["metadata"]["name"] not in found.values()]
            name = binding.choose_static(waiting.claim, free)
            if reserved:
                name = next((v["metadata"]["name"] for v in reserved if v in near), "")
            if name:
                found[waiting.key] = name
        return found

    def _can_be_provisioned(self, waiting: UnboundClaim, labels: Mapping[str, str]) -> bool:
        provisioner = waiting.storage_class["provisioner"]
        reserved = any(binding.is_for(v, waiting.claim) for v in self.available)
        possible = provisioner != binding.NO_PROVISIONER and not reserved
        return possible and is_allowed(waiting.storage_class, labels)

    def _has_capacity(self, waiting: UnboundClaim, labels: Mapping[str, str]) -> bool:
        size = storage_labels.requested_size(waiting.claim)
        class_name = waiting.storage_class["metadata"]["name"]
        return any(
            capacity["storageClassName"] == class_name
            and binding.selector_matches(capacity.get("nodeTopology") or {}, labels)
            and storage_labels.storage_size(
                {"storage": capacity.get("maximumVolumeSize") or capacity.get("capacity")}
            )
            >= size
            for capacity in self.capacities
        )

    def _is_full(self, node: str) -> bool:
        """Whether a driver's volume limit is exceeded; volumes in use on the node count once."""
        drivers = ((self.csi_nodes or {}).get(node) or {}).get("spec", {}).get("drivers") or ()
        used = (self.used or {}).get(node, frozenset())
        for driver in drivers:
            limit = (driver.get("allocatable") or {}).get("count")
            added = {c for c in self._claims(driver["name"]) if c not in used}
            if limit is not None and added and len(used) + len(added) > limit:
                return True
        return False

    def _claims(self, driver: str) -> Iterable[str]:
        for volume in self.bound:
            if (volume["spec"].get("csi") or {}).get("driver") == driver:
                ref = volume["spec"]["claimRef"]
                yield f"{ref['namespace']}/{ref['name']}"
        for waiting in self.waiting:
            if waiting.storage_class["provisioner"] == driver:
                yield waiting.key


async def see_volumes(reader: Reader, pod: Json, others: Sequence[Json]) -> VolumeConstraints:
    """Read the claims of a pod and what they require; ``others`` are the pods on nodes."""
    namespace, bound, waiting = pod["metadata"]["namespace"], [], []
    for name in storage_labels.claims_of(pod):
        claim = await reader.find(PERSISTENT_VOLUME_CLAIMS, name, namespace)
        if claim is None:
            return VolumeConstraints(problem=_missing(pod, name))
        if why := storage_labels.ownership_error(pod, claim):
            return VolumeConstraints(problem=why)
        if "deletionTimestamp" in claim["metadata"]:
            return VolumeConstraints(problem=f'persistentvolumeclaim "{name}" is being deleted')
        volume = await reader.find(PERSISTENT_VOLUMES, claim["spec"].get("volumeName") or "-")
        if storage_labels.phase(claim) == "Bound" and volume is not None:
            bound.append(volume)
            continue
        class_name = claim["spec"].get("storageClassName") or "-"
        storage_class = await reader.find(STORAGE_CLASSES, class_name)
        if storage_class is None or not binding.waits_for_consumer(storage_class):
            return VolumeConstraints(problem="pod has unbound immediate PersistentVolumeClaims")
        waiting.append(UnboundClaim(claim, storage_class))
    if not bound and not waiting:
        return VolumeConstraints()
    capacities = (await reader.list(CSI_STORAGE_CAPACITIES)).items if waiting else []
    volumes = (await reader.list(PERSISTENT_VOLUMES)).items if waiting else []
    nodes = {n["metadata"]["name"]: n for n in (await reader.list(CSI_NODES)).items}
    return VolumeConstraints(
        bound=tuple(bound),
        waiting=tuple(waiting),
        capacities=tuple(capacities),
        available=tuple(v for v in volumes if _is_available(v)),
        csi_nodes=nodes,
        used=used_on(others),
    )


def _is_available(volume: Json) -> bool:
    return (
        "deletionTimestamp" not in volume["metadata"]
        and storage_labels.phase(volume) == "Available"
    )


def _missing(pod: Json, name: str) -> str:
    if name in {
        storage_labels.ephemeral_claim_name(pod, v) for v in storage_labels.ephemeral_volumes(pod)
    }:
        wait = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
        return f'{wait} "{name}"'
    return f'persistentvolumeclaim "{name}" not found'


def used_on(pods: Iterable[Json]) -> dict[str, frozenset[str]]:
    """The keys of the claims that pods use, by node."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        namespace = pod["metadata"]["namespace"]
        for claim in storage_labels.claims_of(pod):
            found.setdefault(pod["spec"]["nodeName"], set()).add(f"{namespace}/{claim}")
    return {node: frozenset(claims) for node, claims in found.items()}


def _is_accessible(volume: Json, labels: Mapping[str, str]) -> bool:
    required = ((volume["spec"].get("nodeAffinity") or {}).get("required")) or {}
    terms = required.get("nodeSelectorTerms") or ()
    return not terms or any(binding.selector_matches(term, labels) for term in terms)
