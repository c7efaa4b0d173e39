"""Nodes that are empty, drifted or badly packed are deleted or replaced, on virtual time."""

from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.claim.setup import ClaimControllers
from moxwell.controllers.karpenter.decisions import DecisionRunner, ThreadDecisions
from moxwell.controllers.karpenter.disruption.command_record import record_of
from moxwell.controllers.karpenter.disruption.controller import DisruptionSettings
from moxwell.controllers.karpenter.disruption.setup import add_disruption
from moxwell.controllers.karpenter.names import COMMAND, HASH, HASH_VERSION, REPLACES
from moxwell.controllers.karpenter.provider import LaunchFailure
from moxwell.controllers.karpenter.provisioning_metrics import ProvisioningMetrics
from moxwell.controllers.karpenter.state.objects import ScaledCluster
from moxwell.controllers.karpenter.state.snapshots import ClusterState
from moxwell.runtime.manager import Manager, Runtime
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.loop import run_virtual
from moxwell.testing.node_claims import (
    ATTACHMENTS,
    PODS,
    ClaimWorld,
    Extend,
    claim_program,
    claim_world,
    start_claim_world,
)
from moxwell.testing.reconcile import crash_after_each_effect

SMALL, LARGE = "t1.2VCPU-4GB", "t1.8VCPU-16GB"
EXACT = DisruptionSettings(optimise=False)


def disrupting(
    settings: DisruptionSettings | None = None, decisions: DecisionRunner | None = None
) -> Extend:
    def extend(runtime: Runtime, world: ClaimWorld, claims: ClaimControllers) -> None:
        state = ClusterState(ScaledCluster(runtime.manager.caches), world.provider, world.clock)
        created = ProvisioningMetrics(runtime.metrics.registry)
        add_disruption(runtime, world.clock, state, claims, created, settings, decisions)

    return extend


async def add_pool(w: ClaimWorld, replicas: int | None = None, **disruption: Any) -> None:
    metadata = {"annotations": {HASH: "a", HASH_VERSION: "v"}}
    given = {"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]} | disruption
    only = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    template = {"requirements": [only]}
    static: dict[str, Any] = {} if replicas is None else {"replicas": replicas}
    await w.add_pool(disruption=given, metadata=metadata, template=template, **static)
    since = w.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    status = {"conditions": [ready | {"lastTransitionTime": since}]}
    await w.kube.merge_status(NodePool, "default", {"status": status})


async def add_node(w: ClaimWorld, name: str, type_: str = SMALL, **spec: Any) -> None:
    only = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [type_]}
    metadata = {"annotations": {HASH: "a", HASH_VERSION: "v"}}
    await w.add_claim(name, requirements=[only], metadata=metadata, **spec)
    await w.until(lambda: w.is_ready(name))


async def add_pod(w: ClaimWorld, name: str, node: str, cpu: str = "1", **spec: Any) -> None:
    resources = {"requests": {"cpu": cpu, "memory": "512Mi"}}
    containers = [{"name": "main", "image": "pause", "resources": resources}]
    await w.add_pod(name, node, containers=containers, **spec)


async def attach(w: ClaimWorld, node: str) -> None:
    """A volume that keeps the node from ending."""
    source = {"persistentVolumeName": f"pv-{node}"}
    attachment = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": f"va-{node}"},
        "spec": {"attacher": "csi", "nodeName": node, "source": source},
    }
    await w.kube.create(attachment, ATTACHMENTS)


async def names(w: ClaimWorld) -> set[str]:
    return {c.metadata.name for c in (await w.kube.list(NodeClaim)).items}


def test_an_empty_node_is_deleted_after_consolidate_after_and_a_second_look() -> None:
    async def story() -> None:
        async with claim_world(extend=disrupting()) as w:
            await add_pool(w)
            await add_node(w, "c-1")
            await add_node(w, "c-2")
            await add_pod(w, "web", "c-2")
            begun = w.clock.now()
            await w.until_gone(NodeClaim, "c-1")
            assert (w.clock.now() - begun).total_seconds() >= 40
            await w.until(lambda: w.has_event("DisruptionTerminating", "Empty"))
            await w.clock.sleep(300)
            assert await names(w) == {"c-2"}

    run_virtual(story())


def test_a_budget_of_zero_keeps_empty_nodes_and_says_so() -> None:
    async def story() -> None:
        async with claim_world(extend=disrupting()) as w:
            await add_pool(w, budgets=[{"nodes": "0"}])
            await add_node(w, "c-1")
            await w.clock.sleep(600)
            assert await names(w) == {"c-1"}
            assert await w.has_event("DisruptionBlocked", "due to blocking budget")

    run_virtual(story())


