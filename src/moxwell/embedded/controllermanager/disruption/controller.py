"""The disruption controller: counts how many pods each PodDisruptionBudget allows to be evicted."""

from collections.abc import Sequence
from typing import Any

import msgspec

from moxwell.api import selectors
from moxwell.embedded.controllermanager.disruption.plan import describe
from moxwell.embedded.controllermanager.resources import POD_DISRUPTION_BUDGETS, PODS
from moxwell.embedded.controllermanager.workloads import is_active
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done
from moxwell.runtime.objects import key_of
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.watches import Watch

Json = dict[str, Any]
Pods = tuple[Json, ...]


class DisruptionController(Reconciler[Json, Pods, Done, Json]):
    """Reconciles PodDisruptionBudgets; sees the active pods they select; writes status only."""

    kind = POD_DISRUPTION_BUDGETS

    def __init__(self, budgets: Cache[Any], pods: Cache[Any]) -> None:
        self._budgets, self._pods = budgets, pods
        self.watches: Sequence[Watch] = (Watch(PODS, self._in_namespace),)

    def _in_namespace(self, pod: Json) -> list[Key]:
        namespace = pod["metadata"].get("namespace", "")
        return [key_of(b) for b in self._budgets.list(namespace)]

    async def see(self, budget: Json, reader: Reader) -> Pods:
        given = msgspec.convert(budget["spec"].get("selector"), selectors.LabelSelector | None)
        selector = selectors.from_object(given)
        pods = self._pods.list(budget["metadata"]["namespace"])
        chosen = (p for p in pods if selector.matches(p["metadata"].get("labels") or {}))
        return tuple(p for p in chosen if is_active(p))

    def plan(self, budget: Json, seen: Pods) -> Done:
        return Done()

    async def act(self, move: Done) -> None:
        return None

    def describe(self, budget: Json, seen: Pods, move: Done) -> Json:
        return describe(budget, seen)
