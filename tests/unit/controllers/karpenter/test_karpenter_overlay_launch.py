"""What a provider with overlays launches: the cheapest options by overlaid prices."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec

from moxwell.api.karpenter.capacity import NodeOverlay
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.node_overlay.provider import OverlaidProvider, launch_options
from moxwell.controllers.karpenter.provider import InstanceState, LaunchFailure
from moxwell.runtime.cache import Cache
from moxwell.scheduling.host_room import HostRoom
from moxwell.scheduling.inventory_model import HostKey
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.testing.machine_provider import MemoryMachineProvider, machine_type
from moxwell.testing.node_claims import claim_object, pool_object

TYPE, CAPACITY = "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"
SMALL, LARGE = machine_type("small", 2, "4Gi", 0.02), machine_type("large", 8, "16Gi", 0.08)
FPGA = "example.com/fpga"


def priced(each: InstanceType, price: float) -> InstanceType:
    return replace(each, offerings=tuple(replace(o, price=price) for o in each.offerings))


def claim(*requirements: dict[str, Any], **requests: str) -> NodeClaim:
    options = {"key": TYPE, "operator": "In", "values": ["large", "small"], "minValues": 2}
    body = claim_object(requirements=[options, *requirements], resources={"requests": requests})
    return msgspec.convert(body, NodeClaim)


def launched_claim(
    given: NodeClaim, listed: tuple[InstanceType, ...], applied: tuple[InstanceType, ...]
) -> NodeClaim:
    """What is launched first."""
    return launch_options(given, listed, applied)[0]


def options(found: NodeClaim) -> list[str]:
    return [v for r in found.spec.requirements if r.key == TYPE for v in r.values]


def test_without_a_changed_option_the_claim_is_launched_as_it_is() -> None:
    other = machine_type("other", 4, "8Gi", 0.04)
    given = claim()
    assert launched_claim(given, (SMALL, LARGE), (SMALL, LARGE)) is given
    assert launched_claim(given, (SMALL, other), (SMALL, priced(other, 0.0))) is given


def test_the_cheapest_options_by_overlaid_prices_are_launched() -> None:
    cheap = priced(LARGE, 0.001)
    assert options(launched_claim(claim(), (SMALL, LARGE), (SMALL, cheap))) == ["large"]
    same = priced(LARGE, 0.02)
    assert options(launched_claim(claim(), (SMALL, LARGE), (SMALL, same))) == ["large", "small"]


def test_offerings_that_the_claim_excludes_or_that_are_used_up_have_no_price() -> None:
    only = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["host-1"]}
    first, second = LARGE.offerings
    elsewhere = replace(LARGE, offerings=(first, replace(second, price=0.001)))
    assert second.zone == "host-2"
    assert options(launched_claim(claim(only), (SMALL, LARGE), (SMALL, elsewhere))) == ["small"]
    used_up = replace(
        LARGE, offerings=tuple(replace(o, price=0.0, available=False) for o in LARGE.offerings)
    )
    assert options(launched_claim(claim(), (SMALL, LARGE), (SMALL, used_up))) == ["small"]


def test_resources_of_overlays_are_not_asked_of_the_provider() -> None:
    more = replace(LARGE, capacity={**LARGE.capacity, FPGA: 1000})
    found = launched_claim(claim(**{"cpu": "1", FPGA: "1"}), (SMALL, LARGE), (SMALL, more))
    assert found.spec.resources is not None
    assert dict(found.spec.resources.requests) == {"cpu": "1"}


def test_the_next_price_follows_when_there_is_no_room() -> None:
    cheap = priced(LARGE, 0.001)
    found = launch_options(claim(), (SMALL, LARGE), (SMALL, cheap))
    assert [options(each) for each in found] == [["large"], ["small"]]


class SurprisinglyFull(MemoryMachineProvider):
    """Offers everything; launches of ``large`` fail, and a failed launch may be repeated."""

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        return self.types

    async def launch(self, claim: NodeClaim) -> None:
        self.machines.pop(claim.metadata.uid, None)
        await super().launch(claim)


def provider_of(inner: MemoryMachineProvider) -> OverlaidProvider:
    """The provider with an overlay that makes ``large`` the cheapest."""
    pools: Cache[NodePool] = Cache(NodePool)
    overlays: Cache[NodeOverlay] = Cache(NodeOverlay)
    provider = OverlaidProvider(inner, overlays, pools)
    meta = {"name": "cheap", "generation": 1, "resourceVersion": "1"}
    wanted = [{"key": TYPE, "operator": "In", "values": ["large"]}]
    tree = {"metadata": meta, "spec": {"requirements": wanted, "price": "0.001"}}
    overlay = msgspec.convert(tree, NodeOverlay)
    overlays.put(overlay)
    overlays.expect_list()
    overlays.listed()
    pools.put(msgspec.convert(pool_object("default"), NodePool))
    provider.accept([overlay])
    return provider


def test_a_launch_falls_through_to_the_next_price() -> None:
    async def story() -> None:
        inner = SurprisinglyFull((SMALL, LARGE))
        provider = provider_of(inner)
        given = claim()
        no_room = (LaunchFailure.INSUFFICIENT_CAPACITY, "no host has room")
        inner.failing["large"] = no_room
        await provider.launch(given)
        found = await provider.instance(given)
        assert found is not None
        assert found.state is InstanceState.LAUNCHED
        assert (found.labels[TYPE], inner.launches) == ("small", 2)

    asyncio.run(story())


def hosted(cpus: int) -> tuple[InstanceType, ...]:
    """The types with offerings of a host that has so many CPUs free."""
    room = HostRoom(HostKey("region-1", "host-1"), cpus, 2**40, 2**40)
    return tuple(
        replace(t, offerings=tuple(replace(o, room=room) for o in t.offerings))
        for t in (SMALL, LARGE)
    )


def test_the_room_of_hosts_is_that_of_now_although_nothing_else_changes() -> None:
    async def story() -> None:
        inner = MemoryMachineProvider(hosted(16))
        provider, pool = provider_of(inner), msgspec.convert(pool_object("default"), NodePool)
        for free in (16, 8):
            inner.types = hosted(free)
            types = await provider.instance_types(pool)
            rooms = {o.room.cpus for t in types for o in t.offerings if o.room}
            assert rooms == {free}

    asyncio.run(story())
