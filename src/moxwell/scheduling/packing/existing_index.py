"""
Arrays over existing nodes: which have room for a pod, without looking at each.

The table is made once per solver; a run copies the numbers and makes a node's state when a pod
looks at it, so that runs over many nodes are cheap.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from moxwell.scheduling.packing.existing import ExistingBin, NodeBase
from moxwell.scheduling.packing.nodes import ClusterNode
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.resource_axis import Vector

_LIMIT = 2**62


class NodeTable:
    """The nodes of a snapshot; a column is a node."""

    def __init__(self, bases: tuple[NodeBase, ...], places: int) -> None:
        self.bases = bases
        self.numbers = {base.node.name: n for n, base in enumerate(bases)}
        self.remaining: NDArray[np.int64] = np.zeros((places, len(bases)), np.int64)
        for number, base in enumerate(bases):
            self.remaining[:, number] = [max(-1, min(a, _LIMIT)) for a in base.remaining]
        self.sound = np.asarray((self.remaining >= 0).all(axis=0))

    def named(self, names: frozenset[str]) -> list[ClusterNode]:
        """The nodes with these names."""
        return [self.bases[self.numbers[n]].node for n in names if n in self.numbers]

    def flags(self, names: frozenset[str]) -> NDArray[np.bool_]:
        """A flag per node: whether its name is among the names."""
        found = np.zeros(len(self.bases), np.bool_)
        found[[self.numbers[n] for n in names if n in self.numbers]] = True
        return found


class ExistingNodes:
    """The nodes in one run, without the removed ones."""

    def __init__(self, table: NodeTable, removed: frozenset[str], held: frozenset[str]) -> None:
        self._table = table
        self._remaining = table.remaining.copy()
        self._usable = table.sound & ~table.flags(removed)
        self._unheld = self._usable & ~table.flags(held) if held else self._usable
        self._bins: dict[int, ExistingBin] = {}

    def candidates(self, request: Vector, ignore_hold: bool) -> Iterator[ExistingBin]:
        """The nodes with room, in the order in which they are tried."""
        if not self._table.bases:
            return
        found = (self._usable if ignore_hold else self._unheld).copy()
        for room, amount in zip(self._remaining, request, strict=True):
            if amount > 0:
                found &= room >= amount
        for number in found.nonzero()[0].tolist():
            yield self._bin(number)

    def all_bins(self) -> Iterator[ExistingBin]:
        """Every node, in the order of the table."""
        return (self._bin(number) for number in range(len(self._table.bases)))

    def _bin(self, number: int) -> ExistingBin:
        found = self._bins.get(number)
        if found is None:
            found = self._bins[number] = ExistingBin(self._table.bases[number])
        return found

    def added(self, each: ExistingBin, request: Vector) -> None:
        """A node got a pod."""
        self._remaining[:, self._table.numbers[each.base.node.name]] -= request

    def pods(self) -> dict[str, tuple[PodDemand, ...]]:
        """The pods that were added, by node name."""
        touched = (self._bins[n] for n in sorted(self._bins))
        return {b.base.node.name: tuple(b.pods) for b in touched if b.pods}
