"""NodeOverlays and CapacityBuffers on virtual time: their effect on decisions, and conditions."""

from typing import Any

from moxwell.api.karpenter.capacity import CapacityBuffer, NodeOverlay
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.kinds import Resource
from moxwell.testing.autoscaler_world import (
    DEPLOYMENTS,
    autoscaler_world,
    bound_pods,
    claims,
    deployment,
    scale,
)
from moxwell.testing.loop import run_virtual
from moxwell.testing.node_claims import ClaimWorld

TYPE = "node.kubernetes.io/instance-type"
SMALL, MEDIUM, LARGE = "t1.2VCPU-4GB", "t1.4VCPU-8GB", "t1.8VCPU-16GB"
ON_DEMAND = {
    "requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    ]
}
TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")


def overlay(name: str, types: list[str], **spec: Any) -> dict[str, Any]:
    wanted = [{"key": TYPE, "operator": "In", "values": types}]
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": name},
        "spec": {"requirements": wanted} | spec,
    }


def buffer(name: str = "room", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def pod_template(name: str = "unit", cpu: str = "1", **spec: Any) -> dict[str, Any]:
    requests = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    containers = [{"name": "main", "image": "pause", "resources": requests}]
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": containers} | spec,
        },
    }


async def condition(world: ClaimWorld, kind: Any, name: str, type_: str) -> tuple[str, str, str]:
    space = "default" if kind is CapacityBuffer else ""
    found = (await world.kube.get(kind, name, space)).status.conditions
    return next(((c.status, c.reason, c.message) for c in found if c.type == type_), ("", "", ""))


async def all_bound(world: ClaimWorld, count: int) -> None:
    async def bound() -> bool:
        return len(await bound_pods(world)) == count

    await world.until(bound)


def test_the_price_of_an_overlay_decides_which_type_is_launched() -> None:
    async def story() -> None:
        async with autoscaler_world(template=ON_DEMAND) as world:
            await world.kube.create(overlay("cheap", [LARGE], price="0.001"), NodeOverlay.resource)

            async def valid() -> bool:
                found = await condition(world, NodeOverlay, "cheap", "ValidationSucceeded")
                return found[0] == "True"

            await world.until(valid)
            await world.kube.create(deployment("web", 1), DEPLOYMENTS)
            await all_bound(world, 1)
            (made,) = await claims(world)
            assert made.metadata.labels[TYPE] == LARGE
            # Without the overlay the large node is replaced by a small one.
            await world.kube.delete(NodeOverlay, "cheap")

            async def consolidated() -> bool:
                found = await claims(world)
                return [c.metadata.labels.get(TYPE) for c in found] == [SMALL]

            await world.until(consolidated)

    run_virtual(story())


