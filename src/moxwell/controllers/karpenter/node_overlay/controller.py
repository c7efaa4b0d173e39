"""
``karpenter.nodeoverlay``: validates overlays.

One evaluation concerns all overlays, node pools and instance types at once. Its result is shared by
the passes of all overlays until one of them changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from moxwell.api.conditions import Condition
from moxwell.api.karpenter.capacity import NodeOverlay, NodeOverlayStatus
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.clock import Clock
from moxwell.controllers.karpenter.decisions import DecisionRunner
from moxwell.controllers.karpenter.karpenter_conditions import DependentsReason
from moxwell.controllers.karpenter.node_overlay.provider import OverlaidProvider, overlaid_pool
from moxwell.controllers.karpenter.state.pools import label_rules
from moxwell.errors import MoxwellError
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.watches import Watch
from moxwell.scheduling.packing.overlays import (
    CONFLICT,
    OverlaidPool,
    OverlayRefusal,
    overlaid,
)

NAME = "karpenter.nodeoverlay"
VALIDATION_SUCCEEDED = "ValidationSucceeded"
RECHECK_SECONDS = 60.0
MOST_NAMED = 20  # overlays whose conflicts are looked for


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """What was evaluated, when, and which overlays were refused."""

    versions: tuple[tuple[str, int], ...]
    since: float
    refused: dict[str, OverlayRefusal]


class NodeOverlayReconciler(
    Reconciler[NodeOverlay, OverlayRefusal | None, Done, NodeOverlayStatus]
):
    """One pass per overlay."""

    kind = NodeOverlay

    def __init__(
        self,
        provider: OverlaidProvider,
        overlays: Cache[NodeOverlay],
        pools: Cache[NodePool],
        clock: Clock,
        decisions: DecisionRunner,
    ) -> None:
        self._provider, self._overlays, self._pools = provider, overlays, pools
        self._clock, self._decisions = clock, decisions
        self._last: _Evaluation | None = None
        self.watches = (
            Watch(NodePool, self._all, _spec_changed),
            Watch(NodeOverlay, self._all, _spec_changed),
        )

    def _all(self, _: object) -> Iterable[Key]:
        """A change of one overlay or pool may cause or end conflicts of all."""
        return [Key("", o.metadata.name) for o in self._overlays.list()]

    async def see(self, obj: NodeOverlay, reader: Reader) -> OverlayRefusal | None:
        return (await self._evaluated()).get(obj.metadata.name)

    async def _evaluated(self) -> dict[str, OverlayRefusal]:
        overlays, pools = self._overlays.list(), self._pools.list()
        versions = (*map(_version, overlays), *map(_version, pools))
        now, last = self._clock.monotonic(), self._last
        if last and last.versions == versions and now - last.since < RECHECK_SECONDS:
            return last.refused
        listed = [p for p in [await self._listed(p) for p in pools] if p is not None]
        size = len(overlays) * sum(len(p.instance_types) for p in listed)
        evaluate = partial(overlaid, listed, overlays, label_rules())
        refused = dict((await self._decisions.run(evaluate, size)).refused)
        name = partial(conflicting_overlays, listed, overlays, frozenset(refused))
        refused = named_conflicts(refused, await self._decisions.run(name, size))
        self._provider.accept(o for o in overlays if o.metadata.name not in refused)
        self._last = _Evaluation(versions, now, refused)
        return refused

    async def _listed(self, pool: NodePool) -> OverlaidPool | None:
        try:
            return overlaid_pool(pool, await self._provider.inner.instance_types(pool))
        except MoxwellError:  # the pool says why in its own conditions
            return None

    def plan(self, obj: NodeOverlay, seen: OverlayRefusal | None) -> Done:
        return Done(requeue_after=RECHECK_SECONDS)

    async def act(self, move: Done) -> None:
        """Nothing is written but the status."""

    def describe(
        self, obj: NodeOverlay, seen: OverlayRefusal | None, move: Done
    ) -> NodeOverlayStatus:
        return NodeOverlayStatus(conditions=conditions_of(seen))


def conflicting_overlays(
    pools: list[OverlaidPool], overlays: Iterable[NodeOverlay], refused: frozenset[str]
) -> dict[str, tuple[str, ...]]:
    """For each refused overlay the accepted ones that refuse it alone. Pure."""
    known = {o.metadata.name: o for o in overlays}
    accepted = [o for name, o in sorted(known.items()) if name not in refused]
    found = {}
    for name in sorted(refused)[:MOST_NAMED]:
        each = known[name]
        rivals = [o for o in accepted if o.spec.weight == each.spec.weight]
        found[name] = tuple(
            o.metadata.name
            for o in rivals[:MOST_NAMED]
            if name in overlaid(pools, [o, each], label_rules()).refused
        )
    return found


def named_conflicts(
    refused: Mapping[str, OverlayRefusal], rivals: Mapping[str, tuple[str, ...]]
) -> dict[str, OverlayRefusal]:
    """The refusals with the names of the overlays that they conflict with. Pure."""
    return {
        name: replace(why, message=f"{why.message}: {', '.join(rivals[name])}")
        if why.reason == CONFLICT and rivals.get(name)
        else why
        for name, why in refused.items()
    }


def conditions_of(refusal: OverlayRefusal | None) -> tuple[Condition, ...]:
    """The conditions of an overlay. Pure."""
    if refusal is None:
        valid = Condition(
            type=VALIDATION_SUCCEEDED, status="True", reason=VALIDATION_SUCCEEDED, message=""
        )
        return (valid, Condition(type="Ready", status="True", reason="Ready", message=""))
    valid = Condition(
        type=VALIDATION_SUCCEEDED, status="False", reason=refusal.reason, message=refusal.message
    )
    text = f"{VALIDATION_SUCCEEDED}=False"
    ready = Condition(type="Ready", status="False", reason=DependentsReason.UNHEALTHY, message=text)
    return (valid, ready)


def _version(obj: Any) -> tuple[str, int]:
    return f"{obj.metadata.uid}", obj.metadata.generation


def _spec_changed(old: Any, new: Any) -> bool:
    return old is None or new is None or _version(old) != _version(new)
