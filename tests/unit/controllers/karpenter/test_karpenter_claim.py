"""Node claims from their launch to their end, on virtual time."""

from dataclasses import replace
from typing import Any

import pytest

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.claim.setup import ClaimSettings
from moxwell.controllers.karpenter.names import FINALIZER, TERMINATION_TIMESTAMP
from moxwell.controllers.karpenter.provider import LaunchFailure
from moxwell.kube.errors import NotFound
from moxwell.runtime.manager import Manager
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.loop import run_virtual
from moxwell.testing.node_claims import (
    ATTACHMENTS,
    BUDGETS,
    PODS,
    ClaimWorld,
    claim_program,
    claim_world,
    start_claim_world,
)
from moxwell.testing.reconcile import crash_after_each_effect

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
STARTUP = {"key": "cni", "effect": "NoSchedule"}


def test_a_launched_machine_registers_initializes_and_is_ready() -> None:
    async def story() -> None:
        async with claim_world() as w:
            requests = {"cpu": "1", "memory": "1Gi"}
            await w.add_claim(
                taints=[TAINT], startupTaints=[STARTUP], resources={"requests": requests}
            )
            await w.until_condition("Initialized", "Unknown", "StartupTaintsExist")
            claim, node = await w.claim(), await w.kube.get(Node, "c-1")
            assert claim.status.provider_id == node.spec.provider_id != ""
            assert claim.status.node_name == "c-1"
            assert claim.status.image_id == "9000"
            assert claim.metadata.labels["node.kubernetes.io/instance-type"] == "t1.2VCPU-4GB"
            assert FINALIZER in claim.metadata.finalizers
            assert FINALIZER in node.metadata.finalizers
            assert [o.uid for o in node.metadata.owner_references] == [claim.metadata.uid]
            assert {t.key for t in node.spec.taints} >= {"team", "cni"}
            assert "karpenter.sh/unregistered" not in {t.key for t in node.spec.taints}
            labels = node.metadata.labels
            assert labels["karpenter.sh/registered"] == "true"
            assert labels["topology.kubernetes.io/zone"] == "host-1"
            assert not await w.is_ready()
            kept = [t for t in node.spec.taints if t.key != "cni"]
            taints = [{"key": t.key, "effect": t.effect} for t in kept]
            await w.kube.merge(Node, "c-1", {"spec": {"taints": taints}})
            await w.until(w.is_ready)
            assert await w.condition("ConsistentStateFound") == ("True", "ConsistentStateFound")
            assert w.provider.launches == 1

    run_virtual(story())


@pytest.mark.parametrize(
    ("failure", "event"),
    [
        (LaunchFailure.INSUFFICIENT_CAPACITY, "InsufficientCapacityError"),
        (LaunchFailure.NODE_CLASS_NOT_READY, "NodeClassNotReady"),
    ],
)
def test_a_claim_that_cannot_be_launched_is_deleted_with_an_event(
    failure: LaunchFailure, event: str
) -> None:
    async def story() -> None:
        async with claim_world() as w:
            w.provider.failing = {t.name: (failure, "host-1 is full") for t in w.provider.types}
            await w.add_claim()
            await w.until_gone(NodeClaim, "c-1")
            await w.until(lambda: w.has_event(event, "host-1 is full"))
            assert w.provider.machines == {}

    run_virtual(story())


def test_a_launch_that_fails_says_why_and_ends_with_the_timeout() -> None:
    async def story() -> None:
        async with claim_world() as w:
            why = (LaunchFailure.LAUNCH_FAILED, "template 9000 is missing")
            w.provider.failing = {t.name: why for t in w.provider.types}
            await w.add_claim()
            await w.until_condition("Launched", "Unknown", "LaunchFailed")
            claim = await w.claim()
            text = next(c.message for c in claim.status.conditions if c.type == "Launched")
            assert text == "template 9000 is missing"
            begun = w.clock.now()
            await w.until_gone(NodeClaim, "c-1")
            assert 200 < (w.clock.now() - begun).total_seconds() < 400

    run_virtual(story())


