"""
Objects that others point to by group, kind and name.

A Cluster API reference names no version. In lab and standalone the embedded API serves the kinds
listed by ``app``; :class:`References` finds the one that is meant and reads, owns and deletes it as
a dict, since it may be any provider's.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from moxwell.api.capi.shared import CLUSTER_NAME, ContractRef
from moxwell.api.kinds import Object, Resource, own
from moxwell.errors import Missing
from moxwell.kube.client import Kube

Json = dict[str, Any]


class UnknownKind(Missing):
    """A reference to a kind that this API does not serve."""

    reason = "KindNotServed"


class References:
    """Finds what references mean."""

    def __init__(self, kube: Kube, resources: Iterable[Resource]) -> None:
        self._kube = kube
        self._resources = {(r.group, r.kind): r for r in resources}

    def resource(self, ref: ContractRef) -> Resource:
        """Where objects of that kind live."""
        found = self._resources.get((ref.api_group, ref.kind))
        if found is None:
            raise UnknownKind(f"{ref.kind}.{ref.api_group} is not served here")
        return found

    async def find(self, ref: ContractRef | None, namespace: str) -> Json | None:
        """The object, or None where there is no reference or nothing behind it."""
        if ref is None:
            return None
        return await self._kube.find(self.resource(ref), ref.name, namespace)

    async def adopt(self, obj: Json, ref: ContractRef, owner: Object, cluster: str) -> Json:
        """Make ``owner`` the controller of the object and name its cluster; harmless twice."""
        meta = obj["metadata"]
        mine = own(owner)
        owners = meta.get("ownerReferences") or []
        owned = any(o["uid"] == mine.uid and o.get("controller") for o in owners)
        if owned and (meta.get("labels") or {}).get(CLUSTER_NAME) == cluster:
            return obj
        kept = [o for o in owners if o["uid"] != mine.uid]
        change = {
            "metadata": {
                "resourceVersion": meta["resourceVersion"],
                "labels": {CLUSTER_NAME: cluster},
                "ownerReferences": [*kept, _as_json(mine)],
            }
        }
        resource = self.resource(ref)
        return await self._kube.merge(resource, ref.name, change, meta.get("namespace", ""))

    async def delete(self, ref: ContractRef | None, namespace: str) -> bool:
        """Ask for its end; True when nothing of it is left."""
        found = await self.find(ref, namespace)
        if ref is None or found is None:
            return True
        if "deletionTimestamp" not in found["metadata"]:
            uid = found["metadata"]["uid"]
            await self._kube.delete(self.resource(ref), ref.name, namespace, uid=uid)
        return False

    async def instantiate(self, ref: ContractRef, namespace: str, meta: Json) -> ContractRef:
        """Make an object from a template (``XTemplate`` gives an ``X``) under ``meta``."""
        template = await self._kube.get(self.resource(ref), ref.name, namespace)
        made = ContractRef(
            api_group=ref.api_group, kind=ref.kind.removesuffix("Template"), name=meta["name"]
        )
        resource = self.resource(made)
        inner = template["spec"]["template"]
        given = inner.get("metadata") or {}
        head = {
            **meta,
            "labels": {**(given.get("labels") or {}), **meta["labels"]},
            "annotations": {**(given.get("annotations") or {}), **cloned_from(ref)},
        }
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": head}
        await self._kube.create(body | {"spec": inner.get("spec") or {}}, resource)
        return made


def cloned_from(ref: ContractRef) -> dict[str, str]:
    """The annotations that tell which template an object was made from."""
    return {
        "cluster.x-k8s.io/cloned-from-name": ref.name,
        "cluster.x-k8s.io/cloned-from-groupkind": f"{ref.kind}.{ref.api_group}",
    }


def _as_json(reference: Any) -> Json:
    found: Json = msgspec.to_builtins(reference)
    return found


def is_provisioned(obj: Json | None) -> bool:
    """Whether a provider's object says so, in either contract's words."""
    status = (obj or {}).get("status") or {}
    return bool((status.get("initialization") or {}).get("provisioned") or status.get("ready"))


def condition(obj: Json | None, kind: str) -> Json | None:
    """One condition of a provider's object, where it has conditions of the newer form."""
    found = ((obj or {}).get("status") or {}).get("conditions") or ()
    return next((c for c in found if c.get("type") == kind), None)