def test_a_node_with_a_protected_pod_says_what_blocks_it() -> None:
    async def story() -> None:
        async with claim_world(extend=disrupting()) as w:
            await add_pool(w)
            await add_node(w, "c-1", LARGE)
            note = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
            await add_pod(w, "web", "c-1", metadata=note)
            await w.clock.sleep(300)
            assert await names(w) == {"c-1"}
            assert await w.has_event("DisruptionBlocked", "do-not-disrupt")

    run_virtual(story())


def test_a_badly_packed_node_is_replaced_by_a_cheaper_one() -> None:
    async def story(settings: DisruptionSettings) -> None:
        async with claim_world(extend=disrupting(settings)) as w:
            await add_pool(w)
            await add_node(w, "c-1", LARGE)
            await add_pod(w, "web", "c-1")
            await w.until_gone(NodeClaim, "c-1")
            (new,) = (await w.kube.list(NodeClaim)).items
            assert new.metadata.labels["node.kubernetes.io/instance-type"] == SMALL
            assert REPLACES in new.metadata.annotations
            assert await w.is_ready(new.metadata.name)
            await w.until(lambda: w.has_event("DisruptionLaunching", "Underutilized"))

    run_virtual(story(EXACT))
    run_virtual(story(DisruptionSettings()))


def test_a_replacement_that_cannot_be_launched_gives_the_node_back() -> None:
    async def story() -> None:
        async with claim_world(extend=disrupting(EXACT)) as w:
            await add_pool(w)
            await add_node(w, "c-1", LARGE)
            await add_pod(w, "web", "c-1")
            full = (LaunchFailure.LAUNCH_FAILED, "the template is missing")
            w.provider.failing = {SMALL: full, "t1.4VCPU-8GB": full}

            async def tainted() -> bool:
                node = await w.kube.get(Node, "c-1")
                return any(t.key == "karpenter.sh/disrupted" for t in node.spec.taints)

            async def given_back() -> bool:
                return not await tainted() and COMMAND not in (await w.claim()).metadata.annotations

            await w.until(tainted)
            assert await w.condition("DisruptionReason") == ("True", "Underutilized")
            await w.until(given_back)
            await w.until(lambda: _is(w, "DisruptionReason", ("", "")))
            assert not await w.gone(PODS, "web", "default")

    async def _is(w: ClaimWorld, type_: str, wanted: tuple[str, str]) -> bool:
        return await w.condition(type_) == wanted

    run_virtual(story())


def test_a_drifted_node_is_replaced_before_it_is_deleted() -> None:
    async def story() -> None:
        async with claim_world(extend=disrupting()) as w:
            await add_pool(w, consolidateAfter="Never")
            await add_node(w, "c-1")
            await add_pod(w, "web", "c-1")
            await w.clock.sleep(120)
            assert await names(w) == {"c-1"}
            change = {"metadata": {"annotations": {HASH: "b"}}}
            await w.kube.merge(NodePool, "default", change)
            await w.until_condition("Drifted", "True", "NodePoolDrifted")
            await w.until_gone(NodeClaim, "c-1")
            assert len(await names(w)) == 1
            assert await w.gone(PODS, "web", "default")

    run_virtual(story())


def test_what_changes_before_the_second_look_stops_the_command() -> None:
    async def story() -> None:
        async with claim_world(extend=disrupting()) as w:
            await add_pool(w)
            await add_node(w, "c-1")
            await w.until(lambda: w.has_event("ConsolidationCandidate"))
            await add_pod(w, "web", "c-1")
            await w.until(lambda: w.has_event("ConsolidationRejected"))
            assert await names(w) == {"c-1"}
            assert (await w.claim()).metadata.deletion_timestamp is None

    run_virtual(story())


def test_a_budget_of_one_disrupts_one_node_at_a_time() -> None:
    async def story() -> None:
        async with claim_world(extend=disrupting()) as w:
            await add_pool(w, budgets=[{"nodes": "1"}])
            nodes = ("c-1", "c-2", "c-3")
            for name in nodes:
                await attach(w, name)
                await add_node(w, name)

            async def ending() -> list[str]:
                found = (await w.kube.list(NodeClaim)).items
                return [c.metadata.name for c in found if c.metadata.deletion_timestamp]

            await w.until(ending)
            await w.clock.sleep(300)
            assert len(await ending()) == 1
            for name in nodes:
                await w.kube.delete(ATTACHMENTS, f"va-{name}")

            async def none_left() -> bool:
                return not await names(w)

            await w.until(none_left)

    run_virtual(story())