def test_a_machine_that_never_joins_is_deleted_after_15_minutes() -> None:
    async def story() -> None:
        async with claim_world() as w:
            w.joining = False
            await w.add_claim()
            begun = w.clock.now()
            await w.until_condition("Registered", "Unknown", "NodeNotFound")
            await w.until_gone(NodeClaim, "c-1")
            assert 850 < (w.clock.now() - begun).total_seconds() < 1000
            assert w.provider.machines == {}

    run_virtual(story())


async def _ready(w: ClaimWorld, **spec: Any) -> None:
    await w.add_claim(**spec)
    await w.until(w.is_ready)


def test_an_expired_claim_is_drained_and_deleted() -> None:
    async def story() -> None:
        async with claim_world() as w:
            await _ready(w, expireAfter="1h")
            await w.add_pod("web", "c-1")
            await w.clock.sleep(3500)
            assert not await w.gone(NodeClaim, "c-1")
            await w.until_gone(NodeClaim, "c-1")
            assert await w.gone(Node, "c-1")
            assert await w.gone(PODS, "web", "default")
            assert w.provider.machines == {}
            await w.until(lambda: w.has_event("Evicted"))

    run_virtual(story())


def test_a_node_that_a_user_deletes_takes_its_claim_with_it() -> None:
    async def story() -> None:
        async with claim_world() as w:
            await _ready(w)
            await w.kube.delete(Node, "c-1")
            await w.until_gone(NodeClaim, "c-1")
            assert await w.gone(Node, "c-1")
            assert w.provider.machines == {}

    run_virtual(story())


def test_a_budget_blocks_the_drain_until_the_grace_period_ends() -> None:
    async def story() -> None:
        async with claim_world() as w:
            await _ready(w, terminationGracePeriod="10m")
            await w.add_pod("web", "c-1", metadata={"labels": {"app": "web"}})
            budget = {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "all", "namespace": "default"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
            }
            await w.kube.create(budget, BUDGETS)
            await w.clock.sleep(5)
            await w.kube.delete(NodeClaim, "c-1")
            await w.until(lambda: w.has_event("FailedDraining", "violates a PDB"))
            assert await w.condition("Drained") == ("Unknown", "Draining")
            node = await w.kube.get(Node, "c-1")
            assert "karpenter.sh/disrupted" in {t.key for t in node.spec.taints}
            assert TERMINATION_TIMESTAMP in (await w.claim()).metadata.annotations
            await w.clock.sleep(480)
            assert not await w.gone(PODS, "web", "default")
            await w.until_gone(PODS, "web", "default")
            await w.until_gone(NodeClaim, "c-1")
            assert await w.has_event("Disrupted", "bypasses the PDB")

    run_virtual(story())


def test_a_pod_that_must_not_be_disrupted_is_waited_for() -> None:
    async def story() -> None:
        async with claim_world() as w:
            await _ready(w)
            note = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
            await w.add_pod("job", "c-1", metadata=note)
            await w.add_pod("web", "c-1")
            await w.kube.delete(NodeClaim, "c-1")
            await w.until_gone(PODS, "web", "default")
            await w.clock.sleep(900)
            assert not await w.gone(PODS, "job", "default")
            assert not await w.gone(Node, "c-1")
            await w.kube.delete(PODS, "job", "default")
            await w.until_gone(NodeClaim, "c-1")

    run_virtual(story())


def test_critical_pods_are_evicted_after_the_others() -> None:
    async def story() -> None:
        async with claim_world() as w:
            await _ready(w)
            w.ending = False
            await w.add_pod("dns", "c-1", priorityClassName="system-cluster-critical")
            await w.add_pod("web", "c-1")
            await w.kube.delete(NodeClaim, "c-1")

            async def ending(name: str) -> bool:
                pod = await w.kube.find(PODS, name, "default")
                return pod is not None and "deletionTimestamp" in pod["metadata"]

            await w.until(lambda: ending("web"))
            await w.clock.sleep(20)
            assert not await ending("dns")
            w.ending = True
            await w.until_gone(PODS, "web", "default")
            await w.until_gone(NodeClaim, "c-1")

    run_virtual(story())


