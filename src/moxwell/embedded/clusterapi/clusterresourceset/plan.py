"""
What a ClusterResourceSet still has to apply, and to which clusters. Pure.

A ClusterResourceSetBinding per cluster records what was applied: with ``ApplyOnce`` a resource is
applied until it succeeded once, with ``Reconcile`` again when its content changes. Deleting the set
removes its records only; what was applied stays in the clusters, as in Cluster API.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from moxwell.api.capi.addons import (
    RESOURCE_SET_SECRET,
    ClusterResourceRef,
    ClusterResourceSet,
    ClusterResourceSetBinding,
    ClusterResourceSetStatus,
    ResourceBinding,
    ResourceSetBinding,
)
from moxwell.api.conditions import Condition
from moxwell.api.kinds import owner_reference
from moxwell.embedded.controllermanager.resources import CONFIG_MAPS, SECRETS
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Delete, Merge, Write, Writes

Json = Mapping[str, Any]
RESOURCES_APPLIED = "ResourcesApplied"
CHECK_SECONDS = 10.0  # until a missing resource or API is looked for again
RECONCILE_SECONDS = 30.0  # until the content of the resources is compared again
KINDS = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}


class ResourceSetReason(StrEnum):
    """Reasons of the condition ``ResourcesApplied``."""

    APPLIED = "Applied"
    NOT_APPLIED = "NotApplied"
    WRONG_SECRET_TYPE = "WrongSecretType"


@dataclass(frozen=True, slots=True)
class MatchedCluster:
    """A cluster that the selector matches."""

    name: str
    reachable: bool
    binding: ClusterResourceSetBinding | None = None


@dataclass(frozen=True, slots=True)
class ObservedResourceSet:
    """
    The clusters that match, the resources by reference, None for one that does not exist, and, of a
    set that is being deleted, all bindings of the namespace.
    """

    clusters: tuple[MatchedCluster, ...] = ()
    resources: Mapping[ClusterResourceRef, Json | None] = field(default_factory=dict, repr=False)
    bindings: tuple[ClusterResourceSetBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class DueResource:
    """One resource that is to be applied to one cluster."""

    cluster: Key
    ref: ClusterResourceRef
    texts: tuple[str, ...] = field(repr=False)
    hash: str
    keep_existing: bool

    def __str__(self) -> str:
        return f"{self.ref} to cluster {self.cluster.name}"


@dataclass(frozen=True, slots=True)
class ApplyResources:
    """Apply resources to clusters and record what succeeded."""

    owner: ClusterResourceSet = field(repr=False)
    due: tuple[DueResource, ...] = ()

    def __str__(self) -> str:
        return "apply " + ", ".join(map(str, self.due))


ResourceSetMove = Writes | ApplyResources | Wait | Done


def next_move(obj: ClusterResourceSet, seen: ObservedResourceSet) -> ResourceSetMove:
    """The next move of a ClusterResourceSet."""
    if obj.deleting:
        writes = tuple(_forget(obj.name, binding) for binding in seen.bindings)
        kept = tuple(write for write in writes if write is not None)
        return Writes(kept) if kept else Done()
    if owned := tuple(_own(obj, ref, found) for ref, found in _unowned(obj, seen)):
        return Writes(owned, ResourceSetReason.NOT_APPLIED)
    if due := tuple(_due(obj, seen)):
        return ApplyResources(obj, due)
    again = RECONCILE_SECONDS if obj.spec.strategy == "Reconcile" else None
    return _blocked(obj, seen) or Done(again)


def _blocked(obj: ClusterResourceSet, seen: ObservedResourceSet) -> Wait | None:
    """Why not everything is applied although nothing can be done now."""
    for ref in obj.spec.resources:
        found = seen.resources.get(ref)
        if found is None:
            message = f"{ref} does not exist in namespace {obj.namespace}"
            return Wait(ResourceSetReason.NOT_APPLIED, message, CHECK_SECONDS)
        if not _has_right_type(ref, found):
            message = f"Secret {ref.name} must have the type {RESOURCE_SET_SECRET}"
            return Wait(ResourceSetReason.WRONG_SECRET_TYPE, message, CHECK_SECONDS)
    for cluster in seen.clusters:
        if not cluster.reachable:
            message = f"the API of cluster {cluster.name} is not available yet"
            return Wait(ResourceSetReason.NOT_APPLIED, message, CHECK_SECONDS)
    return None


def _due(obj: ClusterResourceSet, seen: ObservedResourceSet) -> Iterable[DueResource]:
    once = obj.spec.strategy == "ApplyOnce"
    for cluster in (each for each in seen.clusters if each.reachable):
        records = _records(obj.name, cluster.binding)
        for ref, found in _usable(obj, seen):
            texts = _texts(ref, found)
            digest, record = _hash(texts), records.get((ref.kind, ref.name))
            if record is None or not record.applied or not (once or record.hash == digest):
                key = Key(obj.namespace, cluster.name)
                yield DueResource(key, ref, texts, digest, keep_existing=once)


def _usable(
    obj: ClusterResourceSet, seen: ObservedResourceSet
) -> Iterable[tuple[ClusterResourceRef, Json]]:
    for ref in obj.spec.resources:
        found = seen.resources.get(ref)
        if found is not None and _has_right_type(ref, found):
            yield ref, found


def _unowned(
    obj: ClusterResourceSet, seen: ObservedResourceSet
) -> Iterable[tuple[ClusterResourceRef, Json]]:
    """Resources without an owner reference; with it they are moved and deleted with the set."""
    for ref, found in _usable(obj, seen):
        owners = found["metadata"].get("ownerReferences") or ()
        if all(owner.get("uid") != obj.uid for owner in owners):
            yield ref, found


def _own(obj: ClusterResourceSet, ref: ClusterResourceRef, found: Json) -> Merge:
    meta = found["metadata"]
    owners = [*(meta.get("ownerReferences") or ()), owner_of(obj)]
    change = {"resourceVersion": meta.get("resourceVersion"), "ownerReferences": owners}
    return Merge(KINDS[ref.kind], ref.name, {"metadata": change}, obj.namespace, missing_ok=True)


def owner_of(obj: ClusterResourceSet) -> dict[str, Any]:
    """The owner reference to a set, which is not a controller reference."""
    reference: dict[str, Any] = msgspec.to_builtins(
        owner_reference(obj, controller=False, block=False)
    )
    return reference


def _has_right_type(ref: ClusterResourceRef, found: Json) -> bool:
    return ref.kind != "Secret" or found.get("type") == RESOURCE_SET_SECRET


def _texts(ref: ClusterResourceRef, found: Json) -> tuple[str, ...]:
    """The manifests in the order of their keys."""
    data = found.get("data") or {}
    values = [str(data[key]) for key in sorted(data)]
    if ref.kind == "Secret":
        return tuple(base64.b64decode(value).decode(errors="replace") for value in values)
    return tuple(values)


def _hash(texts: tuple[str, ...]) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(texts).encode()).hexdigest()}"


def _records(
    name: str, binding: ClusterResourceSetBinding | None
) -> Mapping[tuple[str, str], ResourceBinding]:
    entries = binding.spec.bindings if binding else ()
    own = (entry for entry in entries if entry.cluster_resource_set_name == name)
    return {(r.kind, r.name): r for entry in own for r in entry.resources}


def recorded(
    binding: ClusterResourceSetBinding | None,
    name: str,
    outcomes: Mapping[DueResource, bool],
    now: datetime,
) -> tuple[ResourceSetBinding, ...]:
    """The entries of a binding after resources of the set ``name`` were applied, or failed."""
    records = dict(_records(name, binding))
    for due, applied in outcomes.items():
        records[due.ref.kind, due.ref.name] = ResourceBinding(
            name=due.ref.name,
            kind=due.ref.kind,
            hash=due.hash if applied else "",
            last_applied_time=now,
            applied=applied,
        )
    own = ResourceSetBinding(cluster_resource_set_name=name, resources=tuple(records.values()))
    return (*_others(name, binding), own)


def _others(name: str, binding: ClusterResourceSetBinding | None) -> tuple[ResourceSetBinding, ...]:
    entries = binding.spec.bindings if binding else ()
    return tuple(entry for entry in entries if entry.cluster_resource_set_name != name)


def _forget(name: str, binding: ClusterResourceSetBinding) -> Write | None:
    """Remove the entry of a set from a binding, and a binding without entries."""
    others = _others(name, binding)
    if len(others) == len(binding.spec.bindings):
        return None
    if not others:
        return Delete(type(binding), binding.name, binding.namespace, binding.uid)
    change = {
        "metadata": {"resourceVersion": binding.metadata.resource_version},
        "spec": {"bindings": msgspec.to_builtins(others)},
    }
    return Merge(type(binding), binding.name, change, binding.namespace, missing_ok=True)


def describe(
    obj: ClusterResourceSet, seen: ObservedResourceSet, move: ResourceSetMove
) -> ClusterResourceSetStatus | None:
    """The status; without a matching cluster there is no condition, as in Cluster API."""
    if obj.deleting:
        return None
    observed = obj.metadata.generation
    if isinstance(move, Done) and not seen.clusters:
        return ClusterResourceSetStatus(observed_generation=observed)
    condition = Condition(
        type=RESOURCES_APPLIED,
        status="True" if isinstance(move, Done) else "False",
        reason=_reason(move),
        message=move.message if isinstance(move, Wait) else "",
        observed_generation=observed,
    )
    return ClusterResourceSetStatus(conditions=(condition,), observed_generation=observed)


def _reason(move: ResourceSetMove) -> str:
    if isinstance(move, Done):
        return ResourceSetReason.APPLIED
    return move.reason if isinstance(move, Wait) else ResourceSetReason.NOT_APPLIED
