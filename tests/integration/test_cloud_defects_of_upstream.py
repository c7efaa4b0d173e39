"""
Defects that users report of proxmox-cloud-controller-manager do not exist here; on virtual time.

One test for each defect, in the order of the collected reports.
"""

from pathlib import Path
from typing import Any

import pytest

from moxwell.api.core.nodes import Node
from moxwell.api.kinds import Resource
from moxwell.app import operator
from moxwell.controllers.cloud import identity
from moxwell.controllers.cloud.node import plan
from moxwell.errors import Invalid
from moxwell.testing.cloud import SETTINGS, CloudEnvironment, boot, joined, story, world

SERVICES = Resource("", "v1", "services", "Service")
ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)


def test_labels_follow_a_live_migration() -> None:
    async def tell() -> None:
        async with joined(force_update_labels=True) as w:
            w.stage.mischief("move-guest", vmid=100, node="pve2")

            async def moved() -> bool:
                return (await w.node()).metadata.labels[identity.ZONE] == "pve2"

            await w.until(moved)
            assert await w.has_event("Relabelled")

    story(tell)


def test_a_local_volume_keeps_the_old_zone_label() -> None:
    async def tell() -> None:
        async with joined(force_update_labels=True) as w:
            await local_volume(w)
            w.stage.mischief("move-guest", vmid=100, node="pve2")
            await w.until(lambda: w.has_event("ZoneLabelKept"))
            assert (await w.node()).metadata.labels[identity.ZONE] == "pve1"

    story(tell)


async def local_volume(w: CloudEnvironment) -> None:
    expression = {"key": identity.ZONE, "operator": "In", "values": ["pve1"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "csi.proxmox.sinextra.dev", "volumeHandle": "r1/pve1/local/x"},
        "nodeAffinity": affinity,
    }
    head = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}}
    await w.kube.create(head | {"spec": spec}, VOLUMES)
    attachment = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": "va"},
        "spec": {
            "attacher": "csi.proxmox.sinextra.dev",
            "nodeName": "ours",
            "source": {"persistentVolumeName": "pv"},
        },
    }
    await w.kube.create(attachment, ATTACHMENTS)


def test_ha_rules_of_version_9_are_labels() -> None:
    async def tell() -> None:
        async with world("9.2.11") as w:
            await w.stage.pve.ha.add_resource("vm:100")
            await w.stage.pve.ha.create_rule(
                "rack-a", "node-affinity", ["vm:100"], nodes="pve1,pve2"
            )
            await w.join()
            node = await w.until(w.initialized)
            assert "group.topology.proxmox.sinextra.dev/rack-a" in node.metadata.labels

    story(tell)


def test_provider_ids_of_capi_are_read_and_written() -> None:
    async def tell() -> None:
        async with world(provider="capmox") as w:
            await w.join()
            node = await w.until(w.initialized)
            assert node.spec.provider_id == f"proxmox://{w.uuid()}"
            assert node.metadata.annotations[identity.INSTANCE_ID] == "100"

    story(tell)


def test_a_node_without_labels_has_an_event_that_explains_it() -> None:
    async def tell() -> None:
        async with world() as w:
            await w.join("nobody", uuid="99999999-0000-0000-0000-000000000000")
            await w.join("other", providerID="proxmox://r9/5")
            await w.until(lambda: w.has_event("region 'r9' is not configured"))
            assert plan.is_new(await w.node("other"))

    story(tell)


def test_a_node_whose_guest_is_gone_is_deleted() -> None:
    async def tell() -> None:
        async with joined() as w:
            w.stage.mischief("delete-guest", vmid=100)
            await w.set_ready("ours", False)
            await w.until(w.gone)
            assert await w.has_event("DeletingNode")

    story(tell)


def test_a_missing_privilege_is_not_a_missing_guest() -> None:
    async def tell() -> None:
        async with joined() as w:
            await w.set_ready("ours", False)
            w.stage.region.access.acl.clear()
            await w.stays(w.exists, 3600)

    story(tell)


def test_nodes_of_other_clouds_are_not_changed() -> None:
    async def tell() -> None:
        async with world() as w:
            await w.join("bare", ready=False, providerID="metal://7", uuid="8" * 32)

            async def untouched() -> bool:
                node = await w.kube.find(Node, "bare")
                return node is not None and plan.is_new(node) and not node.metadata.labels

            await w.stays(untouched)

    story(tell)


def test_a_node_may_have_another_name_than_its_guest() -> None:
    async def tell() -> None:
        async with world() as w:
            await w.join("rancher-x7")
            node = await w.until(lambda: w.initialized("rancher-x7"))
            assert node.spec.provider_id == "proxmox://r1/100"

    story(tell)


