"""The loop over pods that nobody has bound yet."""

from collections.abc import Sequence
from typing import Any

from moxwell.controllers.upstream import resources
from moxwell.controllers.upstream.schedule import plan
from moxwell.errors import Conflict
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

Json = dict[str, Any]
RETRY_SECONDS = 15.0


class Schedule:
    """Binds one pod at a time, so that each sees what the one before took."""

    kind = resources.PODS
    finalizer = ""

    def __init__(self, kube: Kube, pods: Any) -> None:
        self._kube = kube
        self._pods = pods  # the cache of pods
        self.watches: Sequence[Watch] = (Watch(resources.NODES, self._waiting),)

    def _waiting(self, _: Json) -> list[Key]:
        return [Key(p["metadata"]["namespace"], p["metadata"]["name"]) for p in self._unbound()]

    def _unbound(self) -> list[Json]:
        return [p for p in self._pods.list() if is_unbound(p)]

    async def reconcile(self, pod: Json) -> Outcome[Json]:
        if not is_unbound(pod):
            return Outcome(None)
        nodes = (await self._kube.list(resources.NODES)).items
        others = (await self._kube.list(resources.PODS)).items
        bound = [p for p in others if p["spec"].get("nodeName") and not _ended(p)]
        choice = plan.choose_node(pod, nodes, bound)
        if not choice.node:
            return Outcome(_unschedulable(choice.why), again=RETRY_SECONDS)
        meta = pod["metadata"]
        try:
            await self._kube.bind(meta["name"], meta["namespace"], choice.node)
        except Conflict:
            return Outcome(None)
        said = f"Successfully assigned {meta['namespace']}/{meta['name']} to {choice.node}"
        return Outcome(None, notes=(Note("Scheduled", said),))


def is_unbound(pod: Json) -> bool:
    """Waits for the default scheduler."""
    spec = pod["spec"]
    ours = spec.get("schedulerName", "default-scheduler") == "default-scheduler"
    gates = bool(spec.get("schedulingGates"))
    return (
        ours
        and not gates
        and not spec.get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
    )


def _ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _unschedulable(why: str) -> Json:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": why,
    }
    return {"phase": "Pending", "conditions": [condition]}
