"""The next move and the status of a DaemonSet. Pure."""

from dataclasses import dataclass
from typing import Any

from moxwell.embedded.controllermanager.resources import PODS
from moxwell.embedded.controllermanager.workloads import is_active, is_ready, new_pod
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Write, Writes

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ObservedDaemonSet:
    """The names of all nodes, and the pods of the DaemonSet."""

    nodes: frozenset[str] = frozenset()
    pods: tuple[Json, ...] = ()

    @property
    def active(self) -> dict[str, Json]:
        """Active pods by node."""
        return {str(p["spec"].get("nodeName")): p for p in self.pods if is_active(p)}


def next_move(owner: Json, seen: ObservedDaemonSet) -> WriteMove:
    """Create a pod on every node without one; delete the pods of nodes that are gone."""
    active, template = seen.active, owner["spec"]["template"]
    missing, gone = sorted(seen.nodes - active.keys()), sorted(active.keys() - seen.nodes)
    namespace = owner["metadata"]["namespace"]
    writes: tuple[Write, ...] = (
        *(Create(new_pod(owner, template, node=node), PODS) for node in missing),
        *(Delete(PODS, active[n]["metadata"]["name"], namespace, grace_seconds=0) for n in gone),
    )
    return Writes(writes) if writes else Done()


def describe(owner: Json, seen: ObservedDaemonSet) -> Json:
    """The counts; every active pod counts as updated, as DaemonSets are not rolled here."""
    active = seen.active
    ready = sum(is_ready(p) for p in active.values())
    return {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "desiredNumberScheduled": len(seen.nodes),
        "currentNumberScheduled": len(active),
        "updatedNumberScheduled": len(active),
        "numberMisscheduled": 0,
        "numberReady": ready,
        "numberAvailable": ready,
    }
