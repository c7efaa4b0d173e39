"""Taint eviction: when a pod must leave its node."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from moxwell.embedded.controllermanager import resources
from moxwell.embedded.controllermanager.tainteviction import plan
from moxwell.embedded.controllermanager.tainteviction.controller import TaintEvictionController
from moxwell.embedded.controllermanager.workloads import new_pod
from moxwell.kube.client import Kube
from moxwell.runtime.manager import assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual

Json = dict[str, Any]
UNREACHABLE: Json = {
    "key": "node.kubernetes.io/unreachable",
    "effect": "NoExecute",
    "timeAdded": "2025-12-31T23:58:20Z",  # a wall clock: not used
}
MINE: Json = {"key": "mine", "value": "yes", "effect": "NoExecute"}


def pod(*tolerations: Json) -> Json:
    return {"spec": {"tolerations": list(tolerations)}}


def tolerates(key: str, seconds: int | None = None, **more: Any) -> Json:
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **limit, **more}


@pytest.mark.parametrize(
    "obj, taints, seconds",
    [
        pytest.param(pod(), [], None, id="no taints"),
        pytest.param(pod(), [UNREACHABLE], 0, id="not tolerated"),
        pytest.param(
            pod(tolerates(UNREACHABLE["key"], 300)),
            [UNREACHABLE],
            200,
            id="tolerated for a while",
        ),
        pytest.param(
            pod(tolerates(UNREACHABLE["key"])), [UNREACHABLE], None, id="tolerated for ever"
        ),
        pytest.param(
            pod({"operator": "Exists"}), [UNREACHABLE, MINE], None, id="everything is tolerated"
        ),
        pytest.param(
            pod(tolerates(UNREACHABLE["key"], -5)),
            [UNREACHABLE],
            0,
            id="a negative time is none",
        ),
        pytest.param(
            pod(tolerates(UNREACHABLE["key"], 300)),
            [UNREACHABLE, MINE],
            0,
            id="one of two is not tolerated",
        ),
        pytest.param(
            pod(tolerates(UNREACHABLE["key"], 900), tolerates("mine", 5)),
            [UNREACHABLE, MINE],
            5,
            id="the shortest time counts",
        ),
        pytest.param(
            pod({"key": "mine", "value": "no", "effect": "NoExecute"}),
            [MINE],
            0,
            id="another value",
        ),
    ],
)
def test_seconds_left(obj: Json, taints: Iterable[Json], seconds: float | None) -> None:
    seen = plan.ObservedTaints(tuple(taints), {UNREACHABLE["key"]: 100.0, "mine": 0.0})
    assert plan.seconds_left(obj, seen) == seconds


def test_a_daemon_pod_stays_on_an_unreachable_node() -> None:
    meta = {"name": "d", "namespace": "d", "uid": "u"}
    owner: Json = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta}
    obj = new_pod(owner, {"spec": {}}, node="n")
    assert plan.seconds_left(obj, plan.ObservedTaints((UNREACHABLE,))) is None


def test_only_no_execute_taints_evict() -> None:
    node = {"spec": {"taints": [UNREACHABLE, {**MINE, "effect": "NoSchedule"}]}}
    assert plan.no_execute_taints(node) == [UNREACHABLE]
    assert plan.no_execute_taints(None) == []


def test_pods_are_deleted_when_their_toleration_ends() -> None:
    async def story() -> None:
        clock = LoopClock()
        fake = FakeKube(clock)
        kube = Kube(fake)
        await kube.create({"metadata": {"name": "n"}, "spec": {}}, resources.NODES)
        for name, obj in (
            ("tolerant", pod(tolerates("mine"))),
            ("for-a-minute", pod(tolerates("mine", 60))),
            ("plain", pod()),
        ):
            spec = {**obj["spec"], "nodeName": "n"}
            meta = {"name": name, "namespace": "d"}
            await kube.create({"metadata": meta, "spec": spec}, resources.PODS)
        runtime = assemble(fake, clock, ManagerSettings(elect=False))
        caches = runtime.manager.caches
        controller = TaintEvictionController(
            runtime.kube, clock, caches.of(resources.NODES), caches.of(resources.PODS)
        )
        runtime.manager.add(Controller(name="embedded.tainteviction", reconciler=controller))
        running = asyncio.create_task(runtime.manager.run())
        await clock.sleep(1)
        assert await there(kube) == {"tolerant", "for-a-minute", "plain"}
        await kube.merge(resources.NODES, "n", {"spec": {"taints": [MINE]}})
        await clock.sleep(1)
        assert await there(kube) == {"tolerant", "for-a-minute"}
        await clock.sleep(61)
        assert await there(kube) == {"tolerant"}
        runtime.manager.stop()
        await running

    run_virtual(story())


async def there(kube: Kube) -> set[str]:
    return {p["metadata"]["name"] for p in (await kube.list(resources.PODS)).items}
