"""What users see of disruption: events of nodes, node claims and pools, and gauges."""

from collections.abc import Mapping
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.disruption.blocked import blocked_nodes, blocked_pools
from moxwell.controllers.karpenter.disruption.decide import DisruptionDecided
from moxwell.controllers.karpenter.disruption.plan import DisruptionEvent
from moxwell.controllers.karpenter.disruption_metrics import DisruptionMetrics
from moxwell.controllers.karpenter.lookup import ClaimLookup
from moxwell.controllers.karpenter.state.snapshots import DisruptionView
from moxwell.runtime.events import Recorder
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note
from moxwell.scheduling.disruption.budgets import DisruptionReason, disruption_allowances
from moxwell.scheduling.disruption.candidates import all_candidates
from moxwell.scheduling.disruption.commands import DisruptionCommand
from moxwell.scheduling.disruption.validation import CommandRejected


class DisruptionReports:
    """Records events once per change of their text, and sets the gauges."""

    def __init__(
        self, name: str, lookup: ClaimLookup, recorder: Recorder, metrics: DisruptionMetrics
    ) -> None:
        self._name, self._lookup = name, lookup
        self._recorder, self._metrics = recorder, metrics
        self._blocked: dict[str, str] = {}
        self._unconsolidatable: dict[str, str] = {}
        self._claims: dict[str, str] = {}  # node of the last view -> its node claim
        self._prices: dict[str, float] = {}  # node of the last view that may go -> its price

    @property
    def kept(self) -> dict[str, str]:
        """Why node claims, by name, are not disrupted, as far as the last decisions found out."""
        blocked = {k.removeprefix("node/"): t for k, t in self._blocked.items() if k[:5] == "node/"}
        every = {**self._unconsolidatable, **blocked}
        return {self._claims[node]: text for node, text in every.items() if node in self._claims}

    @property
    def prices(self) -> dict[str, float]:
        """The prices of node claims, by name, that may be disrupted."""
        known = self._claims
        return {known[node]: price for node, price in self._prices.items() if node in known}

    def observed(self, view: DisruptionView) -> None:
        """Events of what newly blocks disruption, and the gauges."""
        snapshot = view.snapshot
        found = {n.name: view.claim(n.name) for n in snapshot.nodes}
        self._claims = {name: claim.name for name, claim in found.items() if claim is not None}
        allowed = {
            (pool, str(reason)): nodes
            for reason in DisruptionReason
            for pool, nodes in disruption_allowances(snapshot, reason).items()
        }
        candidates = all_candidates(snapshot)
        eligible = len(candidates)
        self._prices = {c.name: c.price for c in candidates}
        consuming = dict.fromkeys(view.pools, 0)
        for each in snapshot.nodes:
            if each.node.pool in consuming and (not each.ready or each.node.deleting):
                consuming[each.node.pool] += 1
        self._metrics.observed({str(r): eligible for r in DisruptionReason}, allowed, consuming)
        self._note_blocked(view, blocked_nodes(snapshot), blocked_pools(snapshot))

    def _note_blocked(
        self, view: DisruptionView, nodes: Mapping[str, str], pools: Mapping[str, str]
    ) -> None:
        for name, text in nodes.items():
            claim = view.claim(name)
            if claim is not None and self._blocked.get(f"node/{name}") != text:
                self._note(NodeClaim, claim, Note(DisruptionEvent.BLOCKED, text))
        for name, text in pools.items():
            pool = view.pools.get(name)
            if pool is not None and self._blocked.get(f"pool/{name}") != text:
                self._note(NodePool, pool, Note(DisruptionEvent.BLOCKED, text))
        self._blocked = {f"node/{n}": t for n, t in nodes.items()}
        self._blocked |= {f"pool/{n}": t for n, t in pools.items()}

    def unconsolidatable(self, view: DisruptionView, reasons: Mapping[str, str]) -> None:
        """Events of why nodes are not consolidated."""
        for name, text in reasons.items():
            if self._unconsolidatable.get(name) != text:
                self._note_node(view, name, Note(DisruptionEvent.UNCONSOLIDATABLE, text))
        known = {n.name for n in view.snapshot.nodes}
        merged = self._unconsolidatable | dict(reasons)
        self._unconsolidatable = {n: t for n, t in merged.items() if n in known}

    def proposed(self, view: DisruptionView, found: DisruptionDecided) -> None:
        """A command that is checked again before it is carried out."""
        command = found.commands[0]
        names = ", ".join(c.name for c in command.candidates)
        text = (
            f"Consolidation candidate: {command.decision} {names} "
            f"({found.method.reason}, savings: {command.savings:.4f})"
        )
        self._note_nodes(view, command, Note(DisruptionEvent.CANDIDATE, text))

    def rejected(
        self, view: DisruptionView, found: DisruptionDecided, why: CommandRejected
    ) -> None:
        """A command that did not hold."""
        command = found.commands[0]
        self._metrics.rejected(found.method, len(command.candidates))
        text = f"Consolidation rejected: {why.message}"
        self._note_nodes(view, command, Note(DisruptionEvent.REJECTED, text))

    def _note_nodes(self, view: DisruptionView, command: DisruptionCommand, note: Note) -> None:
        for each in command.candidates:
            self._note_node(view, each.name, note)

    def _note_node(self, view: DisruptionView, name: str, note: Note) -> None:
        claim = view.claim(name)
        if claim is None:
            return
        self._note(NodeClaim, claim, note)
        node = self._lookup.nodes.find(Key("", claim.status.node_name))
        if node is not None:
            self._note(Node, node, note)

    def _note(self, kind: Any, obj: Any, note: Note) -> None:
        self._recorder.note(self._name, kind, obj, note)
