"""
The binding of a PersistentVolumeClaim and the phase of a PersistentVolume. Pure.

Events and messages are those of kube-controller-manager. A claim with ``WaitForFirstConsumer`` is
not bound before the scheduler has selected a node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from moxwell.api.selectors import Requirement
from moxwell.embedded.controllermanager.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
)
from moxwell.embedded.controllermanager.storage import labels as storage_labels
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Merge, Write, Writes

Json = Mapping[str, Any]
NO_PROVISIONER = "kubernetes.io/no-provisioner"
CHECK_SECONDS = 15.0


class ClaimReason(StrEnum):
    """Reasons of the events of a PersistentVolumeClaim."""

    EXTERNAL_PROVISIONING = "ExternalProvisioning"
    WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
    FAILED_BINDING = "FailedBinding"
    PROVISIONING_FAILED = "ProvisioningFailed"
    LOST = "ClaimLost"
    MISBOUND = "ClaimMisbound"
    WAITING_FOR_VOLUME = "WaitingForVolume"  # no event


@dataclass(frozen=True, slots=True)
class ObservedClaim:
    """
    The volumes and the class of a claim.

    ``capacity_recorded``: the claim has a capacity. It is recorded once, when the claim is bound;
    later the resizer and the kubelet change it.
    """

    volumes: tuple[Json, ...] = ()
    storage_class: Json | None = None
    capacity_recorded: bool = False

    def volume(self, name: str) -> Json | None:
        return next((v for v in self.volumes if _name(v) == name), None)


@dataclass(frozen=True, slots=True)
class Bind:
    """The claim and this volume belong together."""

    volume: str


@dataclass(frozen=True, slots=True)
class ExternalProvisioning:
    """A provisioner must create the volume."""

    provisioner: str


@dataclass(frozen=True, slots=True)
class ClaimProblem(Wait):
    """A wait that is reported as a warning; ``lost`` also sets the phase."""

    lost: bool = False


Decision = Bind | ExternalProvisioning | Wait


def decide(claim: Json, seen: ObservedClaim) -> Decision:
    """Which volume a claim gets, or what it waits for."""
    named = claim["spec"].get("volumeName")
    if named:
        return _named(claim, seen.volume(named))
    reserved = [v for v in seen.volumes if is_for(v, claim)]
    if reserved:
        return Bind(_name(reserved[0]))
    return _unnamed(claim, seen)


def _named(claim: Json, volume: Json | None) -> Decision:
    completed = bool(storage_labels.annotation(claim, storage_labels.BIND_COMPLETED))
    if volume is None:
        if not completed:
            return Wait(ClaimReason.WAITING_FOR_VOLUME, requeue_after=CHECK_SECONDS)
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        return ClaimProblem(ClaimReason.LOST, text, CHECK_SECONDS, lost=True)
    ref = volume["spec"].get("claimRef")
    if completed and ref and ref.get("uid") != claim["metadata"]["uid"]:
        text = "Two claims are bound to the same volume, this one is bound incorrectly"
        return ClaimProblem(ClaimReason.MISBOUND, text, CHECK_SECONDS, lost=True)
    if not ref or is_for(volume, claim):
        return Bind(_name(volume))
    text = f"volume {_name(volume)!r} already bound to a different claim."
    return ClaimProblem(ClaimReason.FAILED_BINDING, text, CHECK_SECONDS)


def _unnamed(claim: Json, seen: ObservedClaim) -> Decision:
    name, storage_class = claim["spec"].get("storageClassName") or "", seen.storage_class
    waits = waits_for_consumer(storage_class)
    if not waits and (found := choose_static(claim, seen.volumes)):
        return Bind(found)
    if not name:
        text = "no persistent volumes available for this claim and no storage class is set"
        return Wait(ClaimReason.FAILED_BINDING, text, CHECK_SECONDS)
    if storage_class is None:
        text = f'storageclass.storage.k8s.io "{name}" not found'
        return ClaimProblem(ClaimReason.PROVISIONING_FAILED, text, CHECK_SECONDS)
    if waits and not storage_labels.annotation(claim, storage_labels.SELECTED_NODE):
        text = "waiting for first consumer to be created before binding"
        return Wait(ClaimReason.WAIT_FOR_FIRST_CONSUMER, text, CHECK_SECONDS)
    if storage_class["provisioner"] == NO_PROVISIONER:
        text = "no volume fits and the class has no provisioner"
        return Wait(ClaimReason.FAILED_BINDING, text, CHECK_SECONDS)
    return ExternalProvisioning(storage_class["provisioner"])


def next_move(claim: Json, seen: ObservedClaim) -> WriteMove:
    """The writes that carry out the decision."""
    decision = decide(claim, seen)
    if isinstance(decision, Bind):
        volume = seen.volume(decision.volume)
        return _bind(claim, volume) if volume is not None else Done()
    if isinstance(decision, Wait):
        return decision
    text = provisioning_message(decision.provisioner)
    if storage_labels.annotation(claim, storage_labels.PROVISIONER) == decision.provisioner:
        return Wait(ClaimReason.EXTERNAL_PROVISIONING, text, CHECK_SECONDS)
    change = {"metadata": {"annotations": {storage_labels.PROVISIONER: decision.provisioner}}}
    writes = (_merge_claim(claim, change),)
    return Writes(writes, ClaimReason.EXTERNAL_PROVISIONING, CHECK_SECONDS)


def provisioning_message(provisioner: str) -> str:
    return (
        f"Waiting for a volume to be created either by the external provisioner "
        f"'{provisioner}' or manually by the system administrator. If volume creation is "
        "delayed, please verify that the provisioner is running and correctly registered."
    )


def _bind(claim: Json, volume: Json) -> WriteMove:
    """Write the volume first: if two claims select it, its resource version decides."""
    writes: list[Write] = []
    ref, name = volume["spec"].get("claimRef") or {}, _name(volume)
    if ref.get("uid") != claim["metadata"]["uid"]:
        change = reservation(claim, volume, pre_bound=bool(ref))
        writes.append(Merge(PERSISTENT_VOLUMES, name, change))
    completed = storage_labels.annotation(claim, storage_labels.BIND_COMPLETED)
    if claim["spec"].get("volumeName") != name or not completed:
        marks = {storage_labels.BIND_COMPLETED: "yes", storage_labels.BOUND_BY_CONTROLLER: "yes"}
        bound = {"metadata": {"annotations": marks}, "spec": {"volumeName": name}}
        writes.append(_merge_claim(claim, bound))
    return Writes(tuple(writes)) if writes else Done()


def _merge_claim(claim: Json, change: Json) -> Merge:
    meta = claim["metadata"]
    return Merge(PERSISTENT_VOLUME_CLAIMS, meta["name"], change, meta["namespace"])


def reservation(claim: Json, volume: Json, *, pre_bound: bool) -> dict[str, Any]:
    """The change that sets a volume's claimRef; ``pre_bound``: a user has named the claim."""
    meta = claim["metadata"]
    ref = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "resourceVersion": meta["resourceVersion"],
    }
    head: dict[str, Any] = {"resourceVersion": volume["metadata"]["resourceVersion"]}
    if not pre_bound:
        head["annotations"] = {storage_labels.BOUND_BY_CONTROLLER: "yes"}
    return {"metadata": head, "spec": {"claimRef": ref}}


