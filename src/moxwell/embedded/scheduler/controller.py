"""The loop over pods that nobody has bound yet."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager import resources
from moxwell.embedded.controllermanager.storage import binder, labels
from moxwell.embedded.scheduler import plan, volumes
from moxwell.errors import Conflict
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

Json = dict[str, Any]
RETRY_SECONDS, BINDING_SECONDS = 15.0, 3.0


class Schedule:
    """Binds one pod at a time, so that each sees what the one before took."""

    kind = resources.PODS
    finalizer = ""

    def __init__(self, kube: Kube, pods: Any) -> None:
        self._kube = kube
        self._pods = pods  # the cache of pods
        self.watches: Sequence[Watch] = (
            Watch(resources.NODES, self._waiting),
            Watch(labels.CLAIMS, self._using),
            Watch(labels.CAPACITIES, self._with_claims),
        )

    def _waiting(self, _: Json) -> list[Key]:
        return [Key(p["metadata"]["namespace"], p["metadata"]["name"]) for p in self._unbound()]

    def _using(self, claim: Json) -> list[Key]:
        space, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        return [k for k in self._with_claims(claim, name) if k.namespace == space]

    def _with_claims(self, _: Json, name: str = "") -> list[Key]:
        """Unbound pods that name this claim, or any."""
        return [
            Key(p["metadata"]["namespace"], p["metadata"]["name"])
            for p in self._unbound()
            if (name in labels.claims_of(p) if name else labels.claims_of(p))
        ]

    def _unbound(self) -> list[Json]:
        return [p for p in self._pods.list() if is_unbound(p)]

    async def reconcile(self, pod: Json) -> Outcome[Json]:
        if not is_unbound(pod):
            return Outcome(None)
        nodes = (await self._kube.list(resources.NODES)).items
        others = (await self._kube.list(resources.PODS)).items
        bound = [p for p in others if p["spec"].get("nodeName") and not _ended(p)]
        needs = await volumes.see(self._kube, pod, bound)
        choice = _choose(pod, nodes, bound, needs)
        if not choice.node:
            note = Note("FailedScheduling", choice.why, "Warning")
            return Outcome(_unschedulable(choice.why), again=RETRY_SECONDS, notes=(note,))
        if needs.waiting:
            chosen = next(n for n in nodes if n["metadata"]["name"] == choice.node)
            await self._select(needs, chosen)
            return Outcome(None, again=BINDING_SECONDS)
        return await self._bind(pod, choice)

    async def _select(self, needs: volumes.Needs, chosen: Json) -> None:
        """Give claims that wait a volume that is there, or tell them where their pod will be."""
        ready, node = needs.ready(chosen), chosen["metadata"]["name"]
        for waiting in needs.waiting:
            meta = waiting.claim["metadata"]
            if waiting.key in ready:
                await self._reserve(needs, waiting.claim, ready[waiting.key])
            elif labels.annotation(waiting.claim, labels.SELECTED) != node:
                change = {"metadata": {"annotations": {labels.SELECTED: node}}}
                await self._kube.merge(labels.CLAIMS, meta["name"], change, meta["namespace"])

    async def _reserve(self, needs: volumes.Needs, claim: Json, name: str) -> None:
        """The volume names the claim; the loop over claims does the rest."""
        volume = next(v for v in needs.there if v["metadata"]["name"] == name)
        if not volume["spec"].get("claimRef"):
            change = binder.reserved(claim, volume, given=False)
            await self._kube.merge(labels.VOLUMES, name, change)

    async def _bind(self, pod: Json, choice: plan.Choice) -> Outcome[Json]:
        meta = pod["metadata"]
        try:
            await self._kube.bind(meta["name"], meta["namespace"], choice.node)
        except Conflict:
            return Outcome(None)
        said = f"Successfully assigned {meta['namespace']}/{meta['name']} to {choice.node}"
        return Outcome(None, notes=(Note("Scheduled", said),))


def _choose(
    pod: Json, nodes: Sequence[Json], bound: Sequence[Json], needs: volumes.Needs
) -> plan.Choice:
    """The node its volumes were promised to, if it still fits; else the best."""
    if needs.why_not:
        why = f"0/{len(nodes)} nodes are available: {needs.why_not}."
        return plan.Choice(why=why)
    kept = [n for n in nodes if n["metadata"]["name"] == needs.selected]
    if kept:
        choice = plan.choose_node(pod, kept, bound, needs.obstacle)
        if choice.node:
            return choice
    return plan.choose_node(pod, nodes, bound, needs.obstacle)


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
