"""Applies the objects of manifests, whatever kinds the API serves."""

from collections.abc import Iterable
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.errors import Unreachable
from moxwell.kube.client import Kube

Json = dict[str, Any]
FIRST = {"Namespace": 0, "CustomResourceDefinition": 1}


class KindNotInstalled(Unreachable):
    """The API does not serve a kind of a manifest yet."""

    reason = "KindNotInstalled"


async def apply_all(kube: Kube, objects: Iterable[Json], manager: str) -> None:
    """Apply namespaces and CRDs first, the others in their order; repeating it is harmless."""
    served = await _served(kube)
    for obj in sorted(objects, key=lambda o: FIRST.get(o["kind"], 2)):
        key = obj["apiVersion"], obj["kind"]
        if key not in served:
            served = await _served(kube)  # a CRD before may have added it
        if key not in served:
            raise KindNotInstalled(f"{obj['kind']} of {obj['apiVersion']} is not served yet")
        await kube.apply(_placed(obj, served[key]), served[key], manager=manager, force=True)


async def _served(kube: Kube) -> dict[tuple[str, str], Resource]:
    found = await kube.discover()
    return {(s.resource.api_version, s.resource.kind): s.resource for s in found}


def _placed(obj: Json, resource: Resource) -> Json:
    meta = obj["metadata"]
    if not resource.namespaced or meta.get("namespace"):
        return obj
    return {**obj, "metadata": {**meta, "namespace": "default"}}