def test_several_commands_wait_for_replacements_within_the_budget() -> None:
    async def story() -> None:
        async with claim_world(extend=disrupting()) as w:
            await add_pool(w, consolidateAfter="Never", budgets=[{"nodes": "2"}])
            nodes = ("c-1", "c-2", "c-3")
            for name in nodes:
                await add_node(w, name)
                await add_pod(w, f"web-{name}", name)
            w.provider.held = True  # no replacement is launched
            await w.kube.merge(NodePool, "default", {"metadata": {"annotations": {HASH: "b"}}})

            async def commands() -> set[str]:
                found = (await w.kube.list(NodeClaim)).items
                return {str(record_of(c)) for c in found if record_of(c) is not None}

            async def two() -> bool:
                return len(await commands()) == 2

            await w.until(two)
            await w.clock.sleep(120)
            assert len(await commands()) == 2  # the third waits for the budget
            assert len(await names(w)) == 5
            w.provider.held = False
            w.provider.release()
            for name in nodes:
                await w.until_gone(NodeClaim, name)
            assert len(await names(w)) == 2  # no controller makes the evicted pods again

    run_virtual(story())


def test_a_node_that_cannot_be_consolidated_says_why() -> None:
    async def story() -> None:
        async with claim_world(extend=disrupting()) as w:
            await add_pool(w)
            await add_node(w, "c-1")
            await add_pod(w, "web", "c-1")
            await w.until(lambda: w.has_event("Unconsolidatable", "replace with a cheaper node"))
            await w.kube.merge(
                NodePool, "default", {"spec": {"disruption": {"consolidationPolicy": "WhenEmpty"}}}
            )
            await w.until(lambda: w.has_event("Unconsolidatable", "policy WhenEmpty"))

    run_virtual(story())


def test_two_half_empty_nodes_become_one() -> None:
    async def story(settings: DisruptionSettings) -> None:
        async with claim_world(extend=disrupting(settings)) as w:
            await add_pool(w)
            for name in ("c-1", "c-2"):
                await add_node(w, name, LARGE)
                await add_pod(w, f"web-{name}", name, cpu="500m")

            async def one() -> bool:
                left = (await w.kube.list(NodeClaim)).items
                types = [c.metadata.labels.get("node.kubernetes.io/instance-type") for c in left]
                return types in ([SMALL], ["t1.4VCPU-8GB"])

            await w.until(one)

    run_virtual(story(EXACT))
    run_virtual(story(DisruptionSettings()))


def test_a_drifted_node_of_a_static_pool_is_replaced_from_the_template() -> None:
    async def story() -> None:
        async with claim_world(extend=disrupting()) as w:
            await add_pool(w, replicas=1)
            await add_node(w, "c-1")
            w.provider.drifted["c-1"] = "TemplateDrifted"
            await w.until_condition("Drifted", "True", "TemplateDrifted")
            await w.until_gone(NodeClaim, "c-1")
            (new,) = (await w.kube.list(NodeClaim)).items
            assert await w.is_ready(new.metadata.name)

    run_virtual(story())


def test_protected_pods_do_not_keep_a_drifted_node_with_a_grace_period() -> None:
    async def story() -> None:
        async with claim_world(extend=disrupting()) as w:
            await add_pool(w, consolidateAfter="Never")
            await add_node(w, "c-1", terminationGracePeriod="5m")
            await add_node(w, "c-2")
            note = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
            for name in ("c-1", "c-2"):
                await add_pod(w, f"web-{name}", name, metadata=note)
            w.provider.drifted |= {"c-1": "TemplateDrifted", "c-2": "TemplateDrifted"}
            await w.until_gone(NodeClaim, "c-1")
            assert "c-2" in await names(w)
            assert not await w.gone(PODS, "web-c-2", "default")

    run_virtual(story())


class NodeIsReplaced:
    """A node is replaced by a cheaper one."""

    async def world(self) -> ClaimWorld:
        return await start_claim_world()

    def program(self, world: ClaimWorld, wires: EffectCounter) -> Manager:
        unthreaded = DisruptionSettings(optimise=False)
        return claim_program(world, wires, extend=disrupting(unthreaded, ThreadDecisions(10_000)))

    async def act(self, world: ClaimWorld) -> None:
        await add_pool(world)
        await add_node(world, "c-1", LARGE)
        await add_pod(world, "web", "c-1")
        await world.until_gone(NodeClaim, "c-1", seconds=7200)

    async def check(self, world: ClaimWorld) -> None:
        left = (await world.kube.list(NodeClaim)).items
        assert {m.claim for m in world.provider.machines.values()} == {
            c.metadata.name for c in left
        }
        assert await world.gone(Node, "c-1")
        for node in (await world.kube.list(Node)).items:
            assert not any(t.key == "karpenter.sh/disrupted" for t in node.spec.taints)


def test_a_kill_after_any_write_undoes_or_continues_the_command() -> None:
    effects = crash_after_each_effect(NodeIsReplaced(), quiet_seconds=90.0)
    assert any("POST" in e and "nodeclaims" in e for e in effects)
