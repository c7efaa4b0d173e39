"""Kills after every effect while overlays and buffers are validated and get nodes."""

import pytest

from moxwell.api.karpenter.capacity import CapacityBuffer, NodeOverlay
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.kinds import Resource
from moxwell.runtime.manager import Manager
from moxwell.testing.autoscaler_world import autoscaler_program, claims, start_kubernetes
from moxwell.testing.effect_counter import EffectCounter, Ending
from moxwell.testing.node_claims import ClaimWorld, pool_object, start_claim_world
from moxwell.testing.reconcile import ENDINGS, crash_after_each_effect

pytestmark = pytest.mark.slow
TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
TYPE, LARGE = "node.kubernetes.io/instance-type", "t1.8VCPU-16GB"


class BufferGetsNode:
    """An overlay makes the largest type the cheapest; a buffer gets one node of it."""

    async def world(self) -> ClaimWorld:
        world = await start_claim_world()
        self.kubernetes = await start_kubernetes(world)
        await world.kube.create(pool_object(), NodePool.resource)
        return world

    def program(self, world: ClaimWorld, wires: EffectCounter) -> Manager:
        return autoscaler_program(world, wires)

    async def act(self, world: ClaimWorld) -> None:
        only = [{"key": TYPE, "operator": "In", "values": [LARGE]}]
        overlay = {
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": {"name": "cheap"},
            "spec": {"requirements": only, "price": "0.001"},
        }
        await world.kube.create(overlay, NodeOverlay.resource)

        async def valid() -> bool:
            return await is_true(world, "cheap", "ValidationSucceeded")

        await world.until(valid)
        requests = {"requests": {"cpu": "1", "memory": "1Gi"}}
        containers = [{"name": "main", "image": "pause", "resources": requests}]
        meta = {"name": "unit", "namespace": "default"}
        template = {"metadata": {"labels": {"app": "unit"}}, "spec": {"containers": containers}}
        body = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, "template": template}
        await world.kube.create(body, TEMPLATES)
        buffer = {
            "apiVersion": "autoscaling.x-k8s.io/v1beta1",
            "kind": "CapacityBuffer",
            "metadata": {"name": "room", "namespace": "default"},
            "spec": {"podTemplateRef": {"name": "unit"}, "replicas": 2},
        }
        await world.kube.create(buffer, CapacityBuffer.resource)

    async def check(self, world: ClaimWorld) -> None:
        (made,) = await claims(world)
        assert made.metadata.labels[TYPE] == LARGE
        assert world.provider.launches == len(world.provider.machines) == 1
        assert await is_true(world, "cheap", "Ready")
        found = (await world.kube.get(CapacityBuffer, "room", "default")).status
        assert found.replicas == 2
        assert {c.type for c in found.conditions if c.status == "True"} == {
            "ReadyForProvisioning",
            "Provisioning",
        }
        self.kubernetes.cancel()


async def is_true(world: ClaimWorld, overlay: str, type_: str) -> bool:
    found = (await world.kube.get(NodeOverlay, overlay)).status.conditions
    return any((c.type, c.status) == (type_, "True") for c in found)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_kill_after_any_effect_makes_no_second_node(ending: Ending) -> None:
    effects = crash_after_each_effect(BufferGetsNode(), quiet_seconds=130.0, ending=ending)
    assert any("capacitybuffers" in e for e in effects)
    assert any("nodeoverlays" in e for e in effects)
