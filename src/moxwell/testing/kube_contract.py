"""
The contract of a Kubernetes API as far as the runtime depends on it.

``check(handler)`` runs against any request handler: the fake of :mod:`moxwell.testing.kube`, the
embedded API server, kube-apiserver. Each ``check_*`` is one guarantee and can run alone in an
existing namespace after ``install``.
"""

import asyncio
from contextlib import aclosing
from datetime import timedelta
from typing import Any

from moxwell.api import crd
from moxwell.api.kinds import Resource
from moxwell.api.requests import Handler
from moxwell.kube.client import Kube
from moxwell.kube.codec import Bookmark, WatchEvent
from moxwell.kube.errors import AlreadyExists, NotFound, WriteConflict
from moxwell.testing.sample_kind import THINGS, Thing, thing

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False)
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
NS = "contract"


async def install(kube: Kube, namespace: str = NS) -> None:
    """Create the CRD of the sample kind and the namespace; repeatable."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    for tree, at in [(space, NAMESPACES), *((tree, CRDS) for tree in crd.crds((Thing,)))]:
        try:
            await kube.create(tree, at)
        except AlreadyExists:
            continue
    for _ in range(2400):  # kube-apiserver needs a moment to serve a new kind
        try:
            await kube.list(THINGS, namespace)
            return
        except NotFound:
            await asyncio.sleep(0.1)
    raise AssertionError("the kind of things was never served")


async def clear(kube: Kube, namespace: str = NS) -> None:
    """Delete every object of the sample kind, with or without finalizer."""
    await kube.delete_collection(THINGS, namespace)
    for held in (await kube.list(THINGS, namespace)).items:
        free = {"metadata": {"finalizers": None}}
        await kube.merge(THINGS, held["metadata"]["name"], free, namespace)


async def check(handler: Handler) -> None:
    """Check all guarantees in sequence."""
    kube = Kube(handler)
    await install(kube)
    for promise in (
        check_versions,
        check_status_apart,
        check_patches,
        check_finalizers,
        check_pages,
        check_watch,
        check_initial_events,
    ):
        await promise(kube)
        await kube.delete_collection(THINGS, NS)


async def check_versions(kube: Kube) -> None:
    """A write carries the resource version; a name exists once."""
    one = await kube.create(_thing("one", size=1), THINGS)
    assert one["metadata"]["generation"] == 1
    await _refused(kube.create(_thing("one"), THINGS), AlreadyExists)
    two = await kube.replace({**one, "spec": {"size": 2}}, THINGS)
    assert two["metadata"]["generation"] == 2
    await _refused(kube.replace({**one, "spec": {"size": 3}}, THINGS), WriteConflict)
    same = await kube.replace(two, THINGS)
    assert same["metadata"]["resourceVersion"] == two["metadata"]["resourceVersion"]
    await _refused(kube.delete(THINGS, "one", NS, uid="other"), WriteConflict)
    await kube.delete(THINGS, "one", NS, uid=one["metadata"]["uid"])
    await _refused(kube.get(THINGS, "one", NS), NotFound)


async def check_status_apart(kube: Kube) -> None:
    """Status is written through its subresource only and does not change the generation."""
    one = await kube.create({**_thing("one", size=1), "status": {"ready": True}}, THINGS)
    assert "status" not in one
    both = {"spec": {"size": 9}, "status": {"ready": True}}
    one = await kube.merge_status(THINGS, "one", both, NS)
    assert (one["spec"]["size"], one["status"]["ready"]) == (1, True)
    assert one["metadata"]["generation"] == 1
    one = await kube.merge(THINGS, "one", {"spec": {"size": 2}, "status": {"ready": False}}, NS)
    assert (one["spec"]["size"], one["status"]["ready"]) == (2, True)


async def check_patches(kube: Kube) -> None:
    """A merge patch with a resource version is conditional; a JSON patch tests."""
    one = await kube.create(_thing("one", size=1), THINGS)
    stale = {"metadata": {"resourceVersion": one["metadata"]["resourceVersion"]}}
    labels = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    await kube.merge(THINGS, "one", labels, NS)
    await _refused(kube.merge(THINGS, "one", stale | {"spec": {"size": 2}}, NS), WriteConflict)
    gone = await kube.merge(THINGS, "one", {"metadata": {"labels": {"a": None}}}, NS)
    assert gone["metadata"]["labels"] == {"b": "2"}
    put = [
        {"op": "test", "path": "/spec/size", "value": 1},
        {"op": "replace", "path": "/spec/size", "value": 4},
    ]
    assert (await kube.json_patch(THINGS, "one", put, NS))["spec"]["size"] == 4


async def check_finalizers(kube: Kube) -> None:
    """A finalizer delays the deletion; removing the last one completes it."""
    meta = {"finalizers": ["test.moxwell.dev/a", "test.moxwell.dev/b"]}
    await kube.create(_thing("one", meta=meta), THINGS)
    await kube.delete(THINGS, "one", NS)
    held = await kube.get(THINGS, "one", NS)
    assert held["metadata"]["deletionTimestamp"]
    left = {"metadata": {"finalizers": ["test.moxwell.dev/b"]}}
    await kube.merge(THINGS, "one", left, NS)
    await kube.get(THINGS, "one", NS)
    await kube.merge(THINGS, "one", {"metadata": {"finalizers": None}}, NS)
    await _refused(kube.get(THINGS, "one", NS), NotFound)


async def check_pages(kube: Kube) -> None:
    """The pages of a list have one resource version and are ordered by name."""
    for number in range(5):
        await kube.create(_thing(f"t{number}"), THINGS)
    versions: set[str] = set()
    names: list[str] = []
    async for page in kube.pages(THINGS, NS, limit=2):
        if not names:
            await kube.create(_thing("t9"), THINGS)
        versions.add(page.resource_version)
        names += [item["metadata"]["name"] for item in page.items]
    assert names == ["t0", "t1", "t2", "t3", "t4"]
    assert len(versions) == 1


async def check_watch(kube: Kube) -> None:
    """A watch from a version sends every later change of its namespace in order."""
    start = (await kube.list(THINGS, NS)).resource_version
    await kube.create(_thing("one", size=1), THINGS)
    await kube.merge(THINGS, "one", {"spec": {"size": 2}}, NS)
    await kube.delete(THINGS, "one", NS)
    received: list[tuple[str, int]] = []
    watch = kube.watch(THINGS, NS, resource_version=start, lasting=timedelta(seconds=100))
    async with aclosing(aiter(watch)) as events:
        async for event in events:
            if isinstance(event, WatchEvent):
                received.append((event.type, event.object["spec"]["size"]))
            if len(received) == 3:
                break
    assert received == [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 2)]


async def check_initial_events(kube: Kube) -> None:
    """A streaming list: every object as ADDED, then the bookmark that ends it."""
    for number in range(3):
        await kube.create(_thing(f"t{number}"), THINGS)
    names: list[str] = []
    watch = kube.watch(THINGS, NS, initial=True, lasting=timedelta(seconds=100))
    async with aclosing(aiter(watch)) as events:
        async for event in events:
            if isinstance(event, WatchEvent):
                names.append(event.object["metadata"]["name"])
            elif isinstance(event, Bookmark) and event.initial_end:
                break
    assert sorted(names) == ["t0", "t1", "t2"]


def _thing(name: str, **more: Any) -> dict[str, Any]:
    return thing(name, namespace=NS, **more)


async def _refused(request: Any, error: type[Exception]) -> None:
    try:
        await request
    except error:
        return
    raise AssertionError(f"should have been refused with {error.__name__}")
