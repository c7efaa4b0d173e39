"""
The LimitRanger admission plugin: default requests and limits, and bounds.

Defaults are set before anything else processes a Pod; bounds are checked on the complete object.
Messages match kube-apiserver's.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from moxwell.api.quantity import NANO, Quantity
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.quota import resource_list, usage
from moxwell.embedded.apiserver.quota.resource_list import ResourceList
from moxwell.embedded.apiserver.request_info import ApiCall

Object = dict[str, Any]
STORE = "limitranges"
ANNOTATION = "kubernetes.io/limit-ranger"


class LimitRanger:
    """Applies the limit ranges of a namespace."""

    def __init__(self, core: ServerContext) -> None:
        self._core = core

    def default(self, call: ApiCall, obj: Object) -> None:
        """Set the default requests and limits of a new Pod's containers."""
        if call.resource.group_resource != "pods" or call.subresource:
            return
        for item in self._items(call.namespace, "Container"):
            apply_defaults(obj, item)

    def check(self, call: ApiCall, new: Object, old: Object | None) -> None:
        """Reject an object outside the bounds."""
        group_resource = call.resource.group_resource
        if call.subresource or group_resource not in ("pods", "persistentvolumeclaims"):
            return
        if group_resource == "pods" and old is not None:
            return
        found = [
            w for item in self._items(call.namespace) for w in violations(item, group_resource, new)
        ]
        messages = list(dict.fromkeys(found))
        if messages:
            why = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
            name = new["metadata"].get("name", "")
            raise status_errors.forbidden(call.resource.plural, call.resource.group, name, why)

    def _items(self, namespace: str, kind: str = "") -> Iterator[Object]:
        for record in self._core.cache.scan_staged(STORE, f"{namespace}/"):
            for item in (record.object().get("spec") or {}).get("limits") or ():
                if not kind or item.get("type") == kind:
                    yield item


# defaults


def apply_defaults(pod: Object, item: Object) -> None:
    spec = pod.get("spec") or {}
    changes: list[str] = []
    for part, word in (("containers", "container"), ("initContainers", "init container")):
        for container in spec.get(part) or ():
            changes += _given(container, item, word)
    if changes:
        notes = pod["metadata"].setdefault("annotations", {})
        notes[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(changes)}"


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


# bounds


def violations(item: Object, group_resource: str, obj: Object) -> Iterator[str]:
    """Yield the violations of one limit range item."""
    kind, spec = item.get("type", ""), obj.get("spec") or {}
    if kind == "PersistentVolumeClaim" and group_resource == "persistentvolumeclaims":
        asked = resource_list.parse((spec.get("resources") or {}).get("requests"))
        yield from _least(item, kind, asked, {})
        yield from _most_asked(item, kind, asked)
    elif kind == "Pod" and group_resource == "pods":
        yield from _bounds(item, kind, usage.sums(spec, "requests"), usage.sums(spec, "limits"))
    elif kind == "Container" and group_resource == "pods":
        for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
            resources = container.get("resources") or {}
            requests, limits = (
                resource_list.parse(resources.get(w)) for w in ("requests", "limits")
            )
            yield from _bounds(item, kind, requests, limits)


def _bounds(item: Object, kind: str, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    yield from _least(item, kind, requests, limits)
    yield from _most(item, kind, requests, limits)
    for name, most in sorted(resource_list.parse(item.get("maxLimitRequestRatio")).items()):
        messages = _ratio(requests.get(name), limits.get(name), most)
        if messages:
            yield f"{name} max limit to request ratio per {kind} is {most}, but {messages}"


def _least(item: Object, kind: str, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    for name, least in sorted(resource_list.parse(item.get("min")).items()):
        head = f"minimum {name} usage per {kind} is {least}"
        if name not in requests:
            yield f"{head}.  No request is specified"
        elif requests[name] < least:
            yield f"{head}, but request is {requests[name]}"
        elif name in limits and limits[name] < least:
            yield f"{head}, but limit is {limits[name]}"


def _most(item: Object, kind: str, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    for name, most in sorted(resource_list.parse(item.get("max")).items()):
        head = f"maximum {name} usage per {kind} is {most}"
        if name not in limits:
            yield f"{head}.  No limit is specified"
        elif limits[name] > most:
            yield f"{head}, but limit is {limits[name]}"
        elif name in requests and requests[name] > most:
            yield f"{head}, but request is {requests[name]}"


def _most_asked(item: Object, kind: str, requests: ResourceList) -> Iterator[str]:
    for name, most in sorted(resource_list.parse(item.get("max")).items()):
        head = f"maximum {name} usage per {kind} is {most}"
        if name not in requests:
            yield f"{head}.  No request is specified"
        elif requests[name] > most:
            yield f"{head}, but request is {requests[name]}"


def _ratio(request: Quantity | None, limit: Quantity | None, most: Quantity) -> str:
    if request is None or not request.nano:
        return "no request is specified or request is 0"
    if limit is None or not limit.nano:
        return "no limit is specified or limit is 0"
    ratio = Fraction(limit.nano, request.nano)
    return f"provided ratio is {float(ratio):f}" if ratio * NANO > most.nano else ""
