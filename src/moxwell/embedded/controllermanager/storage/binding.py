"""
What becomes of a claim, and what a volume's phase is: the pure part.

In: a claim, the volumes, its class. Out: a move. The words are those of the genuine controller, as
people know them from ``kubectl describe``. The surprise: a claim that waits for its first consumer
is not our business until the scheduler has chosen a node for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.api.selectors import Requirement
from moxwell.embedded.controllermanager.storage import labels as storage_labels
from moxwell.runtime.reconciler import Note

Json = Mapping[str, Any]
NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, slots=True)
class Bind:
    """Join a claim and a volume."""

    volume: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Let a provisioner make the volume."""

    provisioner: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do but to say why; ``lost`` is for good."""

    note: Note | None = None
    lost: bool = False


Move = Bind | Ask | Wait


def next_move(claim: Json, volumes: Iterable[Json], klass: Json | None) -> Move:
    """What a claim needs now."""
    volumes = list(volumes)
    named = claim["spec"].get("volumeName")
    if named:
        return _named(claim, next((v for v in volumes if _name(v) == named), None))
    reserved = [v for v in volumes if is_for(v, claim)]
    if reserved:
        return Bind(_name(reserved[0]))
    return _unnamed(claim, volumes, klass)


def _named(claim: Json, volume: Json | None) -> Move:
    completed = bool(storage_labels.annotation(claim, storage_labels.COMPLETED))
    if volume is None:
        if not completed:
            return Wait()
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        return Wait(Note("ClaimLost", text, "Warning"), lost=True)
    ref = volume["spec"].get("claimRef")
    if completed and ref and ref.get("uid") != claim["metadata"]["uid"]:
        text = "Two claims are bound to the same volume, this one is bound incorrectly"
        return Wait(Note("ClaimMisbound", text, "Warning"), lost=True)
    if not ref or is_for(volume, claim):
        return Bind(_name(volume))
    text = f"volume {_name(volume)!r} already bound to a different claim."
    return Wait(Note("FailedBinding", text, "Warning"))


def _unnamed(claim: Json, volumes: Iterable[Json], klass: Json | None) -> Move:
    wanted = claim["spec"].get("storageClassName") or ""
    if not waits(klass):
        found = choose_static(claim, volumes)
        if found:
            return Bind(found)
    if not wanted:
        text = "no persistent volumes available for this claim and no storage class is set"
        return Wait(Note("FailedBinding", text))
    if klass is None:
        text = f'storageclass.storage.k8s.io "{wanted}" not found'
        return Wait(Note("ProvisioningFailed", text, "Warning"))
    if waits(klass) and not storage_labels.annotation(claim, storage_labels.SELECTED):
        text = "waiting for first consumer to be created before binding"
        return Wait(Note("WaitForFirstConsumer", text))
    if klass["provisioner"] == NO_PROVISIONER:
        text = "no volume fits and the class has no provisioner"
        return Wait(Note("FailedBinding", text))
    return Ask(klass["provisioner"])


def waits(klass: Json | None) -> bool:
    return klass is not None and klass.get("volumeBindingMode") == "WaitForFirstConsumer"


def is_for(volume: Json, claim: Json) -> bool:
    """Does the volume name this very claim?"""
    ref, meta = volume["spec"].get("claimRef") or {}, claim["metadata"]
    same = (ref.get("namespace"), ref.get("name")) == (meta["namespace"], meta["name"])
    return same and ref.get("uid") in (None, "", meta["uid"])


def choose_static(claim: Json, volumes: Iterable[Json]) -> str:
    """The smallest free volume that fits; empty if none does."""
    fitting = [
        (storage_labels.size(v["spec"]["capacity"]), _name(v))
        for v in volumes
        if storage_labels.phase(v) == "Available"
        and not v["spec"].get("claimRef")
        and (v["spec"].get("storageClassName") or "")
        == (claim["spec"].get("storageClassName") or "")
        and set(claim["spec"]["accessModes"]) <= set(v["spec"]["accessModes"])
        and storage_labels.is_block(v) == storage_labels.is_block(claim)
        and storage_labels.size(v["spec"]["capacity"]) >= storage_labels.asked(claim)
        and matches(claim["spec"].get("selector") or {}, v["metadata"].get("labels") or {})
    ]
    return min(fitting, default=(0, ""))[1]


def matches(term: Json, labels: Mapping[str, str]) -> bool:
    """Does a selector, or one term of an affinity, admit these labels?"""
    plain = term.get("matchLabels") or {}
    return all(labels.get(k) == v for k, v in plain.items()) and all(
        Requirement(e["key"], e["operator"], tuple(e.get("values") or ())).matches(labels)
        for e in term.get("matchExpressions") or ()
    )


def phase_of(volume: Json, claim: Json | None) -> str:
    """The phase of a volume whose claimRef leads to ``claim``, or to nothing."""
    ref = volume["spec"].get("claimRef") or {}
    if not ref.get("uid"):
        return "Available"
    if claim is None or claim["metadata"]["uid"] != ref["uid"]:
        return "Released"
    return "Bound" if claim["spec"].get("volumeName") == _name(volume) else "Available"


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])
