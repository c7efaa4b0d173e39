"""Existing nodes as input of the solver, registered or not, initialized or not."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moxwell.api.core.nodes import Taint
from moxwell.scheduling.packing.pods import Labels
from moxwell.scheduling.well_known_labels import HOSTNAME, NODE_POOL


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """
    A Node, a NodeClaim, or both.

    ``labels`` and ``taints`` are those of the Node once it is registered, else of its NodeClaim;
    ``taints`` leaves out what disappears while the node initializes. ``node_labels`` and
    ``node_taints`` are those of the Node object; ``has_node`` says whether there is one.
    ``capacity`` and ``allocatable`` are in thousandths.
    """

    name: str
    labels: Labels
    capacity: Mapping[str, int] = field(hash=False)
    allocatable: Mapping[str, int] = field(hash=False)
    taints: tuple[Taint, ...] = ()
    node_labels: Labels = ()
    node_taints: tuple[Taint, ...] = ()
    has_node: bool = True
    managed: bool = True
    initialized: bool = True
    deleting: bool = False
    volume_limits: tuple[tuple[str, int], ...] = ()

    @property
    def pool(self) -> str:
        return dict(self.labels).get(NODE_POOL, "")

    @property
    def hostname(self) -> str:
        return dict(self.labels).get(HOSTNAME) or self.name