def test_a_resource_of_an_overlay_gets_pods_a_node() -> None:
    async def story() -> None:
        async with autoscaler_world() as world:
            name = "example.com/fpga"
            given = overlay("fpga", [MEDIUM], capacity={name: "1"})
            await world.kube.create(given, NodeOverlay.resource)
            web = deployment("web", 1)
            requests = web["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
            requests[name] = "1"
            await world.kube.create(web, DEPLOYMENTS)

            async def claimed() -> bool:
                return len(await claims(world)) == 1

            await world.until(claimed)
            (made,) = await claims(world)
            assert made.spec.resources is not None
            assert made.spec.resources.requests[name] == "1"

            async def launched() -> bool:
                (made,) = await claims(world)
                return made.metadata.labels.get(TYPE) == MEDIUM

            await world.until(launched)

            async def waits() -> bool:
                (made,) = await claims(world)
                status = await world.condition("Initialized", made.metadata.name)
                return status[1] == "ResourceNotRegistered"

            await world.until(waits)  # until a device plugin registers the resource

    run_virtual(story())


def test_overlays_that_conflict_or_are_invalid_say_so_and_change_nothing() -> None:
    async def story() -> None:
        async with autoscaler_world() as world:
            for name in ("a", "b"):
                body = overlay(name, [LARGE], price="0.001" if name == "b" else "0.0001", weight=5)
                await world.kube.create(body, NodeOverlay.resource)
            wrong = overlay("wrong", [LARGE], price="0")
            wrong["spec"]["requirements"][0]["key"] = "x" * 64
            await world.kube.create(wrong, NodeOverlay.resource)

            async def said() -> bool:
                found = [
                    (await condition(world, NodeOverlay, n, "ValidationSucceeded"))[:2]
                    for n in ("a", "b", "wrong")
                ]
                return found == [
                    ("False", "Conflict"),
                    ("True", "ValidationSucceeded"),
                    ("False", "RuntimeValidation"),
                ]

            await world.until(said)
            text = (await condition(world, NodeOverlay, "a", "ValidationSucceeded"))[2]
            assert text == "conflict with another overlay: b"
            text = (await condition(world, NodeOverlay, "wrong", "ValidationSucceeded"))[2]
            assert "x" * 64 in text
            assert "requirements" in text
            assert (await condition(world, NodeOverlay, "a", "Ready"))[0] == "False"
            await world.kube.delete(NodeOverlay, "b")

            async def accepted() -> bool:
                found = await condition(world, NodeOverlay, "a", "ValidationSucceeded")
                return found[0] == "True"

            await world.until(accepted)

    run_virtual(story())


def test_a_buffer_keeps_capacity_free_and_gives_it_to_pods() -> None:
    async def story() -> None:
        async with autoscaler_world() as world:
            await world.kube.create(pod_template(), TEMPLATES)
            given = buffer(podTemplateRef={"name": "unit"}, replicas=3)
            await world.kube.create(given, CapacityBuffer.resource)

            async def kept() -> bool:
                found = await condition(world, CapacityBuffer, "room", "Provisioning")
                return found[:2] == ("True", "FitsExistingCapacity")

            await world.until(kept)
            state = await world.kube.get(CapacityBuffer, "room", "default")
            assert state.status.replicas == 3
            assert state.status.pod_template_ref is not None
            assert state.status.provisioning_strategy == "buffer.x-k8s.io/active-capacity"
            before = {c.metadata.name for c in await claims(world)}
            assert before
            await world.clock.sleep(600)  # an empty node with a buffer is not deleted
            assert before == {c.metadata.name for c in await claims(world)}
            started = world.clock.monotonic()
            await world.kube.create(deployment("web", 3), DEPLOYMENTS)
            await all_bound(world, 3)
            assert world.clock.monotonic() - started < 5  # no machine was waited for

            async def more() -> bool:
                return len(await claims(world)) > len(before)

            await world.until(more)
            await world.until(kept)
            await world.kube.delete(CapacityBuffer, "room", "default")
            await scale(world, "web", 0)

            async def gone() -> bool:
                return not await claims(world)

            await world.until(gone)
            assert not await world.has_event("Nominated", "capacity-buffer")

    run_virtual(story())


def test_a_buffer_of_a_deployment_follows_its_replicas() -> None:
    async def story() -> None:
        async with autoscaler_world() as world:
            await world.kube.create(deployment("web", 4), DEPLOYMENTS)
            given = buffer(scalableRef={"kind": "Deployment", "name": "web"}, percentage=50)
            await world.kube.create(given, CapacityBuffer.resource)

            async def has(replicas: int) -> bool:
                found = await world.kube.get(CapacityBuffer, "room", "default")
                return found.status.replicas == replicas

            await world.until(lambda: has(2))
            await scale(world, "web", 6)
            changed = world.clock.monotonic()
            await world.until(lambda: has(3))
            assert world.clock.monotonic() - changed < 10  # it is watched

    run_virtual(story())


def test_a_buffer_that_cannot_work_names_its_field() -> None:
    async def story() -> None:
        async with autoscaler_world() as world:
            wrong = {"podTemplateRef": {"name": "none"}, "replicas": 1}
            lost = {"scalableRef": {"kind": "Job", "name": "x"}, "replicas": 1}
            cold = wrong | {"provisioningStrategy": "cold"}
            await world.kube.create(
                pod_template("bad", nodeSelector={"karpenter.sh/nothing": "x"}), TEMPLATES
            )
            bad = {"podTemplateRef": {"name": "bad"}, "replicas": 1}
            for name, spec in {"wrong": wrong, "lost": lost, "cold": cold, "bad": bad}.items():
                await world.kube.create(buffer(name, **spec), CapacityBuffer.resource)
            await world.kube.create(deployment("web", 1), DEPLOYMENTS)
            await all_bound(world, 1)  # nothing else waits

            async def said() -> bool:
                found = {
                    n: await condition(world, CapacityBuffer, n, "ReadyForProvisioning")
                    for n in ("wrong", "lost", "cold", "bad")
                }
                return {n: (f[0], f[1]) for n, f in found.items()} == {
                    "wrong": ("False", "PodTemplateNotFound"),
                    "lost": ("False", "ResolutionFailed"),
                    "cold": ("False", "ResolutionFailed"),
                    "bad": ("False", "ResolutionFailed"),
                }

            await world.until(said)
            text = (await condition(world, CapacityBuffer, "cold", "ReadyForProvisioning"))[2]
            assert "spec.provisioningStrategy" in text
            text = (await condition(world, CapacityBuffer, "bad", "ReadyForProvisioning"))[2]
            assert "karpenter.sh/nothing" in text
            pool = await world.kube.get(NodePool, "default")
            assert pool.status.nodes == 1

    run_virtual(story())
