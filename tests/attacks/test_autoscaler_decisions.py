"""One tenant with very many pods neither slows the decisions of others nor stops its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from moxwell.app.decision_worker import decoded, encoded
from moxwell.app.decision_workers import DecisionAborted, DecisionWorkers
from moxwell.controllers.karpenter.batch_limit import SMALLEST, BatchLimit
from moxwell.controllers.karpenter.decisions import DecisionTimeout
from moxwell.controllers.karpenter.disruption.decide import confirm, decided_round
from moxwell.errors import Invalid
from moxwell.runtime.key import Key
from moxwell.scheduling.disruption.cluster_state import (
    DisruptionNode,
    DisruptionPool,
    DisruptionSnapshot,
)
from moxwell.scheduling.packing.cluster import ClusterSnapshot, ProvisioningPool, SolverOptions
from moxwell.scheduling.packing.nodes import ClusterNode
from moxwell.scheduling.packing.pods import pairs
from moxwell.testing.bad_decisions import ended, endless, hungry, refused
from moxwell.testing.machine_provider import default_types

A, B = Key("tenant-a", "one"), Key("tenant-b", "two")
MANY = 10_000  # the size of a decision that a process computes


@asynccontextmanager
async def workers(count: int = 1, seconds: float = 60.0) -> AsyncIterator[DecisionWorkers]:
    found = DecisionWorkers(count, seconds)
    try:
        yield found
    finally:
        await found.stop()


def test_a_decision_without_end_is_ended_and_the_next_tenant_has_its_turn() -> None:
    async def story() -> None:
        async with workers(1, 1.0) as found:
            a, b = found.of(A), found.of(B)
            bad = asyncio.create_task(a.run(endless, MANY))
            await asyncio.sleep(0)
            assert await b.run(partial(sum, [1, 2]), MANY) == 3
            with pytest.raises(DecisionTimeout, match="10000 pods took longer than 1 seconds"):
                await bad
            assert await a.run(partial(sum, [2, 2]), MANY) == 4

    asyncio.run(story())


def test_the_event_loop_goes_on_while_a_tenant_decides() -> None:
    async def story() -> None:
        async with workers(1, 3.0) as found:
            bad = asyncio.create_task(found.of(A).run(endless, MANY))
            turns = 0
            while not bad.done():
                await asyncio.sleep(0.01)
                turns += 1
            assert turns > 20
            with pytest.raises(DecisionTimeout):
                await bad

    asyncio.run(story())


def test_a_tenant_has_one_decision_at_a_time() -> None:
    async def story() -> None:
        async with workers(2, 5.0) as found:
            a, b = found.of(A), found.of(B)
            for _ in range(2):  # both processes are started
                assert await b.run(partial(sum, [1]), MANY) == 1
            both = [asyncio.create_task(a.run(endless, MANY)) for _ in range(2)]
            await asyncio.sleep(0.05)
            assert await b.run(partial(sum, [1]), MANY) == 1
            assert not any(task.done() for task in both)  # the second process was free
            results = await asyncio.gather(*both, return_exceptions=True)
            assert [type(r) for r in results] == [DecisionTimeout] * 2

    asyncio.run(story())


def test_memory_errors_and_exits_stay_in_the_process() -> None:
    async def story() -> None:
        async with workers() as found:
            a = found.of(A)
            with pytest.raises(DecisionTimeout, match="memory"):
                await a.run(hungry, MANY)
            with pytest.raises(Invalid, match="no such pool"):
                await a.run(refused, MANY)
            with pytest.raises(DecisionAborted):
                await a.run(ended, MANY)
            assert await a.run(partial(sum, [1]), MANY) == 1

    asyncio.run(story())


def _snapshot() -> DisruptionSnapshot:
    """Two half empty nodes whose pods fit on one."""
    types = default_types()
    labels = pairs(
        {
            "karpenter.sh/nodepool": "default",
            "node.kubernetes.io/instance-type": types[2].name,
            "karpenter.sh/capacity-type": "on-demand",
            "topology.kubernetes.io/zone": "host-1",
        }
    )
    made = [
        ClusterNode(
            name, labels, dict(types[2].capacity), types[2].allocatable, (), labels, (), True, True,
            True, False, (),
        )
        for name in ("n-1", "n-2")
    ]  # fmt: skip
    cluster = ClusterSnapshot((ProvisioningPool("default", types),), tuple(made))
    nodes = tuple(DisruptionNode(n) for n in made)
    return DisruptionSnapshot(cluster, (DisruptionPool("default", types),), nodes)


def test_a_decision_of_a_process_is_the_same_and_can_be_confirmed_in_another() -> None:
    snapshot, options = _snapshot(), SolverOptions()
    here = decided_round(snapshot, options, optimise=True)
    wanted = here.decided
    assert wanted is not None

    async def story() -> Any:
        async with workers() as found:
            a = found.of(A)
            there = await a.run(partial(decided_round, snapshot, options, optimise=True), MANY)
            assert there.decided is not None
            assert there.decided.method == wanted.method
            return await a.run(partial(confirm, snapshot, there.decided, options), MANY)

    confirmed = asyncio.run(story())
    (command,) = wanted.commands
    assert [c.name for c in confirmed.candidates] == [c.name for c in command.candidates]
    assert decoded(encoded(here)).decided.method == wanted.method


def pod(number: int) -> dict[str, Any]:
    return {"metadata": {"uid": f"u{number:05}", "creationTimestamp": f"2026-01-{number % 28:02}"}}


def test_every_pod_has_its_turn_though_the_first_never_fit() -> None:
    limit, pods = BatchLimit(100), [pod(n) for n in range(1000)]
    seen: set[str] = set()
    for _ in range(10):
        chosen = limit.choose(pods)
        assert len(chosen) == 100
        assert not seen & chosen
        seen |= chosen
    assert len(seen) == 1000
    assert limit.choose(pods)  # and again from the first


def test_looking_does_not_advance_and_a_long_pass_makes_the_next_smaller() -> None:
    limit, pods = BatchLimit(), [pod(n) for n in range(1000)]
    assert len(limit.choose(pods)) == 1000
    limit.too_long(1000)
    assert limit.choose(pods, advance=False) == limit.choose(pods, advance=False)
    assert len(limit.choose(pods)) == 500
    limit.too_long(110)
    assert limit.pods == SMALLEST
    limit.finished()
    assert limit.pods == 2 * SMALLEST
