"""The loop over nodes that asks whether they still speak, and the loops over pods on them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.controllermanager import resources
from moxwell.embedded.controllermanager.nodelifecycle import plan, taint_eviction
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.objects import key_of
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

Json = dict[str, Any]


class NodeLife:
    """Marks silent nodes, and welcomes them back."""

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
        wanted = plan.taints(node, self._clock.now(), silent=verdict.silent)
        if wanted != (node["spec"].get("taints") or []):
            await self._kube.merge(resources.NODES, name, {"spec": {"taints": wanted or None}})
        tell = verdict.silent and plan.is_ready_known(node)
        status = {"conditions": plan.conditions(node)} if tell else None
        return Outcome(status, again=verdict.again)


class Evictions:
    """Pods leave a node whose taints they do not bear, at once or when their patience ends."""

    kind = resources.PODS
    finalizer = ""

    def __init__(self, kube: Kube, clock: Clock, nodes: Any, pods: Any) -> None:
        self._kube, self._clock, self._nodes, self._pods = kube, clock, nodes, pods
        self._seen: dict[tuple[str, str], datetime] = {}
        self.watches: Sequence[Watch] = (
            Watch(
                resources.NODES,
                self._on,
                lambda old, new: taint_eviction.expelling(old) != taint_eviction.expelling(new),
            ),
        )

    def _on(self, node: Json) -> list[Any]:
        name = node["metadata"]["name"]
        return [key_of(p) for p in self._pods.list() if p["spec"].get("nodeName") == name]

    async def reconcile(self, pod: Json) -> Outcome[Json]:
        name, meta = pod["spec"].get("nodeName"), pod["metadata"]
        node = self._nodes.find(Key("", name)) if name else None
        taints = taint_eviction.expelling(node)
        since = {t["key"]: self._first_seen(name, t["key"]) for t in taints}
        self._forget(name, since)
        end = taint_eviction.choose_end(pod, taints, since)
        if end is None or meta.get("deletionTimestamp"):
            return Outcome(None)
        left = (end - self._clock.now()).total_seconds()
        if left > 0:
            return Outcome(None, again=left)
        await self._kube.delete(resources.PODS, meta["name"], meta["namespace"], uid=meta["uid"])
        said = f"Marking for deletion Pod {meta['namespace']}/{meta['name']}"
        return Outcome(None, notes=(Note("TaintManagerEviction", said),))

    def _first_seen(self, node: str, key: str) -> datetime:
        return self._seen.setdefault((node, key), self._clock.now())

    def _forget(self, node: str, kept: Mapping[str, datetime]) -> None:
        for known in [k for k in self._seen if k[0] == node and k[1] not in kept]:
            del self._seen[known]


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
