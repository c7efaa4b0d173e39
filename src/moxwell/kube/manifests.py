"""
Applies the objects of manifests, of any kind, and deletes those that they no longer name.

A ConfigMap lists what was applied, as Flux and kustomize do. It is extended before anything is
applied, so that after a crash nothing that was created is forgotten.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from moxwell.api.kinds import Resource
from moxwell.errors import Unreachable
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists

Json = dict[str, Any]
FIRST = {"Namespace": 0, "CustomResourceDefinition": 1}
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
OBJECTS = "objects.json"
LABEL = "moxwell.dev/inventory"


class ObjectRef(NamedTuple):
    """An applied object, whatever version it was applied with."""

    group: str
    kind: str
    namespace: str
    name: str


class KindNotInstalled(Unreachable):
    """The API does not serve a kind of a manifest yet."""

    reason = "KindNotInstalled"


async def apply_all(
    kube: Kube, objects: Iterable[Json], manager: str, *, keep_existing: bool = False
) -> None:
    """
    Apply namespaces and CRDs first, the others in their order; repeating it is harmless.

    With ``keep_existing`` objects are created, and one that exists stays as it is.
    """
    served = await _served(kube)
    for obj in sorted(objects, key=lambda o: FIRST.get(o["kind"], 2)):
        key = obj["apiVersion"], obj["kind"]
        if key not in served:
            served = await _served(kube)  # a CRD before may have added it
        if key not in served:
            raise KindNotInstalled(f"{obj['kind']} of {obj['apiVersion']} is not served yet")
        placed = _placed(obj, served[key])
        if keep_existing:
            await _create(kube, placed, served[key])
        else:
            await kube.apply(placed, served[key], manager=manager, force=True)


async def _create(kube: Kube, obj: Json, resource: Resource) -> None:
    try:
        await kube.create(obj, resource)
    except AlreadyExists:
        return


async def apply_listed(
    kube: Kube, objects: Iterable[Json], manager: str, inventory: tuple[str, str]
) -> None:
    """
    Apply objects and delete what an earlier call applied and this one does not name.

    ``inventory`` is the namespace and the name of the ConfigMap with the list. Each object gets a
    label; one without it is somebody else's by now and is left alone.
    """
    label = {LABEL: inventory[1]}
    wanted, before = [_labelled(obj, label) for obj in objects], await _listed(kube, inventory)
    if not wanted and not before:
        return
    refs = {_ref(obj) for obj in wanted}
    await _write_list(kube, inventory, manager, {*before, *refs})
    await apply_all(kube, wanted, manager)
    served = {(r.group, r.kind): r for r in (await _served(kube)).values()}
    stale = sorted(before - refs, key=lambda ref: -FIRST.get(ref.kind, 2))
    for ref in stale:
        await _delete(kube, served, ref, label)
    await _write_list(kube, inventory, manager, refs)


def _labelled(obj: Json, label: Mapping[str, str]) -> Json:
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **label}}}


def _ref(obj: Json) -> ObjectRef:
    group, _, _ = obj["apiVersion"].rpartition("/")
    meta = obj["metadata"]
    return ObjectRef(group, obj["kind"], meta.get("namespace") or "", meta["name"])


async def _listed(kube: Kube, inventory: tuple[str, str]) -> set[ObjectRef]:
    namespace, name = inventory
    found = await kube.find(CONFIG_MAPS, name, namespace)
    rows = json.loads((found.get("data") or {}).get(OBJECTS) or "[]") if found else []
    return {ObjectRef(*row) for row in rows}


async def _write_list(
    kube: Kube, inventory: tuple[str, str], manager: str, refs: set[ObjectRef]
) -> None:
    namespace, name = inventory
    meta = {"name": name, "namespace": namespace}
    data = {OBJECTS: json.dumps(sorted(refs))}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    await kube.apply(body, CONFIG_MAPS, manager=manager, force=True)


async def _delete(
    kube: Kube,
    served: Mapping[tuple[str, str], Resource],
    ref: ObjectRef,
    label: Mapping[str, str],
) -> None:
    resource = served.get((ref.group, ref.kind))
    if resource is None:  # with its definition all objects of a kind are gone
        return
    namespace = (ref.namespace or "default") if resource.namespaced else ""
    found = await kube.find(resource, ref.name, namespace)
    labels = (found or {}).get("metadata", {}).get("labels") or {}
    if found is not None and label.items() <= labels.items():
        await kube.delete(resource, ref.name, namespace, uid=found["metadata"]["uid"])


async def _served(kube: Kube) -> dict[tuple[str, str], Resource]:
    found = await kube.discover()
    return {(s.resource.api_version, s.resource.kind): s.resource for s in found}


def _placed(obj: Json, resource: Resource) -> Json:
    """The object in a namespace if its kind has one, and only then."""
    meta = {key: value for key, value in obj["metadata"].items() if key != "namespace"}
    space = obj["metadata"].get("namespace") or "default"
    return {**obj, "metadata": meta | ({"namespace": space} if resource.namespaced else {})}
