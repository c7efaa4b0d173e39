"""Nodes are never deleted without proof, and how many requests they cost; on virtual time."""

from collections import Counter
from functools import partial

import pytest

from moxwell.api.core.nodes import Node
from moxwell.api.kinds import Resource
from moxwell.controllers.cloud import identity
from moxwell.controllers.cloud.node import plan
from moxwell.testing.cloud import boot, joined, story, world

SERVICES = Resource("", "v1", "services", "Service")
HOUR = 3600


# No node is deleted without proof


@pytest.mark.parametrize("provider", ["default", "capmox"])
def test_a_lost_privilege_deletes_no_node(provider: str) -> None:
    async def tell() -> None:
        async with joined(provider=provider) as w:
            await w.set_ready("ours", False)
            w.stage.region.access.acl.clear()
            await w.stays(w.exists, HOUR)

    story(tell)


@pytest.mark.parametrize("provider", ["default", "capmox"])
def test_the_node_of_a_deleted_guest_is_deleted(provider: str) -> None:
    async def tell() -> None:
        async with joined(provider=provider) as w:
            await w.set_ready("ours", False)
            w.stage.mischief("delete-guest", vmid=100)
            await w.until(w.gone)

    story(tell)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_node_is_deleted_soon_after_its_guest(stopped: bool) -> None:
    """The list of an idle region is read every 30 s; a node that stops reporting reads it now."""

    async def tell() -> None:
        async with joined() as w:
            await w.stage.clock.sleep(HOUR)  # idle
            if stopped:
                w.stage.mischief("stop-guest", vmid=100)
                await w.stage.clock.sleep(60)
            w.stage.mischief("delete-guest", vmid=100)
            w.stage.transport.sent.clear()
            await w.set_ready("ours", False)
            began = w.stage.clock.monotonic()
            await w.until(w.gone)
            assert w.stage.clock.monotonic() - began < 10
            assert [path for _, path in w.stage.transport.sent].count("/cluster/nextid") == 1

    story(tell)


def test_a_uuid_that_is_not_listed_deletes_no_node() -> None:
    async def tell() -> None:
        async with world() as w:
            await w.join(providerID="proxmox://99999999-0000-4000-8000-000000000000", ready=False)
            await w.stays(w.exists)
            assert await w.has_event("does not prove that it is deleted")

    story(tell)


def test_a_changed_smbios_uuid_deletes_no_node() -> None:
    async def tell() -> None:
        async with joined() as w:
            w.rewrite(100, smbios1="uuid=77777777-0000-4000-8000-000000000000")
            await w.set_ready("ours", False)
            await w.stays(w.exists, HOUR)

    story(tell)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_guest_restored_under_another_vmid_keeps_its_node(stopped: bool) -> None:
    async def tell() -> None:
        async with joined() as w:
            await w.stage.clock.sleep(HOUR)  # idle
            if stopped:
                w.stage.mischief("stop-guest", vmid=100)
                await w.stage.clock.sleep(60)
            w.add_guest(300, "ours", w.uuid())
            w.stage.mischief("delete-guest", vmid=100)
            await w.set_ready("ours", False)
            await w.stays(w.exists, HOUR)

    story(tell)


def test_a_renamed_guest_keeps_its_node() -> None:
    async def tell() -> None:
        async with joined() as w:
            w.rewrite(100, name="renamed")
            await w.set_ready("ours", False)
            await w.stays(w.exists, HOUR)

    story(tell)


def test_an_offline_host_neither_deletes_nor_taints_nodes() -> None:
    async def tell() -> None:
        async with world() as w:
            await boot(w)
            await w.join()
            await w.until(w.initialized)
            w.stage.mischief("host-down", node="pve1")
            await w.set_ready("ours", False)

            async def untouched() -> bool:
                found = await w.kube.find(Node, "ours")
                return found is not None and not found.spec.taints

            await w.stays(untouched, HOUR)

    story(tell)


def test_an_unread_guest_on_an_offline_host_is_not_gone() -> None:
    async def tell() -> None:
        async with world() as w:
            w.stage.mischief("host-down", node="pve1")
            await w.join(providerID="proxmox://r1/100", ready=False)
            await w.stays(w.exists, HOUR)
            assert plan.is_new(await w.node())

    story(tell)


def test_a_guest_started_after_the_last_poll_is_not_stopped() -> None:
    async def tell() -> None:
        async with joined() as w:
            await boot(w)
            assert w.regions["r1"].inventory.guests[100].status == "stopped"
            await w.set_ready("ours", False)

            async def untouched() -> bool:
                return not (await w.node()).spec.taints

            await w.stays(untouched, 60)

    story(tell)


# Requests


def test_an_idle_hour_costs_nothing_but_the_list() -> None:
    async def tell() -> None:
        async with joined() as w:
            await w.stage.clock.sleep(60)
            w.stage.transport.sent.clear()
            await w.stage.clock.sleep(HOUR)
            assert {path for _, path in w.stage.transport.sent} == {"/cluster/resources"}

    story(tell)


