"""The loops over workloads: each makes or deletes what its plan names and says how it stands."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from moxwell.api import selectors
from moxwell.embedded.controllermanager import resources
from moxwell.embedded.controllermanager.workloads import plan, statefulset_revisions
from moxwell.embedded.controllermanager.workloads.see import owned, owner_key, pods_of
from moxwell.errors import Conflict
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Controller, Outcome
from moxwell.runtime.watches import Watch
from moxwell.scheduling import rollout

Json = dict[str, Any]


class Deployments:
    """From a Deployment to its ReplicaSets."""

    kind = resources.DEPLOYMENTS
    finalizer = ""
    watches: Sequence[Watch] = (Watch(resources.REPLICA_SETS, owner_key("Deployment")),)

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def reconcile(self, deployment: Json) -> Outcome[Json]:
        sets = await owned(self._kube, deployment, resources.REPLICA_SETS)
        parts = plan.parts(deployment, sets)
        if not any(p.current for p in parts):
            fresh = plan.new_set(deployment, 0, len(sets) + 1)
            sets.append(await self._kube.create(fresh, resources.REPLICA_SETS))
            parts = plan.parts(deployment, sets)
        space = deployment["metadata"]["namespace"]
        for size in rollout.resize(plan.policy(deployment), parts):
            change = {"spec": {"replicas": size.replicas}}
            await self._kube.merge(resources.REPLICA_SETS, size.name, change, space)
        for name in rollout.surplus(parts, deployment["spec"].get("revisionHistoryLimit", 10)):
            await self._kube.delete(resources.REPLICA_SETS, name, space)
        return Outcome(plan.deployment_status(deployment, sets))


class ReplicaSets:
    """From a ReplicaSet to its pods."""

    kind = resources.REPLICA_SETS
    finalizer = ""
    watches: Sequence[Watch] = (Watch(resources.PODS, owner_key("ReplicaSet")),)

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def reconcile(self, owner: Json) -> Outcome[Json]:
        pods = await pods_of(self._kube, owner)
        missing = owner["spec"].get("replicas", 1) - sum(map(plan.is_active, pods))
        for _ in range(missing):
            pod = plan.make_pod(owner, owner["spec"]["template"])
            await self._kube.create(pod, resources.PODS)
        space = owner["metadata"]["namespace"]
        for name in plan.pods_to_leave(pods, -missing if missing < 0 else 0):
            await self._kube.delete(resources.PODS, name, space)
        return Outcome(plan.set_status(owner, pods))


class StatefulSets:
    """From a StatefulSet to its pods and their claims, one after the other."""

    kind = resources.STATEFUL_SETS
    finalizer = ""
    watches: Sequence[Watch] = (Watch(resources.PODS, owner_key("StatefulSet")),)

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def reconcile(self, owner: Json) -> Outcome[Json]:
        pods = await pods_of(self._kube, owner)
        ordinal = plan.next_ordinal(owner, pods)
        if ordinal is not None:
            await self._make(owner, ordinal)
        leaving = plan.excess_ordinals(owner, pods) or statefulset_revisions.outdated(owner, pods)
        for name in leaving[:1]:
            await self._kube.delete(resources.PODS, name, owner["metadata"]["namespace"])
        return Outcome(statefulset_revisions.status(owner, pods))

    async def _make(self, owner: Json, ordinal: int) -> None:
        claims, volumes = plan.claims_of(owner, ordinal)
        for claim in claims:
            with suppress(Conflict):  # a claim outlives its pod
                await self._kube.create(claim, resources.CLAIMS)
        pod = plan.make_pod(
            owner, owner["spec"]["template"], name=f"{owner['metadata']['name']}-{ordinal}"
        )
        pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or ()), *volumes]
        pod["spec"]["hostname"] = pod["metadata"]["name"]
        pod["metadata"]["labels"] = statefulset_revisions.labels(owner, pod, ordinal)
        with suppress(Conflict):  # the one before is still leaving
            await self._kube.create(pod, resources.PODS)


class DaemonSets:
    """From a DaemonSet to one pod on every node."""

    kind = resources.DAEMON_SETS
    finalizer = ""

    def __init__(self, kube: Kube, all_keys: Any) -> None:
        self._kube = kube
        self.watches: Sequence[Watch] = (
            Watch(resources.PODS, owner_key("DaemonSet")),
            Watch(resources.NODES, lambda _: all_keys(), lambda old, new: not (old and new)),
        )

    async def reconcile(self, owner: Json) -> Outcome[Json]:
        nodes = {n["metadata"]["name"] for n in (await self._kube.list(resources.NODES)).items}
        pods = await pods_of(self._kube, owner)
        there = {p["spec"].get("nodeName"): p for p in pods if plan.is_active(p)}
        for node in sorted(nodes - there.keys()):
            pod = plan.make_pod(owner, owner["spec"]["template"], node=node)
            await self._kube.create(pod, resources.PODS)
        for node in sorted(str(n) for n in there.keys() - nodes):
            name = there[node]["metadata"]["name"]
            await self._kube.delete(resources.PODS, name, owner["metadata"]["namespace"], grace=0)
        ready = sum(plan.is_ready(p) for p in there.values())
        return Outcome(_daemon_status(owner, len(nodes), len(there), ready))


def _daemon_status(owner: Json, wanted: int, there: int, ready: int) -> Json:
    return {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "desiredNumberScheduled": wanted,
        "currentNumberScheduled": there,
        "updatedNumberScheduled": there,
        "numberMisscheduled": 0,
        "numberReady": ready,
        "numberAvailable": ready,
    }


class Jobs:
    """From a Job to pods, until enough of them have succeeded."""

    kind = resources.JOBS
    finalizer = ""
    watches: Sequence[Watch] = (Watch(resources.PODS, owner_key("Job")),)

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def reconcile(self, owner: Json) -> Outcome[Json]:
        pods = await pods_of(self._kube, owner)
        done = sum((p.get("status") or {}).get("phase") == "Succeeded" for p in pods)
        wanted, active = owner["spec"].get("completions", 1), sum(map(plan.is_active, pods))
        for _ in range(min(owner["spec"].get("parallelism", 1), wanted - done) - active):
            await self._kube.create(plan.make_pod(owner, owner["spec"]["template"]), resources.PODS)
        status: Json = {"active": active, "succeeded": done, "ready": sum(map(plan.is_ready, pods))}
        if done >= wanted:
            complete = {"type": "Complete", "status": "True", "reason": "CompletionsReached"}
            status["conditions"] = [complete]
        return Outcome(status)


class Budgets:
    """What each PodDisruptionBudget allows now."""

    kind = resources.BUDGETS
    finalizer = ""

    def __init__(self, kube: Kube, keys_in: Any) -> None:
        self._kube = kube
        self.watches: Sequence[Watch] = (Watch(resources.PODS, _of_namespace(keys_in)),)

    async def reconcile(self, budget: Json) -> Outcome[Json]:
        given = msgspec.convert(budget["spec"].get("selector"), selectors.LabelSelector | None)
        chosen, space = selectors.from_object(given), budget["metadata"]["namespace"]
        pods = (await self._kube.list(resources.PODS, space)).items
        meant = [p for p in pods if chosen.matches(p["metadata"].get("labels") or {})]
        return Outcome(plan.budget_status(budget, [p for p in meant if plan.is_active(p)]))


def _of_namespace(keys_in: Any) -> Any:
    def keys(obj: Json) -> list[Key]:
        found: list[Key] = keys_in(obj["metadata"].get("namespace", ""))
        return found

    return keys


def controllers(kube: Kube, caches: Any) -> tuple[Controller, ...]:
    """All of them; ``caches`` are the manager's."""

    def keys(resource: Any, space: str = "") -> list[Key]:
        return [k for k in list(caches.of(resource).keys()) if not space or k.namespace == space]

    return (
        Controller(name="upstream.deployment", reconciler=Deployments(kube)),
        Controller(name="upstream.replicaset", reconciler=ReplicaSets(kube)),
        Controller(name="upstream.statefulset", reconciler=StatefulSets(kube)),
        Controller(
            name="upstream.daemonset",
            reconciler=DaemonSets(kube, lambda: keys(resources.DAEMON_SETS)),
        ),
        Controller(name="upstream.job", reconciler=Jobs(kube)),
        Controller(
            name="upstream.budget",
            reconciler=Budgets(kube, lambda space: keys(resources.BUDGETS, space)),
        ),
    )
