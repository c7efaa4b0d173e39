"""
Adds and removes finalizers; no other module does.

The finalizer is added before the first effect and removed after the last. Without it an object
could disappear between two passes and leave resources behind.
"""

from typing import Any

from moxwell.errors import Conflict
from moxwell.kube.client import Kube
from moxwell.kube.errors import NotFound, WriteConflict
from moxwell.runtime.objects import key_of, meta_of, version_of

TRIES = 4


def has(obj: Any, finalizer: str) -> bool:
    """Whether the object has the finalizer."""
    return finalizer in meta_of(obj).finalizers


async def add(kube: Kube, kind: Any, obj: Any, finalizer: str) -> Any:
    """Add the finalizer; raises Conflict if the object changed since it was read."""
    return await _write(kube, kind, obj, [*meta_of(obj).finalizers, finalizer])


async def remove(kube: Kube, kind: Any, obj: Any, finalizer: str) -> Any:
    """Remove the finalizer; returns the object, or None if it is gone."""
    key, uid = key_of(obj), meta_of(obj).uid
    for _ in range(TRIES):
        if obj is None or meta_of(obj).uid != uid or not has(obj, finalizer):
            return obj
        rest = [name for name in meta_of(obj).finalizers if name != finalizer]
        try:
            return await _write(kube, kind, obj, rest)
        except NotFound:
            return None
        except WriteConflict:
            obj = await kube.find(kind, key.name, key.namespace)
    raise Conflict(f"{key} keeps changing; its finalizer {finalizer} was not removed")


async def _write(kube: Kube, kind: Any, obj: Any, finalizers: list[str]) -> Any:
    key = key_of(obj)
    meta = {"resourceVersion": version_of(obj), "finalizers": finalizers or None}
    return await kube.merge(kind, key.name, {"metadata": meta}, key.namespace)