def describe_claim(claim: Json, seen: ObservedClaim) -> dict[str, Any] | None:
    """Bound with the modes and, once, the capacity of the volume; Lost; or nothing."""
    decision = decide(claim, seen)
    if isinstance(decision, ClaimProblem) and decision.lost:
        return {"phase": "Lost"}
    volume = seen.volume(decision.volume) if isinstance(decision, Bind) else None
    if volume is None:
        return None
    status = {"phase": "Bound", "accessModes": volume["spec"]["accessModes"]}
    return status if seen.capacity_recorded else status | {"capacity": volume["spec"]["capacity"]}


def waits_for_consumer(storage_class: Json | None) -> bool:
    """Whether a class binds only when a pod uses the claim."""
    return (
        storage_class is not None
        and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    )


def is_for(volume: Json, claim: Json) -> bool:
    """Whether the claimRef of a volume names this claim."""
    ref, meta = volume["spec"].get("claimRef") or {}, claim["metadata"]
    same = (ref.get("namespace"), ref.get("name")) == (meta["namespace"], meta["name"])
    return same and ref.get("uid") in (None, "", meta["uid"])


def choose_static(claim: Json, volumes: Iterable[Json]) -> str:
    """The smallest available volume that fits; empty if none does."""
    spec = claim["spec"]
    fitting = [
        (storage_labels.storage_size(v["spec"]["capacity"]), _name(v))
        for v in volumes
        if storage_labels.phase(v) == "Available"
        and not v["spec"].get("claimRef")
        and (v["spec"].get("storageClassName") or "") == (spec.get("storageClassName") or "")
        and set(spec["accessModes"]) <= set(v["spec"]["accessModes"])
        and storage_labels.is_block(v) == storage_labels.is_block(claim)
        and storage_labels.storage_size(v["spec"]["capacity"])
        >= storage_labels.requested_size(claim)
        and selector_matches(spec.get("selector") or {}, v["metadata"].get("labels") or {})
    ]
    return min(fitting, default=(0, ""))[1]


def selector_matches(term: Json, labels: Mapping[str, str]) -> bool:
    """Whether a selector, or one term of a node affinity, matches labels."""
    plain = term.get("matchLabels") or {}
    return all(labels.get(k) == v for k, v in plain.items()) and all(
        Requirement(e["key"], e["operator"], tuple(e.get("values") or ())).matches(labels)
        for e in term.get("matchExpressions") or ()
    )


def volume_phase(volume: Json, claim: Json | None) -> str:
    """The phase of a volume; ``claim`` is the one that its claimRef names, if it exists."""
    ref = volume["spec"].get("claimRef") or {}
    if not ref.get("uid"):
        return "Available"
    if claim is None or claim["metadata"]["uid"] != ref["uid"]:
        return "Released"
    return "Bound" if claim["spec"].get("volumeName") == _name(volume) else "Available"


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])
