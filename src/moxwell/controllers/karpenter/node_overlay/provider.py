"""
A provider of machines whose instance types have the accepted overlays applied.

Decisions see overlaid prices and resources. At a launch the claim is narrowed to the options that
are cheapest by these prices, then, if there is no room for them, to the next. Resources that only
an overlay adds are not asked of the provider: a device plugin registers them later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from moxwell.api.karpenter.capacity import NodeOverlay
from moxwell.api.karpenter.fields import NodeClaimRequirement
from moxwell.api.karpenter.nodeclaims import NodeClaim, ResourceRequests
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.kinds import as_dict
from moxwell.controllers.karpenter.provider import (
    LaunchFailure,
    MachineProvider,
    NodeClassState,
    NodeInstance,
)
from moxwell.controllers.karpenter.state.pools import label_rules
from moxwell.errors import Busy
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.scheduling.host_room import HostRoom
from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.packing.overlays import OverlaidPool, overlaid
from moxwell.scheduling.packing.pod_parsing import label_pairs, pool_requirements
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.spot_room import RoomNeed, SpotGuest, SpotInterruption
from moxwell.scheduling.well_known_labels import INSTANCE_TYPE, NODE_POOL

Types = tuple[InstanceType, ...]


class OverlaysPending(Busy):
    """Overlays exist that were not validated yet, so prices are not known."""

    reason = "OverlaysPending"


@dataclass(frozen=True, slots=True)
class _Applied:
    listed: Types
    rooms: tuple[HostRoom | None, ...]  # of the offerings, which are compared without them
    accepted: frozenset[tuple[str, int]]
    result: Types


class OverlaidProvider:
    """Karpenter's cloud provider with overlays."""

    def __init__(
        self, inner: MachineProvider, overlays: Cache[NodeOverlay], pools: Cache[NodePool]
    ) -> None:
        self.inner = inner
        self._overlays, self._pools = overlays, pools
        self._accepted: frozenset[tuple[str, int]] | None = None  # names and generations
        self._applied: dict[str, _Applied] = {}

    def accept(self, overlays: Iterable[NodeOverlay]) -> bool:
        """Use exactly these overlays from now on; True if others were used before."""
        accepted = frozenset(map(_version, overlays))
        changed, self._accepted = accepted != self._accepted, accepted
        return changed

    async def instance_types(self, pool: NodePool) -> Types:
        """The types of a pool with overlays applied."""
        return self._applied_to(pool, await self.inner.instance_types(pool))

    def _applied_to(self, pool: NodePool, listed: Types) -> Types:
        known = self._overlays.list()
        if self._overlays.synced and not known:
            return listed
        if self._accepted is None:
            raise OverlaysPending("the node overlays are not evaluated yet")
        used = [o for o in known if _version(o) in self._accepted]
        return self._overlaid(pool, listed, used)

    def _overlaid(self, pool: NodePool, listed: Types, used: list[NodeOverlay]) -> Types:
        name, accepted = pool.metadata.name, frozenset(map(_version, used))
        before = self._applied.get(name)
        rooms = tuple(o.room for each in listed for o in each.offerings)
        now = (listed, rooms, accepted)
        if before is None or (before.listed, before.rooms, before.accepted) != now:
            result = overlaid([overlaid_pool(pool, listed)], used, label_rules())
            before = _Applied(*now, result.instance_types[name])
            self._applied[name] = before
        return before.result

    async def launch(self, claim: NodeClaim) -> None:
        """Launch what is cheapest with the overlays applied and has room."""
        pool = self._pools.find(Key("", claim.metadata.labels.get(NODE_POOL, "")))
        options: tuple[NodeClaim, ...] = (claim,)
        if pool is not None and self._accepted:
            listed = await self.inner.instance_types(pool)
            options = launch_options(claim, listed, self._applied_to(pool, listed))
        for option in options:
            await self.inner.launch(option)
            found = await self.inner.instance(claim)
            if found is None or found.failure is not LaunchFailure.INSUFFICIENT_CAPACITY:
                return

    async def node_class(self, pool: NodePool) -> NodeClassState | None:
        return await self.inner.node_class(pool)

    async def instance(self, claim: NodeClaim) -> NodeInstance | None:
        return await self.inner.instance(claim)

    async def instances(self) -> tuple[NodeInstance, ...]:
        return await self.inner.instances()

    async def drift(self, claim: NodeClaim) -> str:
        return await self.inner.drift(claim)

    async def spot_guests(self) -> tuple[SpotGuest, ...]:
        return await self.inner.spot_guests()

    async def interruptions(self, pods: Iterable[RoomNeed]) -> tuple[SpotInterruption, ...]:
        return await self.inner.interruptions(pods)

    async def terminate(self, claim: str, uid: str) -> None:
        await self.inner.terminate(claim, uid)


def _version(overlay: NodeOverlay) -> tuple[str, int]:
    return overlay.metadata.name, overlay.metadata.generation


def overlaid_pool(pool: NodePool, types: Types) -> OverlaidPool:
    """A pool as the overlays see it."""
    return OverlaidPool(pool.metadata.name, label_pairs(pool.spec.template.metadata.labels), types)


def launch_options(claim: NodeClaim, listed: Types, applied: Types) -> tuple[NodeClaim, ...]:
    """The claim as the provider launches it, for each price from the lowest. Pure."""
    spec = claim.spec
    changed = {a.name: a for a, b in zip(applied, listed, strict=True) if a != b}
    options = _options(claim)
    if not changed.keys() & options:
        return (claim,)
    added = {n for a in changed.values() for n in a.capacity} - {
        n for b in listed for n in b.capacity
    }
    resources = _without(spec.resources, added)
    return tuple(
        msgspec.structs.replace(
            claim,
            spec=msgspec.structs.replace(spec, requirements=found, resources=resources),
        )
        for found in _by_price(claim, options, applied)
    )


def _options(claim: NodeClaim) -> frozenset[str]:
    wanted = (r for r in claim.spec.requirements if r.key == INSTANCE_TYPE and r.operator == "In")
    return frozenset(name for r in wanted for name in r.values)


def _by_price(
    claim: NodeClaim, options: frozenset[str], types: Types
) -> tuple[tuple[NodeClaimRequirement, ...], ...]:
    """The requirements with the options of one price only, for each price."""
    requirements = claim.spec.requirements
    wanted = {r.key: r for r in pool_requirements(as_dict(claim)["spec"]["requirements"])}
    prices: Mapping[str, float] = {
        t.name: min(found)
        for t in types
        if t.name in options
        and (found := [o.price for o in t.offerings if _is_launchable(o, wanted)])
    }
    names = [
        tuple(sorted(name for name, price in prices.items() if price == each))
        for each in sorted(set(prices.values()))
    ]
    return tuple(_only(requirements, kept) for kept in names) or (requirements,)


def _only(
    requirements: tuple[NodeClaimRequirement, ...], names: tuple[str, ...]
) -> tuple[NodeClaimRequirement, ...]:
    return tuple(
        msgspec.structs.replace(r, values=names, min_values=None) if r.key == INSTANCE_TYPE else r
        for r in requirements
    )


def _is_launchable(offering: Offering, wanted: Mapping[str, LabelRequirement]) -> bool:
    return offering.available and all(
        k not in wanted or wanted[k].has(v) for k, v in offering.labels
    )


def _without(resources: ResourceRequests | None, names: set[str]) -> ResourceRequests | None:
    if resources is None or not names & resources.requests.keys():
        return resources
    kept = {n: a for n, a in resources.requests.items() if n not in names}
    return ResourceRequests(requests=kept)
