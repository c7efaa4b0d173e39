"""The loop over nodes that asks whether they still speak."""

from collections.abc import Sequence
from typing import Any

from moxwell.clock import Clock
from moxwell.controllers.upstream import resources
from moxwell.controllers.upstream.nodelife import plan
from moxwell.kube.client import Kube
from moxwell.runtime.objects import key_of
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch

Json = dict[str, Any]


class NodeLife:
    """Marks silent nodes, welcomes them back, and clears away what ran on them."""

    kind = resources.NODES
    finalizer = ""
    watches: Sequence[Watch] = ()

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock

    async def reconcile(self, node: Json) -> Outcome[Json]:
        name = node["metadata"]["name"]
        lease = await self._kube.find(resources.LEASES, name, "kube-node-lease")
        verdict = plan.judge(node, lease, self._clock.now())
        wanted = plan.taints(node, silent=verdict.silent)
        if wanted != (node["spec"].get("taints") or []):
            await self._kube.merge(resources.NODES, name, {"spec": {"taints": wanted or None}})
        if verdict.evict:
            await self._clear(name)
        tell = verdict.silent and plan.is_ready_known(node)
        status = {"conditions": plan.conditions(node)} if tell else None
        return Outcome(status, again=verdict.again)

    async def _clear(self, name: str) -> None:
        pods = await self._kube.list(resources.PODS, fields={"spec.nodeName": name})
        for pod in pods.items:
            meta = pod["metadata"]
            await self._kube.delete(
                resources.PODS, meta["name"], meta["namespace"], uid=meta["uid"], grace=0
            )


class Orphans:
    """Pods whose node is gone, in small: what the pod collector does."""

    kind = resources.PODS
    finalizer = ""

    def __init__(self, kube: Kube, nodes: Any, pods: Any) -> None:
        self._kube, self._nodes, self._pods = kube, nodes, pods
        self.watches: Sequence[Watch] = (
            Watch(resources.NODES, self._on, lambda old, new: new is None),
        )

    def _on(self, node: Json) -> list[Any]:
        name = node["metadata"]["name"]
        return [key_of(p) for p in self._pods.list() if p["spec"].get("nodeName") == name]

    async def reconcile(self, pod: Json) -> Outcome[Json]:
        name, meta = pod["spec"].get("nodeName"), pod["metadata"]
        if name and await self._kube.find(resources.NODES, name) is None:
            await self._kube.delete(
                resources.PODS, meta["name"], meta["namespace"], uid=meta["uid"], grace=0
            )
        return Outcome(None)
