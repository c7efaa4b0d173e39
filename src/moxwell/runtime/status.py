"""
Writes the status subresource; no other module does.

The input is the object as read and the status fields that the controller owns, computed from
scratch; the output is one merge patch, or nothing. A controller owns the fields of its status type
and the condition types it returns; other fields and conditions stay. The transition time of a
condition is set here and changes only with its status.

A write carries the resource version. After a conflict the live object is read and the same status
is merged into it.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import msgspec

from moxwell.api import json_merge
from moxwell.clock import Clock
from moxwell.errors import Conflict
from moxwell.kube.client import Kube
from moxwell.kube.errors import NotFound, WriteConflict
from moxwell.runtime.objects import as_tree, field_of, key_of, meta_of, version_of

Json = dict[str, Any]
TRIES = 4


def status_patch(have: Json, want: Any, *, owns: Collection[str] = (), now: datetime) -> Json:
    """The merge patch from the current status to the wanted one; empty if they are equal."""
    wanted = as_tree(want)
    target = {**have, **_blend(have, wanted, owns, now)}
    for name in _declared(want):
        if wanted.get(name) is None:
            target.pop(name, None)
    if "conditions" in have and not wanted.get("conditions"):
        target["conditions"] = merge_conditions(have["conditions"], (), owns, now)
    return json_merge.merge_diff(have, target)


def merge_conditions(
    have: Collection[Json], want: Collection[Json], owns: Collection[str], now: datetime
) -> list[Json]:
    """The wanted conditions replace those of their type; the others stay in place."""
    wanted = {c["type"]: c for c in want}
    out: list[Json] = []
    for old in have:
        new = wanted.pop(old["type"], None)
        if new is not None:
            out.append(_timed(old, new, now))
        elif old["type"] not in owns:
            out.append(old)
    return out + [_timed(None, wanted[type_], now) for type_ in sorted(wanted)]


def is_urgent(obj: Any, change: Json, fields: Collection[str] = ()) -> bool:
    """Whether a change of the status is the first, turns a condition or sets one of ``fields``."""
    have = as_tree(field_of(obj, "status") or {}).get("conditions") or ()
    before = {c["type"]: c["status"] for c in have}
    conditions = change.get("conditions") or ()
    turned = any(before.get(c["type"], c["status"]) != c["status"] for c in conditions)
    return not before or turned or any(name in change for name in fields)


def explicit(status: Any) -> dict[str, Any]:
    """A status as a tree in which unset fields of its type are explicit nulls."""
    if status is None:
        return {}
    names = getattr(status, "__struct_encode_fields__", ())
    return {name: None for name in names if name != "conditions"} | as_tree(status)


class StatusWriter:
    """Writes the status for one controller."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube, self._clock = kube, clock

    def change(self, obj: Any, want: Any, *, owns: Collection[str] = ()) -> Json:
        """The merge patch of the status; empty if nothing changed."""
        have = as_tree(field_of(obj, "status") or {})
        return status_patch(have, want, owns=owns, now=self._clock.now())

    async def write(
        self,
        kind: Any,
        obj: Any,
        want: Any,
        *,
        owns: Collection[str] = (),
        change: Json | None = None,
    ) -> Any:
        """
        Returns the object as written, ``obj`` itself if nothing changed, None if it is gone.

        ``change`` is the patch of ``obj`` if it is computed already.
        """
        uid = meta_of(obj).uid
        for _ in range(TRIES):
            if change is None:
                change = self.change(obj, want, owns=owns)
            if not change:
                return obj
            try:
                return await self._send(kind, obj, change)
            except NotFound:
                return None
            except WriteConflict:
                change = None
                obj = await self._kube.find(kind, key_of(obj).name, key_of(obj).namespace)
                if obj is None or meta_of(obj).uid != uid:
                    return None
        raise Conflict(f"{key_of(obj)} keeps changing; its status was not written")

    async def _send(self, kind: Any, obj: Any, change: Json) -> Any:
        key = key_of(obj)
        body = {"metadata": {"resourceVersion": version_of(obj)}, "status": change}
        place = "status" if _has_subresource(kind) else ""
        return await self._kube.merge(kind, key.name, body, key.namespace, subresource=place)


def _blend(have: Mapping[str, Any], want: Json, owns: Collection[str], now: datetime) -> Json:
    """``want`` with its conditions, at any depth, merged into the current ones."""
    out = dict(want)
    for name, value in want.items():
        old = have.get(name)
        if name == "conditions" and isinstance(value, list | tuple):
            out[name] = merge_conditions(old or (), value, owns, now)
        elif isinstance(value, dict):
            out[name] = _blend(old if isinstance(old, dict) else {}, value, owns, now)
    return {name: value for name, value in out.items() if value is not None}


def _timed(old: Json | None, new: Json, now: datetime) -> Json:
    since = old.get("lastTransitionTime") if old and old["status"] == new["status"] else None
    if not since:
        since = new.get("lastTransitionTime") or now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**new, "lastTransitionTime": since}


def _declared(want: Any) -> Collection[str]:
    """The fields that a status type owns; conditions are owned by type."""
    names = want.__struct_encode_fields__ if isinstance(want, msgspec.Struct) else tuple(want)
    return [name for name in names if name != "conditions"]


def _has_subresource(kind: Any) -> bool:
    declared = getattr(kind, "declared", None)
    return declared is None or bool(declared.status)
