"""
Cluster API references: objects that another object names by group, kind and name.

Such a reference has no version, so ``ReferenceResolver`` knows which version of each kind this API
serves. The objects belong to any provider and are therefore read as dicts. Writes are returned as
values; nothing here writes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moxwell.api.capi.shared import CLUSTER_NAME, ContractRef
from moxwell.api.kinds import Object, Resource, owner_reference
from moxwell.errors import Missing
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.objects import as_tree
from moxwell.runtime.unstructured import Unstructured
from moxwell.runtime.writes import Create, Merge

Json = dict[str, Any]


class KindNotServed(Missing):
    """A reference names a kind that this API does not serve."""

    reason = "KindNotServed"


class ReferenceResolver:
    """
    Reads referenced objects.

    ``caches`` are caches of some of the kinds by group and kind; ``exists`` looks there first,
    ``find`` reads live.
    """

    def __init__(
        self,
        resources: Iterable[Resource],
        caches: Mapping[tuple[str, str], Any] | None = None,
    ) -> None:
        self._resources = {(r.group, r.kind): r for r in resources}
        self._caches = caches or {}

    def resource(self, ref: ContractRef) -> Resource:
        """The served resource of a reference; KindNotServed if there is none."""
        found = self._resources.get((ref.api_group, ref.kind))
        if found is None:
            raise KindNotServed(f"{ref.kind}.{ref.api_group} is not served by this API")
        return found

    async def find(
        self, reader: Reader, ref: ContractRef | None, namespace: str
    ) -> Unstructured | None:
        """The object; None without a reference or if the object does not exist."""
        if ref is None:
            return None
        resource = self.resource(ref)
        obj = await reader.find(resource, ref.name, namespace)
        return None if obj is None else Unstructured(resource, obj)

    def find_cached(self, ref: ContractRef | None, namespace: str) -> Unstructured | None:
        """The object as a cache has it; None if no cache has it."""
        cache = self._caches.get((ref.api_group, ref.kind)) if ref is not None else None
        obj = (
            cache.find(Key(namespace, ref.name)) if cache is not None and ref is not None else None
        )
        if obj is None or ref is None:
            return None
        return Unstructured(self.resource(ref), as_tree(obj))

    async def exists(self, reader: Reader, ref: ContractRef, namespace: str) -> bool:
        """Whether the object exists; reads live only if no cache has it."""
        cache = self._caches.get((ref.api_group, ref.kind))
        if cache is not None and cache.find(Key(namespace, ref.name)) is not None:
            return True
        return await self.find(reader, ref, namespace) is not None


def adoption(found: Unstructured | None, owner: Object, cluster: str) -> Merge | None:
    """The write that makes ``owner`` the controller of an object and labels it with its cluster."""
    if found is None:
        return None
    meta, reference = found.obj["metadata"], owner_reference(owner)
    owners = meta.get("ownerReferences") or []
    owned = any(o["uid"] == reference.uid and o.get("controller") for o in owners)
    if owned and (meta.get("labels") or {}).get(CLUSTER_NAME) == cluster:
        return None
    kept = [o for o in owners if o["uid"] != reference.uid]
    change = {
        "metadata": {
            "resourceVersion": meta["resourceVersion"],
            "labels": {CLUSTER_NAME: cluster},
            "ownerReferences": [*kept, msgspec.to_builtins(reference)],
        }
    }
    return Merge(found.resource, found.name, change, found.namespace)


def instance_ref(template: ContractRef | None, name: str) -> ContractRef | None:
    """The reference to the object that is created from a template: ``XTemplate`` gives ``X``."""
    if template is None:
        return None
    kind = template.kind.removesuffix("Template")
    return ContractRef(api_group=template.api_group, kind=kind, name=name)


def from_template(ref: ContractRef, template: Json, resource: Resource, meta: Json) -> Create:
    """The write that creates an object of ``resource`` with ``meta`` from a template."""
    inner = template["spec"]["template"]
    given = inner.get("metadata") or {}
    cloned_from = {
        "cluster.x-k8s.io/cloned-from-name": ref.name,
        "cluster.x-k8s.io/cloned-from-groupkind": f"{ref.kind}.{ref.api_group}",
    }
    head = {
        **meta,
        "labels": {**(given.get("labels") or {}), **meta["labels"]},
        "annotations": {**(given.get("annotations") or {}), **cloned_from},
    }
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": head}
    return Create(body | {"spec": inner.get("spec") or {}}, resource)


def is_provisioned(obj: Json | None) -> bool:
    """Whether a provider's object reports provisioned, in the v1beta2 or the v1beta1 contract."""
    status = (obj or {}).get("status") or {}
    return bool((status.get("initialization") or {}).get("provisioned") or status.get("ready"))


def condition(obj: Json | None, kind: str) -> Json | None:
    """One condition of a provider's object."""
    found = ((obj or {}).get("status") or {}).get("conditions") or ()
    return next((c for c in found if c.get("type") == kind), None)
