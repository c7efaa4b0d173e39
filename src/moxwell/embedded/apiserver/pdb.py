"""The disruption controller: computes the status of PodDisruptionBudgets, which evictions obey."""

from typing import Any

import msgspec

from moxwell.api import selectors
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.object_cache import ObjectRecord

Object = dict[str, Any]
STORE = "poddisruptionbudgets.policy"


def selector_of(given: Object | None) -> selectors.Selector:
    """Parse the LabelSelector of an object."""
    if given is None:
        return selectors.NOTHING
    return selectors.from_object(msgspec.convert(given, selectors.LabelSelector))


def is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _share(value: Any, total: int) -> int:
    """Resolve a number or a percentage of the total, rounded up."""
    if isinstance(value, str):
        return -(-int(value.rstrip("%") or 0) * total // 100)
    return int(value)


class PdbController:
    """Updates the status of disruption budgets."""

    def __init__(self, core: ServerContext) -> None:
        self._core = core

    def sync(self, namespace: str) -> None:
        resource = self._core.registry.hub(STORE)
        for record in self._core.cache.scan_staged(STORE, f"{namespace}/"):
            obj = record.object()
            status = self._status(obj, namespace)
            if resource is not None and status != obj.get("status"):
                obj["status"] = status
                self._core.put(resource, obj, record)

    def _status(self, obj: Object, namespace: str) -> Object:
        spec, old = obj.get("spec") or {}, obj.get("status") or {}
        wanted = selector_of(spec.get("selector"))
        pods = [
            pod
            for record in self._core.cache.scan_staged("pods", f"{namespace}/")
            if wanted.matches(record.labels) and (pod := record.object())
        ]
        expected = self._expected(pods)
        if "maxUnavailable" in spec:
            desired = max(expected - _share(spec["maxUnavailable"], expected), 0)
        else:
            desired = _share(spec.get("minAvailable", 1), expected)
        disrupted = old.get("disruptedPods") or {}
        healthy = sum(is_ready(pod) and pod["metadata"]["name"] not in disrupted for pod in pods)
        there = {pod["metadata"]["name"] for pod in pods}
        left = {name: at for name, at in disrupted.items() if name in there}
        allowed = max(healthy - desired, 0) if expected else 0
        made: Object = {"observedGeneration": obj["metadata"].get("generation", 1)}
        if left:
            made["disruptedPods"] = left
        made |= {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
        }
        return {**made, "conditions": self._conditions(old, allowed, made["observedGeneration"])}

    def _conditions(self, old: Object, allowed: int, generation: int) -> list[Object]:
        status, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
        before = next(
            (c for c in old.get("conditions") or () if c["type"] == "DisruptionAllowed"), None
        )
        same = before is not None and before["status"] == status
        since = before["lastTransitionTime"] if before is not None and same else self._core.now()
        return [
            {
                "type": "DisruptionAllowed",
                "status": status,
                "observedGeneration": generation,
                "lastTransitionTime": since,
                "reason": reason,
                "message": "",
            }
        ]

    def _expected(self, pods: list[Object]) -> int:
        """Return the expected number of Pods: the controllers' replicas, or the number of Pods."""
        total, seen = 0, set()
        for pod in pods:
            refs = pod["metadata"].get("ownerReferences") or ()
            owner = next((r for r in refs if r.get("controller")), None)
            found = self._replicas(owner) if owner else None
            if owner is None or found is None:
                total += 1
            elif owner["uid"] not in seen:
                seen.add(owner["uid"])
                total += found
        return total

    def _replicas(self, owner: Object) -> int | None:
        record: ObjectRecord | None = self._core.cache.find_uid(owner["uid"])
        spec = (record.object().get("spec") or {}) if record is not None else {}
        found = spec.get("replicas")
        return found if isinstance(found, int) else None