def test_a_new_node_costs_one_configuration() -> None:
    async def tell() -> None:
        async with world() as w:
            w.stage.transport.sent.clear()
            await w.join()
            await w.until(w.initialized)
            asked = Counter(path for _, path in w.stage.transport.sent)
            assert asked["/nodes/pve1/qemu/100/config"] == 1

    story(tell)


@pytest.mark.parametrize(("version", "read"), [("8.4.21", "resources"), ("9.2.11", "rules")])
def test_nodes_that_join_together_read_the_ha_groups_once(version: str, read: str) -> None:
    async def tell() -> None:
        async with world(version) as w:
            names = [f"n{n}" for n in range(4)]
            for n, name in enumerate(names):
                w.add_guest(300 + n, name, f"10000000-0000-4000-8000-{n:012d}")
            await w.stage.clock.sleep(60)
            w.stage.fault("latency", path="/cluster/ha/.*", seconds=2.0)
            w.stage.transport.sent.clear()
            for n, name in enumerate(names):
                await w.join(name, 300 + n)
            for name in names:
                await w.until(partial(w.initialized, name))
            asked = [path for _, path in w.stage.transport.sent if "/ha/" in path]
            assert asked == [f"/cluster/ha/{read}"]

    story(tell)


def test_a_node_that_does_not_report_costs_no_request_while_its_guest_exists() -> None:
    async def tell() -> None:
        async with joined() as w:
            await w.set_ready("ours", False)
            await w.stage.clock.sleep(60)
            w.stage.transport.sent.clear()
            await w.stage.clock.sleep(HOUR)
            assert {path for _, path in w.stage.transport.sent} == {"/cluster/resources"}

    story(tell)


def test_hidden_guests_are_checked_once_a_minute() -> None:
    async def tell() -> None:
        async with joined() as w:
            await w.set_ready("ours", False)
            w.stage.region.access.acl.clear()
            await w.stage.clock.sleep(120)
            w.stage.transport.sent.clear()
            await w.stage.clock.sleep(HOUR)
            asked = Counter(path for _, path in w.stage.transport.sent)
            assert asked["/cluster/nextid"] <= 60

    story(tell)


# Initialization and refresh


def test_a_guest_newer_than_the_last_poll_is_found_soon() -> None:
    async def tell() -> None:
        async with world() as w:
            await w.stage.clock.sleep(31)
            acl = list(w.stage.region.access.acl)
            w.stage.region.access.acl.clear()
            await w.stage.clock.sleep(31)
            await w.join("talos-x", providerID="")
            await w.stage.clock.sleep(5)
            assert plan.is_new(await w.node("talos-x"))
            w.stage.region.access.acl.extend(acl)
            await w.until(lambda: w.initialized("talos-x"), 30)

    story(tell)


def test_a_kubelet_without_external_cloud_provider_is_reported() -> None:
    async def tell() -> None:
        async with world() as w:
            await w.join(taints=[])
            await w.until(lambda: w.has_event("--cloud-provider=external"))
            assert identity.REGION not in (await w.node()).metadata.labels

    story(tell)


def test_deprecated_labels_are_copied_to_the_current_ones() -> None:
    async def tell() -> None:
        async with joined() as w:
            change = {"metadata": {"labels": {identity.OLD_ZONE: "z9"}}}
            await w.kube.merge(Node, "ours", change)

            async def carried() -> bool:
                return (await w.node()).metadata.labels[identity.ZONE] == "z9"

            await w.until(carried)

    story(tell)


def test_lifecycle_alone_does_not_initialize_nodes() -> None:
    async def tell() -> None:
        async with world(loops=("cloud.lifecycle",)) as w:
            await w.join(providerID="proxmox://r1/100", ready=False)

            async def tainted() -> bool:
                keys = {t.key for t in (await w.node()).spec.taints}
                return "node.cloudprovider.kubernetes.io/shutdown" in keys

            await w.until(tainted)
            assert plan.is_new(await w.node())

    story(tell)


def test_addresses_of_the_agent_follow_it() -> None:
    async def tell() -> None:
        async with world(network={"mode": "auto"}) as w:
            await w.join()
            before = await w.until(w.initialized)
            assert [a.type for a in before.status.addresses] == ["Hostname"]
            assert await w.has_event("NoAddress")
            await boot(w)

            async def addressed() -> bool:
                return any(a.type == "InternalIP" for a in (await w.node()).status.addresses)

            await w.until(addressed)

    story(tell)


def test_delays_have_their_upstream_metric_names() -> None:
    async def tell() -> None:
        async with joined() as w:
            registry = w.runtime.metrics.registry
            for name in ("cloud_provider_taint_removal_delay", "initial_node_sync_delay"):
                assert registry.get_sample_value(f"node_controller_{name}_seconds_count") == 1

    story(tell)
