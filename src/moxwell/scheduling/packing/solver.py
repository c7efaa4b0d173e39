"""
The provisioning loop of Karpenter: pods one by one, largest first, to the first place that fits.

A :class:`Solver` is prepared once for a snapshot; :meth:`Solver.solve` may be called for several
sets of pods, as disruption does, and each call starts from the snapshot.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from moxwell.scheduling.packing.bins import NodeRules
from moxwell.scheduling.packing.cluster import ClusterSnapshot, SolverOptions
from moxwell.scheduling.packing.daemons import DaemonPods
from moxwell.scheduling.packing.existing import node_bases
from moxwell.scheduling.packing.existing_index import NodeTable
from moxwell.scheduling.packing.host_ledger import visible_rooms
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.reservations import reservation_capacities
from moxwell.scheduling.packing.resource_axis import ResourceAxis
from moxwell.scheduling.packing.results import SchedulingResult
from moxwell.scheduling.packing.run import PlacementPolicy, SolverRun, charge
from moxwell.scheduling.packing.shape_traits import ShapeIndex
from moxwell.scheduling.packing.templates import claim_templates
from moxwell.scheduling.packing.topology import TopologyIndex
from moxwell.scheduling.requirement_sets import RequirementAlgebra
from moxwell.scheduling.resource_lists import CPU, MEMORY
from moxwell.scheduling.taints import PREFER_NO_SCHEDULE


class Solver:
    """Places pods in one cluster snapshot."""

    def __init__(self, snapshot: ClusterSnapshot, options: SolverOptions | None = None) -> None:
        self.snapshot = snapshot
        self.options = options or SolverOptions()
        self.algebra = RequirementAlgebra(snapshot.rules.well_known)
        self.rules = NodeRules(self.algebra)
        self.axis = ResourceAxis(_resource_names(snapshot))
        daemons = DaemonPods(self.algebra, self.axis, list(snapshot.daemons))
        self.templates = claim_templates(
            snapshot.pools, self.axis, self.algebra, daemons, self.options
        )
        active = [n for n in snapshot.nodes if not n.deleting]
        bases = node_bases(active, snapshot.pods, self.axis, self.rules, daemons)
        self.nodes = NodeTable(bases, len(self.axis.zero))
        self.limits = {p.name: dict(p.limits) for p in snapshot.pools}
        for node in active:
            if node.pool in self.limits:
                charge(self.limits[node.pool], node)
        types = (t for p in snapshot.pools for t in p.instance_types)
        self.reservations = reservation_capacities(types)
        self.rooms = visible_rooms(t for p in snapshot.pools for t in p.instance_types)
        self.deleting = frozenset(n.name for n in snapshot.nodes if n.deleting)
        self.topology = TopologyIndex(snapshot, self.algebra)
        soft = (t.effect == PREFER_NO_SCHEDULE for p in snapshot.pools for t in p.taints)
        self.shapes = ShapeIndex(
            self.algebra,
            self.axis,
            ignore_preferences=self.options.ignore_preferences,
            tolerate_prefer_no_schedule=any(soft),
        )

    def solve(
        self,
        pods: Sequence[PodDemand],
        removed: frozenset[str] = frozenset(),
        held: frozenset[str] = frozenset(),
        policy: PlacementPolicy = PlacementPolicy.FEWEST_PODS,
        turn: int = 0,
        *,
        within_hosts: bool = False,
        wanted: Mapping[int, int] | None = None,
    ) -> SchedulingResult:
        """
        Place pods as if the nodes ``removed`` were gone.

        Running pods do not move to the nodes ``held``, whose ``consolidateAfter`` has not passed.
        ``turn`` says which of several equal topology domains comes first, by name. With
        ``within_hosts`` all claims together fit on the hosts, where these are visible. A claim of a
        template in ``wanted`` that can be one of these types does not grow beyond them.
        """
        run = SolverRun(self, pods, removed, held, policy, turn, within_hosts, wanted)
        queue = deque(in_queue_order(pods))
        last_length: dict[str, int] = {}
        while queue and last_length.get(queue[0].uid) != len(queue):
            pod = queue.popleft()
            if not run.schedule(pod):
                queue.append(pod)
                last_length[pod.uid] = len(queue)
        return run.result()


def in_queue_order(pods: Iterable[PodDemand]) -> list[PodDemand]:
    """Pods by CPU and memory, both descending, then by creation time and UID."""
    keys: dict[int, tuple[int, int]] = {}

    def key(pod: PodDemand) -> tuple[int, int, float, str]:
        size = keys.get(id(pod.shape))
        if size is None:
            requests = dict(pod.shape.requests)
            size = keys[id(pod.shape)] = (-requests.get(CPU, 0), -requests.get(MEMORY, 0))
        return (*size, pod.created, pod.uid)

    return sorted(pods, key=key)


def _resource_names(snapshot: ClusterSnapshot) -> set[str]:
    names = {name for p in snapshot.pools for t in p.instance_types for name in t.capacity}
    names |= {name for n in snapshot.nodes for name in n.allocatable}
    return names | {name for d in snapshot.daemons for name, _ in d.shape.requests}