def test_volumes_are_detached_before_the_machine_ends() -> None:
    async def story() -> None:
        async with claim_world() as w:
            await _ready(w)
            attachment = {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "VolumeAttachment",
                "metadata": {"name": "va-1"},
                "spec": {
                    "attacher": "csi",
                    "nodeName": "c-1",
                    "source": {"persistentVolumeName": "pv-1"},
                },
            }
            await w.kube.create(attachment, ATTACHMENTS)
            await w.kube.delete(NodeClaim, "c-1")
            await w.until_condition("VolumesDetached", "Unknown", "AwaitingVolumeDetachment")
            assert len(w.provider.machines) == 1
            await w.kube.delete(ATTACHMENTS, "va-1")
            await w.until_gone(NodeClaim, "c-1")

    run_virtual(story())


def test_the_node_stays_until_the_machine_is_gone() -> None:
    async def story() -> None:
        async with claim_world() as w:
            await _ready(w)
            w.provider.slow_termination = True
            await w.kube.delete(NodeClaim, "c-1")
            await w.until_condition("InstanceTerminating", "True")
            assert await w.condition("VolumesDetached") == ("True", "VolumesDetached")
            await w.clock.sleep(60)
            assert not await w.gone(Node, "c-1")
            w.provider.release()
            await w.until_gone(NodeClaim, "c-1")
            assert await w.gone(Node, "c-1")

    run_virtual(story())


def test_a_machine_that_vanished_is_collected_once_its_node_is_not_ready() -> None:
    async def story() -> None:
        async with claim_world() as w:
            await _ready(w)
            w.joining = False
            await w.add_pod("web", "c-1")
            w.provider.lose("c-1")
            await w.clock.sleep(600)
            assert not await w.gone(NodeClaim, "c-1")
            await w.set_ready("c-1", "Unknown")
            await w.until_gone(NodeClaim, "c-1")
            assert await w.gone(Node, "c-1")
            assert w.provider.launches == 1

    run_virtual(story())


def test_a_machine_without_claim_is_terminated() -> None:
    async def story() -> None:
        async with claim_world() as w:
            await _ready(w)
            other = next(iter(w.provider.machines.values()))
            lost = replace(other, claim="lost", uid="lost", provider_id="proxmox://region-1/9")
            w.provider.machines["lost"] = lost
            await w.until(lambda: _only(w))
            assert await w.is_ready()

    async def _only(w: ClaimWorld) -> bool:
        return "lost" not in w.provider.machines and len(w.provider.machines) == 1

    run_virtual(story())


def test_a_node_that_stays_unhealthy_is_replaced_where_repair_is_on() -> None:
    async def story() -> None:
        async with claim_world(ClaimSettings(repair=True)) as w:
            await _ready(w)
            await w.set_ready("c-1", "Unknown")
            await w.clock.sleep(800)
            assert not await w.gone(NodeClaim, "c-1")
            await w.until_gone(NodeClaim, "c-1")
            assert w.provider.machines == {}

    run_virtual(story())


class ClaimIsMadeAndDeleted:
    """A node claim becomes ready; then it is deleted."""

    async def world(self) -> ClaimWorld:
        return await start_claim_world()

    def program(self, world: ClaimWorld, wires: EffectCounter) -> Manager:
        return claim_program(world, wires)

    async def act(self, world: ClaimWorld) -> None:
        await world.add_claim(terminationGracePeriod="10m")
        await world.until(world.is_ready)
        await world.add_pod("web", "c-1")
        await world.kube.delete(NodeClaim, "c-1")
        await world.until_gone(NodeClaim, "c-1")

    async def check(self, world: ClaimWorld) -> None:
        assert world.provider.machines == {}
        assert await world.gone(Node, "c-1")
        with pytest.raises(NotFound):
            await world.kube.get(PODS, "web", "default")
        assert world.provider.launches == 1


def test_a_kill_after_any_write_costs_nothing() -> None:
    effects = crash_after_each_effect(ClaimIsMadeAndDeleted(), quiet_seconds=30.0)
    assert len(effects) > 8
