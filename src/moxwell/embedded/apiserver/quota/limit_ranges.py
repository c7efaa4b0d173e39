"""
Limit ranges: what a container gets that says nothing, and what no container, Pod or claim may ask.

Defaults are given before anything else looks at a Pod; the bounds are checked when it is whole. The
sentences are those of a genuine apiserver.
"""

from collections.abc import Iterator
from typing import Any

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.core import Core
from moxwell.embedded.apiserver.quota import resource_list, usage
from moxwell.embedded.apiserver.quota.resource_list import Amount, Amounts
from moxwell.embedded.apiserver.request_info import Call

Object = dict[str, Any]
STORE = "limitranges"
NOTE = "kubernetes.io/limit-ranger"


class Limits:
    """Applies the limit ranges of a namespace."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def default(self, call: Call, obj: Object) -> None:
        """Give a new Pod's containers what the namespace gives those who ask for nothing."""
        if call.face.store != "pods" or call.sub:
            return
        for item in self._items(call.namespace, "Container"):
            give(obj, item)

    def check(self, call: Call, new: Object, old: Object | None) -> None:
        """Refuse what lies beyond the bounds."""
        store = call.face.store
        if call.sub or store not in ("pods", "persistentvolumeclaims"):
            return
        if store == "pods" and old is not None:
            return
        found = [w for item in self._items(call.namespace) for w in wrongs(item, store, new)]
        said = list(dict.fromkeys(found))
        if said:
            why = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
            name = new["metadata"].get("name", "")
            raise status_errors.forbidden(call.face.plural, call.face.group, name, why)

    def _items(self, namespace: str, kind: str = "") -> Iterator[Object]:
        for record in self._core.state.scan_staged(STORE, f"{namespace}/"):
            for item in (record.object().get("spec") or {}).get("limits") or ():
                if not kind or item.get("type") == kind:
                    yield item


# ---- defaults


def give(pod: Object, item: Object) -> None:
    spec = pod.get("spec") or {}
    told: list[str] = []
    for part, word in (("containers", "container"), ("initContainers", "init container")):
        for container in spec.get(part) or ():
            told += _given(container, item, word)
    if told:
        notes = pod["metadata"].setdefault("annotations", {})
        notes[NOTE] = f"LimitRanger plugin set: {'; '.join(told)}"


def _given(container: Object, item: Object, word: str) -> Iterator[str]:
    for which, source, verb in (
        ("requests", "defaultRequest", "request"),
        ("limits", "default", "limit"),
    ):
        offered = item.get(source) or {}
        have = (container.get("resources") or {}).get(which) or {}
        new = sorted(set(offered) - set(have))
        if new:
            resources = container.get("resources") or {}
            container["resources"] = {**resources, which: {**have, **{n: offered[n] for n in new}}}
            yield f"{', '.join(new)} {verb} for {word} {container.get('name', '')}"


# ---- bounds


def wrongs(item: Object, store: str, obj: Object) -> Iterator[str]:
    """What one item says against an object."""
    kind, spec = item.get("type", ""), obj.get("spec") or {}
    if kind == "PersistentVolumeClaim" and store == "persistentvolumeclaims":
        asked = resource_list.read((spec.get("resources") or {}).get("requests"))
        yield from _least(item, kind, asked, {})
        yield from _most_asked(item, kind, asked)
    elif kind == "Pod" and store == "pods":
        yield from _bounds(item, kind, usage.sums(spec, "requests"), usage.sums(spec, "limits"))
    elif kind == "Container" and store == "pods":
        for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
            resources = container.get("resources") or {}
            requests, limits = (
                resource_list.read(resources.get(w)) for w in ("requests", "limits")
            )
            yield from _bounds(item, kind, requests, limits)


def _bounds(item: Object, kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _least(item, kind, requests, limits)
    yield from _most(item, kind, requests, limits)
    for name, most in sorted(resource_list.read(item.get("maxLimitRequestRatio")).items()):
        said = _ratio(requests.get(name), limits.get(name), most)
        if said:
            yield f"{name} max limit to request ratio per {kind} is {most}, but {said}"


def _least(item: Object, kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in sorted(resource_list.read(item.get("min")).items()):
        head = f"minimum {name} usage per {kind} is {least}"
        if name not in requests:
            yield f"{head}.  No request is specified"
        elif requests[name].value < least.value:
            yield f"{head}, but request is {requests[name]}"
        elif name in limits and limits[name].value < least.value:
            yield f"{head}, but limit is {limits[name]}"


def _most(item: Object, kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, most in sorted(resource_list.read(item.get("max")).items()):
        head = f"maximum {name} usage per {kind} is {most}"
        if name not in limits:
            yield f"{head}.  No limit is specified"
        elif limits[name].value > most.value:
            yield f"{head}, but limit is {limits[name]}"
        elif name in requests and requests[name].value > most.value:
            yield f"{head}, but request is {requests[name]}"


def _most_asked(item: Object, kind: str, requests: Amounts) -> Iterator[str]:
    for name, most in sorted(resource_list.read(item.get("max")).items()):
        head = f"maximum {name} usage per {kind} is {most}"
        if name not in requests:
            yield f"{head}.  No request is specified"
        elif requests[name].value > most.value:
            yield f"{head}, but request is {requests[name]}"


def _ratio(request: Amount | None, limit: Amount | None, most: Amount) -> str:
    if request is None or not request.value:
        return "no request is specified or request is 0"
    if limit is None or not limit.value:
        return "no limit is specified or limit is 0"
    ratio = limit.value / request.value
    return f"provided ratio is {float(ratio):f}" if ratio > most.value else ""
