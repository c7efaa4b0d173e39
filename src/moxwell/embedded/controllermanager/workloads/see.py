"""
What a workload has now, read live: a stale count would make a pod too many.

These clusters are small and the reads go to the same process; a cache would save nothing here.
"""

from typing import Any

from moxwell.api.kinds import Resource
from moxwell.embedded.controllermanager.resources import PODS
from moxwell.embedded.controllermanager.workloads import plan
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key

Json = dict[str, Any]


async def pods_of(kube: Kube, owner: Json) -> list[Json]:
    """The pods that ``owner`` controls."""
    return await owned(kube, owner, PODS)


async def owned(kube: Kube, owner: Json, resource: Resource) -> list[Json]:
    """The objects of a kind that ``owner`` controls."""
    page = await kube.list(resource, owner["metadata"]["namespace"])
    return [o for o in page.items if plan.is_owned(o, owner["metadata"]["uid"])]


def owner_key(kind: str) -> Any:
    """From an object to the key of its controller, if that is of ``kind``."""

    def keys(obj: Json) -> list[Key]:
        meta = obj["metadata"]
        owners = meta.get("ownerReferences") or ()
        return [
            Key(meta.get("namespace", ""), o["name"])
            for o in owners
            if o["kind"] == kind and o.get("controller")
        ]

    return keys
