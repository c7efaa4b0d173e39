"""
Where pods go if nodes are removed: the solver without those nodes. Pure.

The solver is prepared once per snapshot; each simulation starts from the snapshot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from moxwell.scheduling.disruption.candidates import DisruptionCandidate
from moxwell.scheduling.disruption.cluster_state import DisruptionNode, DisruptionSnapshot
from moxwell.scheduling.packing.cluster import SolverOptions
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.rescheduling import currently_reschedulable
from moxwell.scheduling.packing.results import SchedulingResult
from moxwell.scheduling.packing.run import PlacementPolicy
from moxwell.scheduling.packing.solver import Solver

_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class SimulatedRemoval:
    """
    The placement without the removed nodes.

    ``unplaced`` says why running pods have no certain place; pods that were pending before may stay
    so.
    """

    placement: SchedulingResult
    unplaced: Mapping[str, str]

    @property
    def message(self) -> str:
        """Why the nodes cannot be removed."""
        shown = " ".join(f"{p} => {why}" for p, why in list(self.unplaced.items())[:_MOST_SHOWN])
        rest = len(self.unplaced) - _MOST_SHOWN
        more = f" and {rest} other(s)" if rest > 0 else ""
        return f"not all pods would schedule, {shown}{more}"


class DisruptionSimulator:
    """Removes nodes from a snapshot and places their pods."""

    def __init__(self, snapshot: DisruptionSnapshot, options: SolverOptions | None = None) -> None:
        self.snapshot = snapshot
        strict = options or SolverOptions()
        self.solver = Solver(snapshot.cluster, replace(strict, reserved_strict=False))
        self._deleting = currently_reschedulable(
            (p for n in snapshot.nodes if n.node.deleting for p in snapshot.pods_on(n.name)),
            snapshot.limits,
            snapshot.now,
        )
        self._moving = frozenset(p.uid for p in self._deleting)
        self._held = frozenset(n.name for n in snapshot.nodes if under_hold(snapshot, n))
        self._uninitialized = frozenset(
            n.name for n in snapshot.nodes if not n.node.initialized and not n.node.deleting
        )

    def without(
        self,
        candidates: Iterable[DisruptionCandidate],
        *,
        hold: bool = True,
        policy: PlacementPolicy = PlacementPolicy.FEWEST_PODS,
        within_hosts: bool = False,
    ) -> SimulatedRemoval:
        """
        The placement without the candidates.

        With ``hold`` running pods do not move to nodes whose ``consolidateAfter`` has not passed.
        With ``within_hosts`` the hosts have room for all new nodes together.
        """
        gone = tuple(candidates)
        displaced = currently_reschedulable(
            (p for c in gone for p in c.pods), self.snapshot.limits, self.snapshot.now
        )
        pods = (*self.snapshot.pending, *displaced, *self._deleting)
        removed = frozenset(c.name for c in gone)
        held = self._held if hold else frozenset()
        result = self.solver.solve(pods, removed, held, policy, within_hosts=within_hosts)
        return SimulatedRemoval(result, dict(self._unplaced(pods, result)))

    def _unplaced(
        self, pods: Iterable[PodDemand], result: SchedulingResult
    ) -> Iterable[tuple[str, str]]:
        running = {p.uid: p for p in pods if p.node_name}
        for uid, failure in result.failures.items():
            if uid in running:
                yield running[uid].key, str(failure)
        for name in sorted(self._uninitialized & result.existing.keys()):
            for pod in result.existing[name]:
                if pod.uid in running and pod.uid not in self._moving:
                    yield pod.key, f"would schedule against uninitialized node/{name}"


def under_hold(snapshot: DisruptionSnapshot, node: DisruptionNode) -> bool:
    """Whether the last pod came or went less than ``consolidateAfter`` ago."""
    pool = snapshot.pools_by_name.get(node.node.pool)
    if pool is None or not pool.consolidate_after:
        return False
    if not (node.node.managed and node.node.initialized):
        return False
    since = node.initialized_at if node.last_pod_event is None else node.last_pod_event
    return since is not None and snapshot.now - since < pool.consolidate_after