def test_addresses_come_from_the_guest_agent() -> None:
    async def tell() -> None:
        async with world(network={"mode": "qemu"}) as w:
            await boot(w)
            await w.join()
            node = await w.until(w.initialized)
            kinds = {a.type for a in node.status.addresses}
            assert kinds == {"InternalIP", "Hostname"}

    story(tell)


def test_a_wrong_node_ip_is_reported_with_the_addresses_of_the_guest() -> None:
    async def tell() -> None:
        async with world(network={"mode": "qemu"}) as w:
            await boot(w)
            await w.join(annotations={identity.NODE_IP: "203.0.113.77"})
            await w.until(lambda: w.has_event("203.0.113.77"))
            assert plan.is_new(await w.node())

    story(tell)


def test_an_ha_group_can_be_the_zone() -> None:
    async def tell() -> None:
        async with world(ha_group=True) as w:
            await w.stage.pve.ha.create_group("rack-b", "pve1,pve2")
            await w.stage.pve.ha.add_resource("vm:100", group="rack-b")
            await w.join()
            node = await w.until(w.initialized)
            assert node.metadata.labels[identity.ZONE] == "rack-b"

    story(tell)


def test_only_json_is_requested() -> None:
    async def tell() -> None:
        async with joined() as w:
            asked = {r.headers.get("accept", "application/json") for r in w.handler.seen}
            assert all("protobuf" not in accept for accept in asked)

    story(tell)


def test_an_invalid_configuration_names_the_key(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("features: {providr: x}\nclusters:\n- {url: 'https://h:8006', region: r,"
                    " token_id: 'u@pve!t', token_secret: s}\n")  # fmt: skip
    options = operator.OperatorOptions(config=file, settings=SETTINGS, controllers=("cloud",))
    with pytest.raises(Invalid, match="features: unknown providr"):
        operator.check(options)


def test_an_existing_provider_id_is_kept() -> None:
    async def tell() -> None:
        async with world() as w:
            given = f"proxmox://{w.uuid()}"
            await w.join(providerID=given)
            node = await w.until(w.initialized)
            assert node.spec.provider_id == given
            assert node.metadata.labels[identity.REGION] == "r1"

    story(tell)


def test_a_load_balancer_gets_an_address() -> None:
    async def tell() -> None:
        balancer = {"mode": "ipam", "pool": "10.9.0.1-10.9.0.2", "announcer": "kube-vip"}
        async with world(load_balancer=balancer) as w:
            spec = {
                "type": "LoadBalancer",
                "loadBalancerClass": "moxwell.dev/ipam",
                "selector": {"app": "web"},
                "ports": [{"port": 80}],
            }
            meta = {"name": "web", "namespace": "default"}
            body = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
            await w.kube.create(body, SERVICES)

            async def served() -> Any:
                found = await w.kube.get(SERVICES, "web", "default")
                return (found.get("status") or {}).get("loadBalancer", {}).get("ingress")

            assert (await w.until(served))[0]["ip"] == "10.9.0.1"
            found = await w.kube.get(SERVICES, "web", "default")
            assert found["metadata"]["annotations"]["kube-vip.io/loadbalancerIPs"] == "10.9.0.1"
            await w.kube.delete(SERVICES, "web", "default")

            async def gone() -> bool:
                return await w.kube.find(SERVICES, "web", "default") is None

            await w.until(gone)

    story(tell)


def test_a_stopped_guest_is_tainted_and_a_started_one_is_not() -> None:
    async def tell() -> None:
        async with joined() as w:
            await w.set_ready("ours", False)

            async def tainted() -> bool:
                keys = {t.key for t in (await w.node()).spec.taints}
                return "node.cloudprovider.kubernetes.io/shutdown" in keys

            await w.until(tainted)
            await w.set_ready("ours", True)

            async def clean() -> bool:
                return not await tainted()

            await w.until(clean)

    story(tell)


def test_a_region_that_does_not_answer_for_an_hour_deletes_no_node() -> None:
    async def tell() -> None:
        async with joined() as w:
            w.stage.fault("status", status=596)
            await w.set_ready("ours", False)
            await w.stays(w.exists, 3600)

    story(tell)


def test_a_vmid_that_another_guest_has_now_is_noticed() -> None:
    async def tell() -> None:
        async with joined() as w:
            other = "uuid=77777777-0000-4000-8000-000000000000"
            w.rewrite(100, smbios1=other, name="somebody")
            await w.set_ready("ours", False)
            await w.until(w.gone)

    story(tell)


def test_a_node_costs_at_most_two_writes() -> None:
    async def tell() -> None:
        async with joined() as w:
            await w.stage.clock.sleep(60)
            writes = [
                r
                for r in w.handler.seen
                if r.method not in {"GET", "HEAD"} and "/nodes/ours" in r.path
            ]
            assert len(writes) <= 2

    story(tell)
