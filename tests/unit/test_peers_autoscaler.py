"""The objects and the conditions of the scenario ``autoscaler`` of ``make peers``."""

import asyncio
from typing import Any

import pytest
import yaml
from peers import autoscaler, scaled_cluster
from peers.__main__ import is_bad
from peers.figures import Run
from peers.report import report

from moxwell.api.core.resources import Secret
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.lab.proxmox.world import read_world
from moxwell.pve.ownership import Mark
from moxwell.testing.autoscaler_world import DEPLOYMENTS, autoscaler_world
from moxwell.testing.embedded_environment import create_environment
from moxwell.testing.karpenter_environment import karpenter_environment, node_claim
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_stories import PLANES
from moxwell.testing.node_claims import PODS
from moxwell.testing.two_regions import WORLD

Json = dict[str, Any]
ENDPOINT = "127.0.0.1:6443"
PARTS = {"ca": b"ca", "ca_key": b"key", "kubeconfig": b"config"}


def one_region() -> str:
    return WORLD[: WORLD.index("  - name: south")]


def test_a_node_class_of_the_scenario_ends_in_a_node_and_leaves_nothing() -> None:
    async def story() -> None:
        manifest = yaml.safe_dump_all(scaled_cluster.node_class_objects(ENDPOINT))
        async with karpenter_environment(manifest, claims=True, trusted=True) as env:
            before = env.stage.contents()
            body = node_claim("one", {"cpu": "1", "memory": "1Gi"})
            body["spec"]["nodeClassRef"]["name"] = "peers"
            await env.kube.create(body, NodeClaim.resource)

            async def items(resource: Any) -> list[Json]:
                return list((await env.kube.list(resource)).items)

            async def joined() -> bool:
                return autoscaler.initialized(await items(NodeClaim.resource)) == 1

            await env.stage.until("the node is initialized", joined)
            assert len(await items(NODES)) == 1
            await env.kube.delete(NodeClaim, "one")

            async def gone() -> bool:
                return not await items(NodeClaim.resource)

            await env.stage.until("the claim is deleted", gone)
            assert env.stage.contents() == before
            nodes, secrets = await items(NODES), await items(Secret.resource)
            assert autoscaler.left_in_kubernetes(nodes, secrets) == ()

    run_virtual(story())


def test_the_scaled_cluster_has_the_zones_of_the_regions() -> None:
    objects = scaled_cluster.cluster_objects(6443, ["north"], **PARTS)
    (infrastructure,) = (o for o in objects if o["kind"] == "ProxmoxCluster")
    assert [z["region"] for z in infrastructure["spec"]["zoneConfig"]] == ["north"]
    assert {o["metadata"]["name"] for o in objects} >= {"c", "c-ca", "c-kubeconfig"}


def test_the_scaled_cluster_is_accepted() -> None:
    async def story() -> None:
        environment = await create_environment(one_region())
        stage = environment.stage
        objects = scaled_cluster.cluster_objects(6443, ["north"], **PARTS)
        await stage.apply(yaml.safe_dump_all(objects))
        status = {"status": scaled_cluster.CONTROL_PLANE_STATUS}
        await stage.kube.merge_status(PLANES, "c", status, "default")
        await environment.close()

    run_virtual(story())


def test_each_pod_of_the_scenario_needs_a_node_of_its_own() -> None:
    async def story() -> None:
        async with autoscaler_world() as world:
            deployed = scaled_cluster.deployment(3)
            deployed["metadata"]["namespace"] = "default"
            await world.kube.create(deployed, DEPLOYMENTS)
            await asyncio.sleep(120)
            pods = (await world.kube.list(PODS)).items
            assert autoscaler.running(pods) == 3
            assert len({p["spec"]["nodeName"] for p in pods}) == 3

    run_virtual(story())


@pytest.mark.parametrize(
    "conditions, want",
    [
        (None, 0),
        ([], 0),
        ([{"type": "Registered", "status": "True"}], 0),
        ([{"type": "Initialized", "status": "Unknown"}], 0),
        ([{"type": "Launched", "status": "True"}, {"type": "Initialized", "status": "True"}], 1),
    ],
)
def test_a_claim_counts_when_its_node_is_initialized(conditions: Any, want: int) -> None:
    claim = {"status": {"conditions": conditions}} if conditions is not None else {}
    assert autoscaler.initialized([claim]) == want


def test_running_pods_are_counted() -> None:
    pods = [{"status": {"phase": "Running"}}, {"status": {"phase": "Pending"}}, {}]
    assert autoscaler.running(pods) == 1


def test_isos_are_found_among_the_contents() -> None:
    contents = ["north: guest 100", "north: local:iso/b.iso", "north: ceph:vm-100-disk-0"]
    assert autoscaler.isos(contents) == ["north: local:iso/b.iso"]


def test_nodes_and_join_tokens_that_are_left_are_named() -> None:
    token = {"metadata": {"name": "bootstrap-token-a"}, "type": autoscaler.TOKEN_TYPE}
    other = {"metadata": {"name": "peers"}, "type": "Opaque"}
    node = {"metadata": {"name": "peers-x"}}
    found = autoscaler.left_in_kubernetes([node], [token, other])
    assert found == ("node peers-x", "join token bootstrap-token-a")


def test_the_guests_of_claims_get_the_tag_that_lets_them_be_adopted() -> None:
    regions = read_world(one_region(), "world", 0.0)
    claim = {"status": {"providerID": "proxmox://north/201"}, "metadata": {"uid": "u"}}
    autoscaler.let_adopt(regions, [claim])
    assert regions["north"].guests[201].conf["tags"] == autoscaler.ADOPT_TAG
    assert Mark("", "default/c").adopt_tag == autoscaler.ADOPT_TAG
    autoscaler.let_adopt(regions, [claim | {"status": {"providerID": "proxmox://north/9000"}}])
    tags = str(regions["north"].guests[9000].conf["tags"]).split(";")
    assert tags == ["ubuntu", "k8s-v1.34.1", autoscaler.ADOPT_TAG]


def test_machines_with_a_node_are_adopted() -> None:
    machines: list[Json] = [{"status": {"nodeRef": {"name": "n"}}}, {"status": {}}, {}]
    assert autoscaler.adopted(machines) == 1


def test_installed_crds_are_left_alone() -> None:
    names = {c["metadata"]["name"] for c in autoscaler.own_definitions(["nodepools.karpenter.sh"])}
    assert "nodepools.karpenter.sh" not in names
    assert "proxmoxmachines.infrastructure.cluster.x-k8s.io" in names


def test_a_lost_claim_fails_and_is_named() -> None:
    run = Run("autoscaler, taken over", "moxwell", lost=("uid-1",))
    assert is_bad(run)
    assert "lost node claims: uid-1" in report([run])


def test_the_crds_do_not_replace_those_of_cluster_api() -> None:
    names = {c["metadata"]["name"] for c in autoscaler.own_definitions()}
    assert {"proxmoxmachines.infrastructure.cluster.x-k8s.io", "nodepools.karpenter.sh"} <= names
    assert not any(
        name.endswith(".cluster.x-k8s.io") and "proxmox" not in name and "kamaji" not in name
        for name in names
    )
