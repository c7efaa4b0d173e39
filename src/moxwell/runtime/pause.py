"""
Paused objects by the rules of Cluster API: no pass runs for them, not even for a deletion.

An object is paused by its own annotation, whatever its value, or by ``spec.paused`` of its Cluster
(by label or owner reference). The ``Paused`` condition reports it.
"""

from collections.abc import Iterable
from typing import Any

from moxwell.api.conditions import Condition, ConditionStatus, LegacyCondition
from moxwell.api.kinds import Resource
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.objects import CLUSTER_LABEL, PAUSED_ANNOTATION, field_of, key_of, meta_of
from moxwell.runtime.watches import Watch

CLUSTER_GROUP = "cluster.x-k8s.io"
CLUSTERS = Resource(CLUSTER_GROUP, "v1beta1", "clusters", "Cluster")
INDEX = "runtime.cluster"


def find_pause(obj: Any, clusters: Cache[Any] | None) -> str:
    """Why the object is paused; empty if it is not."""
    meta = meta_of(obj)
    if PAUSED_ANNOTATION in meta.annotations:
        return f"the object has the {PAUSED_ANNOTATION} annotation"
    key = cluster_of(obj)
    cluster = clusters.find(key) if clusters is not None and key is not None else None
    if cluster is not None and field_of(cluster, "spec.paused"):
        return "Cluster spec.paused is set to true"
    return ""


def cluster_of(obj: Any) -> Key | None:
    """The Cluster of an object."""
    meta = meta_of(obj)
    if CLUSTER_LABEL in meta.labels:
        return Key(meta.namespace, meta.labels[CLUSTER_LABEL])
    for owner in meta.owner_references:
        if owner.kind == "Cluster" and owner.group == CLUSTER_GROUP:
            return Key(meta.namespace, owner.name)
    return None


def by_cluster(obj: Any) -> Iterable[str]:
    """Index function: the key of the Cluster, by label or owner reference."""
    key = cluster_of(obj)
    return () if key is None else (str(key),)


def watch_clusters(kind: Any, cache: Cache[Any]) -> Watch:
    """A watch that enqueues the objects of a Cluster whose ``paused`` changed."""
    cache.add_index(INDEX, by_cluster)
    return Watch(
        kind,
        lambda cluster: [key_of(obj) for obj in cache.by(INDEX, str(key_of(cluster)))],
        lambda old, new: _paused(old) != _paused(new),
    )


def pause_condition(
    form: type[Condition] | type[LegacyCondition], why: str, generation: int
) -> Condition | LegacyCondition:
    """The ``Paused`` condition in the kind's condition class."""
    truth: ConditionStatus = "True" if why else "False"
    reason = "Paused" if why else "NotPaused"
    if form is LegacyCondition:
        return LegacyCondition(type="Paused", status=truth, reason=reason, message=why)
    return Condition(
        type="Paused", status=truth, reason=reason, message=why, observed_generation=generation
    )


def _paused(cluster: Any) -> bool:
    return cluster is not None and bool(field_of(cluster, "spec.paused"))
