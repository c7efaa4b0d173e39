"""All Machines of a cluster share one list of its nodes."""

import asyncio
from typing import Any

import pytest

from moxwell.embedded.clusterapi.machine.tenant_nodes import (
    FRESH_SECONDS,
    KEPT_TENANTS,
    LONGEST_SECONDS,
    SharedNodeLists,
)
from moxwell.runtime.key import Key
from moxwell.testing.loop import LoopClock, run_virtual

A, B = Key("team", "a"), Key("team", "b")


class CountedTenant:
    """Counts the lists."""

    def __init__(self, *provider_ids: str, seconds: float = 0.01) -> None:
        self.provider_ids, self.lists, self.seconds = list(provider_ids), 0, seconds

    async def list(self, _: Any) -> Any:
        self.lists += 1
        await asyncio.sleep(self.seconds)
        items = [{"metadata": {"name": p}, "spec": {"providerID": p}} for p in self.provider_ids]
        items.append({"metadata": {"name": "foreign"}, "spec": {}})
        return type("Page", (), {"items": items})


def test_many_machines_cause_one_list_and_a_new_node_is_found_seconds_later() -> None:
    async def story() -> None:
        nodes, one, other = SharedNodeLists(LoopClock()), CountedTenant("p1"), CountedTenant("p2")
        a: Any = one
        b: Any = other
        found = await asyncio.gather(*(nodes.find(A, a, "p1") for _ in range(50)))
        assert {n["metadata"]["name"] for n in found if n} == {"p1"}
        assert one.lists == 1
        assert await nodes.find(B, b, "p1") is None  # tenants are apart
        one.provider_ids.append("new")
        assert await nodes.find(A, a, "new") is None
        await asyncio.sleep(2)
        assert await nodes.find(A, a, "new") is not None
        assert (one.lists, other.lists) == (2, 1)
        await asyncio.sleep(2)
        assert await nodes.named(A, a, "p1") is not None  # a check reads no new list
        assert await nodes.named(A, a, "gone") is None
        assert one.lists == 2

    run_virtual(story())


@pytest.mark.parametrize(
    "seconds, used",
    [
        pytest.param(0.05, FRESH_SECONDS, id="fast"),
        pytest.param(0.5, 10.0, id="slow"),
        pytest.param(60.0, LONGEST_SECONDS, id="very slow"),
    ],
)
def test_listing_takes_a_twentieth_of_the_time(seconds: float, used: float) -> None:
    async def story() -> None:
        nodes, tenant = SharedNodeLists(LoopClock()), CountedTenant("p", seconds=seconds)
        a: Any = tenant
        await nodes.find(A, a, "p")
        await asyncio.sleep(used - 0.01)
        await nodes.find(A, a, "p")
        assert tenant.lists == 1
        await asyncio.sleep(0.02)
        await nodes.find(A, a, "p")
        assert tenant.lists == 2

    run_virtual(story())


def test_deleted_tenants_are_forgotten() -> None:
    async def story() -> None:
        nodes = SharedNodeLists(LoopClock())
        first: Any = CountedTenant("p")
        await nodes.find(A, first, "p")
        for number in range(KEPT_TENANTS):
            other: Any = CountedTenant()
            await nodes.find(Key("team", f"t{number}"), other, "p")
        await nodes.find(A, first, "p")
        assert first.lists == 2

    run_virtual(story())
