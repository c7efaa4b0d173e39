"""Taints that drive pods away: when each must go, and a node that dies on virtual time."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moxwell.embedded.controllermanager import resources
from moxwell.embedded.controllermanager.nodelifecycle import taint_eviction
from moxwell.embedded.controllermanager.nodelifecycle.controller import Evictions
from moxwell.embedded.controllermanager.workloads import plan
from moxwell.kube.client import Kube
from moxwell.runtime.manager import assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import Settings
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADDED = NOW - timedelta(seconds=100)
DEAD: Json = {
    "key": "node.kubernetes.io/unreachable",
    "effect": "NoExecute",
    "timeAdded": "2025-12-31T23:58:20Z",
}
MINE: Json = {"key": "mine", "value": "yes", "effect": "NoExecute"}


def pod(*tolerations: Json) -> Json:
    return {"spec": {"tolerations": list(tolerations)}}


def bears(key: str, seconds: int | None = None, **more: Any) -> Json:
    patience = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **patience, **more}


@pytest.mark.parametrize(
    "made, taints, end",
    [
        pytest.param(pod(), [], None, id="no taints"),
        pytest.param(pod(), [DEAD], ADDED, id="not borne at all"),
        pytest.param(
            pod(bears(DEAD["key"], 300)), [DEAD], NOW + timedelta(seconds=200), id="for a while"
        ),
        pytest.param(pod(bears(DEAD["key"])), [DEAD], None, id="for ever"),
        pytest.param(pod({"operator": "Exists"}), [DEAD, MINE], None, id="everything"),
        pytest.param(pod(bears(DEAD["key"], -5)), [DEAD], ADDED, id="less than nothing is nothing"),
        pytest.param(pod(bears(DEAD["key"], 300)), [DEAD, MINE], NOW, id="one of two is not borne"),
        pytest.param(
            pod(bears(DEAD["key"], 900), bears("mine", 5)),
            [DEAD, MINE],
            NOW + timedelta(seconds=5),
            id="the shortest patience counts",
        ),
        pytest.param(
            pod({"key": "mine", "value": "no", "effect": "NoExecute"}),
            [MINE],
            NOW,
            id="another value",
        ),
    ],
)
def test_choose_end(made: Json, taints: Iterable[Json], end: datetime | None) -> None:
    assert taint_eviction.choose_end(made, list(taints), {"mine": NOW}) == end


def test_a_daemon_stays_on_a_dead_node() -> None:
    meta = {"name": "d", "namespace": "d", "uid": "u"}
    owner: Json = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta}
    made = plan.make_pod(owner, {"spec": {}}, node="n")
    assert taint_eviction.choose_end(made, [DEAD], {}) is None


def test_only_taints_that_execute_drive_away() -> None:
    node = {"spec": {"taints": [DEAD, {**MINE, "effect": "NoSchedule"}]}}
    assert taint_eviction.expelling(node) == [DEAD]
    assert taint_eviction.expelling(None) == []


def test_pods_leave_a_tainted_node_when_their_patience_ends() -> None:
    async def story() -> None:
        clock = LoopClock()
        fake = FakeKube(clock)
        kube = Kube(fake)
        await kube.create({"metadata": {"name": "n"}, "spec": {}}, resources.NODES)
        for name, made in (
            ("brave", pod(bears("mine"))),
            ("patient", pod(bears("mine", 60))),
            ("plain", pod()),
        ):
            spec = {**made["spec"], "nodeName": "n"}
            meta = {"name": name, "namespace": "d"}
            await kube.create({"metadata": meta, "spec": spec}, resources.PODS)
        runtime = assemble(fake, clock, Settings(elect=False))
        caches = runtime.manager.caches
        loop = Evictions(runtime.kube, clock, caches.of(resources.NODES), caches.of(resources.PODS))
        runtime.manager.add(Controller(name="upstream.evict", reconciler=loop))
        running = asyncio.create_task(runtime.manager.run())
        await clock.sleep(1)
        assert await there(kube) == {"brave", "patient", "plain"}
        await kube.merge(resources.NODES, "n", {"spec": {"taints": [MINE]}})
        await clock.sleep(1)
        assert await there(kube) == {"brave", "patient"}
        await clock.sleep(61)
        assert await there(kube) == {"brave"}
        runtime.manager.stop()
        await running

    run_virtual(story())


async def there(kube: Kube) -> set[str]:
    return {p["metadata"]["name"] for p in (await kube.list(resources.PODS)).items}
