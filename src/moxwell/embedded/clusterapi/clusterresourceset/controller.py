"""
The ClusterResourceSet controller of Cluster API: applies manifests to clusters.

ConfigMaps and Secrets are read in each pass and not watched: a watch would keep all Secrets of all
namespaces in memory, bootstrap data of every machine included.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from moxwell import yaml_documents
from moxwell.api import selectors
from moxwell.api.capi.addons import (
    ClusterResourceSet,
    ClusterResourceSetBinding,
    ClusterResourceSetStatus,
)
from moxwell.api.capi.core import Cluster
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.clusterresourceset.plan import (
    KINDS,
    ApplyResources,
    DueResource,
    MatchedCluster,
    ObservedResourceSet,
    ResourceSetMove,
    describe,
    next_move,
    owner_of,
    recorded,
)
from moxwell.errors import Invalid, MoxwellError, Retryable
from moxwell.kube.client import Kube
from moxwell.kube.manifests import apply_all
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Writes

Json = dict[str, Any]
MANAGER = "moxwell-clusterresourceset"
MAX_VALUES = 200_000  # the manifests of a CNI with its CRDs have some ten thousand


class ResourcesNotApplied(Retryable):
    """A resource could not be applied to a cluster."""

    reason = "NotApplied"


class ClusterResourceSetController(
    Reconciler[ClusterResourceSet, ObservedResourceSet, ResourceSetMove, ClusterResourceSetStatus]
):
    """Reconciles ClusterResourceSets."""

    kind = ClusterResourceSet
    finalizer = "addons.cluster.x-k8s.io"

    def __init__(self, kube: Kube, tenants: TenantClients, clock: Clock, sets: Cache[Any]) -> None:
        self._kube, self._tenants, self._clock, self._sets = kube, tenants, clock, sets
        self.watches: Sequence[Watch] = (Watch(Cluster, self._of_cluster, _may_match),)

    def _of_cluster(self, cluster: Cluster) -> Iterable[Key]:
        for each in self._sets.list(cluster.namespace):
            if _selects(each, cluster):
                yield Key(each.namespace, each.name)

    async def see(self, obj: ClusterResourceSet, reader: Reader) -> ObservedResourceSet:
        if obj.deleting:
            bindings = (await reader.list(ClusterResourceSetBinding, obj.namespace)).items
            return ObservedResourceSet(bindings=tuple(bindings))
        clusters = (await reader.list(Cluster, obj.namespace)).items
        selected = [c for c in clusters if not c.deleting and _selects(obj, c)]
        found = {
            ref: await reader.find(KINDS[ref.kind], ref.name, obj.namespace)
            for ref in obj.spec.resources
        }
        matched = [await self._matched(cluster, reader) for cluster in selected]
        return ObservedResourceSet(tuple(matched), found)

    async def _matched(self, cluster: Cluster, reader: Reader) -> MatchedCluster:
        key = Key(cluster.namespace, cluster.name)
        initialized = cluster.status.initialization.control_plane_initialized
        ready = initialized or cluster.spec.control_plane_ref is None  # managed elsewhere
        reachable = bool(ready) and await self._tenants.find(key) is not None
        binding = await reader.find(ClusterResourceSetBinding, key.name, key.namespace)
        return MatchedCluster(cluster.name, reachable, binding)

    def plan(self, obj: ClusterResourceSet, seen: ObservedResourceSet) -> ResourceSetMove:
        return next_move(obj, seen)

    async def act(self, move: ResourceSetMove) -> None:
        if isinstance(move, Writes):
            await move.perform(self._kube)
        elif isinstance(move, ApplyResources):
            await self._apply(move)

    async def _apply(self, move: ApplyResources) -> None:
        """Each cluster by itself, so that one that fails holds back no other."""
        failed: list[str] = []
        for key in dict.fromkeys(due.cluster for due in move.due):
            outcomes: dict[DueResource, bool] = {}
            for due in (each for each in move.due if each.cluster == key):
                try:
                    await self._apply_one(due)
                    outcomes[due] = True
                except MoxwellError as error:
                    outcomes[due] = False
                    failed.append(f"{due}: {error}")
            await self._record(move.owner, key, outcomes)
        if failed:
            raise ResourcesNotApplied("; ".join(failed))

    async def _apply_one(self, due: DueResource) -> None:
        tenant = await self._tenants.get(due.cluster)
        objects = await asyncio.to_thread(manifests_in, due)  # of some ten thousand lines
        await apply_all(tenant, objects, MANAGER, keep_existing=due.keep_existing)

    async def _record(
        self, owner: ClusterResourceSet, key: Key, outcomes: Mapping[DueResource, bool]
    ) -> None:
        """Write what was applied into the binding of the cluster, which other sets write too."""
        binding = await self._kube.find(ClusterResourceSetBinding, key.name, key.namespace)
        entries = recorded(binding, owner.name, outcomes, self._clock.now())
        spec = {"bindings": msgspec.to_builtins(entries), "clusterName": key.name}
        reference = owner_of(owner)
        if binding is None:
            meta = {"name": key.name, "namespace": key.namespace, "ownerReferences": [reference]}
            head = {"apiVersion": ClusterResourceSetBinding.resource.api_version}
            body = head | {"kind": "ClusterResourceSetBinding", "metadata": meta, "spec": spec}
            await self._kube.create(body, ClusterResourceSetBinding.resource)
            return
        present = [msgspec.to_builtins(each) for each in binding.metadata.owner_references]
        missing = [reference] * all(each["uid"] != owner.uid for each in present)
        change = {
            "resourceVersion": binding.metadata.resource_version,
            "ownerReferences": [*present, *missing],
        }
        body = {"metadata": change, "spec": spec}
        await self._kube.merge(ClusterResourceSetBinding, key.name, body, key.namespace)

    def describe(
        self, obj: ClusterResourceSet, seen: ObservedResourceSet, move: ResourceSetMove
    ) -> ClusterResourceSetStatus | None:
        return describe(obj, seen, move)


def manifests_in(due: DueResource) -> list[Json]:
    """The objects of a resource; those of a List one by one."""
    found: list[Any] = []
    for text in due.texts:
        try:
            found += yaml_documents.load_all(text, MAX_VALUES)
        except yaml.YAMLError as error:  # without the cause: its text may be of a Secret
            raise Invalid(f"{due.ref} is not YAML{yaml_documents.line_of(error)}") from None
    objects = [obj for each in found if each is not None for obj in _items(each)]
    for obj in objects:
        if not _is_object(obj):
            raise Invalid(f"{due.ref} has a document without apiVersion, kind and metadata.name")
    return objects


def _items(document: Any) -> list[Any]:
    if isinstance(document, dict) and document.get("kind") == "List":
        items = document.get("items")
        return items if isinstance(items, list) else [document]
    return [document]


def _is_object(obj: Any) -> bool:
    meta = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(meta, dict):
        return False
    texts = obj.get("apiVersion"), obj.get("kind"), meta.get("name")
    return all(isinstance(text, str) and text for text in texts)


def _selects(obj: ClusterResourceSet, cluster: Cluster) -> bool:
    """An empty selector matches no cluster, as in Cluster API."""
    selector = selectors.from_object(obj.spec.cluster_selector)
    return bool(selector.requirements) and selector.matches(cluster.metadata.labels)


def _may_match(old: Cluster | None, new: Cluster | None) -> bool:
    """Whether the labels of a cluster or the state of its control plane changed."""
    return _facts(old) != _facts(new)


def _facts(cluster: Cluster | None) -> object:
    if cluster is None:
        return None
    initialized = cluster.status.initialization.control_plane_initialized
    return cluster.metadata.labels, cluster.deleting, initialized
