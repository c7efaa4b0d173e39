"""Metrics of nodes, pods and pools under Karpenter's names, and the stages of a new node."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.node_metrics import metric_label, node_resources, utilization
from moxwell.controllers.karpenter.nodepool.controller import pool_price
from moxwell.controllers.karpenter.pod_decisions import PodDecisionTimes
from moxwell.controllers.karpenter.pod_metrics import (
    STATE_LABELS,
    stages,
    state_labels,
    waiting_since,
)
from moxwell.controllers.karpenter.provisioning_metrics import ProvisioningMetrics
from moxwell.controllers.karpenter.setup import add_autoscaler
from moxwell.runtime.manager import assemble
from moxwell.testing.autoscaler_world import (
    DEPLOYMENTS,
    bound_pods,
    deployment,
    renew_leases,
    run_pods,
    start_kubernetes,
)
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.machine_provider import default_types
from moxwell.testing.node_claims import pool_object, start_claim_world
from moxwell.testing.reconcile import SETTINGS
from support.karpenter_objects import node, pod

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_labels_are_those_of_karpenter() -> None:
    assert metric_label("node.kubernetes.io/instance-type") == "instance_type"
    assert metric_label("karpenter.sh/capacity-type") == "capacity_type"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
    given = pod("a", node="n", metadata={"name": "a", "namespace": "x", "ownerReferences": [owner]})
    labels = {"karpenter.sh/nodepool": "p", "topology.kubernetes.io/zone": "pve1"}
    found = dict(zip(STATE_LABELS, state_labels(given, node("n", labels=labels)), strict=True))
    assert found["owner"] == "/apis/apps/v1/namespaces/x/replicasets/web"
    assert (found["node"], found["scheduled"], found["managed"]) == ("n", "true", "true")
    assert (found["zone"], found["nodepool"], found["phase"]) == ("pve1", "p", "Running")


def test_the_resources_of_a_node() -> None:
    daemon = pod("d", node="n", metadata={"ownerReferences": [{"kind": "DaemonSet"}]})
    limited = pod("l", node="n")
    limited["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2"}
    given: Any = node("n")
    given["status"]["capacity"] = {"cpu": "4", "memory": "5Gi", "pods": "110"}
    found = node_resources(given, (daemon, limited))
    assert found["total_pod_requests"] == {"cpu": 2000, "memory": 2 * 2**30 * 1000, "pods": 2000}
    assert found["total_daemon_requests"]["cpu"] == 1000
    assert found["total_pod_limits"] == {"cpu": 2000, "pods": 2000}
    assert found["system_overhead"]["cpu"] == 2000
    assert utilization([found])["cpu"] == pytest.approx(100)
    broken = pod("b", node="n", spec={"containers": [{"resources": {"requests": {"cpu": "x"}}}]})
    assert node_resources(given, (broken,))["total_pod_requests"] == {"pods": 1000}


def claim(**conditions: int) -> NodeClaim:
    rows = [
        {"type": t, "status": "True", "lastTransitionTime": f"2026-01-01T00:00:{s:02d}Z"}
        for t, s in conditions.items()
    ]
    tree = {
        "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:02Z"},
        "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
        "status": {"conditions": rows},
    }
    return msgspec.convert(tree, NodeClaim)


def test_the_stages_add_up_to_the_time_until_the_pod_is_bound() -> None:
    bound = START.replace(second=40)
    found = dict(stages(START, claim(Launched=5, Registered=20, Initialized=30), bound))
    assert found == {
        "decided": 2, "launched": 3, "registered": 15, "initialized": 10, "bound": 10,
    }  # fmt: skip
    joined = START.replace(second=18)
    divided = dict(stages(START, claim(Launched=5, Registered=20), bound, joined))
    assert divided == {"decided": 2, "launched": 3, "joined": 13, "registered": 2, "bound": 20}
    early = dict(stages(START, claim(Launched=5, Initialized=50), bound))
    assert early == {"decided": 2, "launched": 3, "bound": 35}


def test_the_price_of_a_pool_and_what_is_left_of_a_deleted_one() -> None:
    labels = {"node.kubernetes.io/instance-type": "t1.4VCPU-8GB"}
    priced = msgspec.structs.replace(
        claim(), metadata=msgspec.structs.replace(claim().metadata, labels=labels)
    )
    assert pool_price([priced, claim()], default_types()) == pytest.approx(0.04)
    registry = CollectorRegistry()
    metrics = ProvisioningMetrics(registry)
    metrics.pool_priced("p", 0.04)
    metrics.pool_counted("p", "ephemeral-storage", 1, 2)
    where = {"nodepool": "p", "resource_type": "ephemeral_storage"}
    assert registry.get_sample_value("karpenter_nodepools_limit", where) == 2
    assert registry.get_sample_value("karpenter_nodepools_cost_total", {"nodepool": "p"}) == 0.04
    metrics.pool_gone("p")
    assert registry.get_sample_value("karpenter_nodepools_limit", where) is None
    assert registry.get_sample_value("karpenter_nodepools_cost_total", {"nodepool": "p"}) is None


def waiting(now: Any, given: dict[str, Any], times: PodDecisionTimes) -> dict[str, float]:
    return {name: (now() - since).total_seconds() for name, since in waiting_since(given, times)}


def test_how_long_a_pod_waits_begins_with_the_decision_in_memory() -> None:
    async def story() -> None:
        clock = LoopClock()
        times, created = PodDecisionTimes(clock), clock.now().isoformat()
        given = pod("a", metadata={"name": "a", "namespace": "x", "creationTimestamp": created})
        given["status"] = {"phase": "Pending"}
        await clock.sleep(1)
        times.seen("x/a")
        await clock.sleep(2)
        assert waiting(clock.now, given, times) == {
            "unstarted": 3, "unbound": 3, "provisioning_scheduling_undecided": 2,
        }  # fmt: skip
        assert times.decided(["x/a"], frozenset({"x/a"})) == [2]
        assert waiting(clock.now, given, times) == {"unstarted": 3, "unbound": 3}
        await clock.sleep(4)
        assert times.decided(["x/a"], frozenset()) == []
        await clock.sleep(5)
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": created}
        given["status"]["conditions"] = [condition]
        assert waiting(clock.now, given, times) == {"unstarted": 12, "provisioning_unstarted": 5}
        times.forget("x/a")
        given["status"]["phase"] = "Running"
        assert waiting(clock.now, given, times) == {}
        assert times.placeable_since("x/a") is None

    run_virtual(story())


def test_a_deployment_is_measured_from_pending_to_ready() -> None:
    async def story() -> None:
        world = await start_claim_world()
        kubernetes = await start_kubernetes(world)
        runtime = assemble(world.store, world.clock, SETTINGS)
        add_autoscaler(runtime, world.clock, world.provider)
        for name, loop in (("k", world.kubelets), ("p", lambda: run_pods(world)),
                           ("l", lambda: renew_leases(world))):  # fmt: skip
            runtime.manager.add_loop(f"test.{name}", loop)
        life = asyncio.create_task(runtime.manager.run())
        await world.kube.create(pool_object(), NodePool.resource)
        await world.kube.create(deployment("web", 3), DEPLOYMENTS)

        async def bound() -> bool:
            return len(await bound_pods(world)) == 3

        await world.until(bound)
        await world.clock.sleep(20)
        check_samples(runtime.metrics.registry)
        runtime.manager.stop()
        await life
        kubernetes.cancel()
        await asyncio.gather(kubernetes, return_exceptions=True)
        await world.store.stop()

    run_virtual(story())


def check_samples(registry: CollectorRegistry) -> None:
    value = registry.get_sample_value
    found = {s.name: s for m in registry.collect() for s in m.samples}
    assert found["karpenter_pods_state"].labels["phase"] == "Running"
    assert value("karpenter_pods_bound_duration_seconds_count") == 3
    assert value("karpenter_pods_scheduling_decision_duration_seconds_count") == 3
    assert value("karpenter_pods_startup_duration_seconds_count") == 3
    assert value("karpenter_pods_provisioning_bound_duration_seconds_count") == 3
    stage = "moxwell_pod_provisioning_stage_duration_seconds_count"
    names = ("decided", "launched", "joined", "registered", "bound")
    assert {n: value(stage, {"stage": n, "nodepool": "default"}) for n in names} == dict.fromkeys(
        names, 3.0
    )
    cpu = {"resource_type": "cpu"}
    assert 0 < (value("karpenter_cluster_utilization_percent", cpu) or 0) <= 100
    assert (value("karpenter_nodepools_cost_total", {"nodepool": "default"}) or 0) > 0
