"""Tenant clusters are created, scaled, rolled, upgraded, put to sleep and deleted."""

from typing import Any

import pytest

from moxwell.api import registry
from moxwell.api.capi.core import Cluster
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.talos import TalosConfig, TalosConfigTemplate
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.machine import ProxmoxMachineTemplate
from moxwell.testing.loop import run_virtual
from moxwell.testing.tenancy import SPACE, TenantWorld, app, tenancy

LIST = {"replicas": 3, "nodeGroups": [{"name": "worker", "replicas": 3}]}
MAP = {"nodeGroups": {"worker": {"minReplicas": 3, "maxReplicas": 5, "instanceType": "u1.medium"}}}


@pytest.mark.parametrize("spec", [LIST, MAP], ids=["the short form", "CozyStack's form"])
def test_a_cluster_in_either_form(spec: dict[str, Any]) -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(app("c1", **spec))
            found = await w.until(lambda: w.ready("c1", 3))
            assert found.status.endpoint == "https://c1.tenant-demo:6443"
            guests = await w.guests("c1")
            assert {g.spec.region for g in guests} == {"north", "south"}

    run_virtual(story())


def test_a_group_of_talos_nodes_beside_others() -> None:
    async def story() -> None:
        async with tenancy() as w:
            talos = {"name": "t", "replicas": 2, "os": "talos", "template": 9000}
            groups: list[dict[str, Any]] = [{"name": "a", "replicas": 1}, talos]
            await w.put(app("c1", nodeGroups=groups))
            await w.until(lambda: w.ready("c1", 3))
            configs = await w.kube.list(TalosConfig, SPACE)
            assert [c.status.ready for c in configs.items] == [True, True]
            await w.put(app("c1", nodeGroups=[{"name": "a", "replicas": 1}]))
            await w.until(lambda: w.ready("c1", 1))

            async def removed() -> bool:
                return not (await w.kube.list(TalosConfigTemplate, SPACE)).items

            await w.until(removed)

    run_virtual(story())


async def templates(w: TenantWorld) -> set[str]:
    return {t.name for t in (await w.kube.list(ProxmoxMachineTemplate, SPACE)).items}


def test_a_change_rolls_and_used_templates_are_kept() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(app("c1", nodeGroups=[{"name": "g", "replicas": 2}]))
            await w.until(lambda: w.ready("c1", 2))
            first, before = await templates(w), {m.name for m in await w.machines("c1")}
            uses = []

            async def rolled() -> Any:
                sets = (await w.kube.list(MachineSet, SPACE)).items
                refs = [s.spec.template.spec.infrastructure_ref for s in sets]
                named = {ref.name for ref in refs if ref is not None}
                uses.append(named <= await templates(w))
                return await w.ready("c1", 2) and not before & {
                    m.name for m in await w.machines("c1")
                }

            large: dict[str, Any] = {"name": "g", "replicas": 2, "instanceType": "u1.large"}
            await w.put(app("c1", nodeGroups=[large]))
            await w.until(rolled)
            assert all(uses)
            assert {g.spec.num_cores for g in await w.guests("c1")} == {4}
            assert first < await templates(w)  # one old set is kept, and what it names
            before = {m.name for m in await w.machines("c1")}
            await w.put(app("c1", nodeGroups=[{**large, "diskSize": "40Gi"}]))
            await w.until(rolled)

            async def collected() -> bool:
                return not first & await templates(w)

            await w.until(collected)
            assert all(uses)

    run_virtual(story())


def test_a_removed_group_waits_for_no_rollout() -> None:
    async def story() -> None:
        async with tenancy() as w:
            stays, leaves = {"name": "a", "replicas": 3}, {"name": "b", "replicas": 1}
            await w.put(app("c1", nodeGroups=[stays, leaves]))
            await w.until(lambda: w.ready("c1", 4))
            old = {m.name for m in await w.machines("c1") if m.name.startswith("c1-a-")}
            large: dict[str, Any] = {**stays, "instanceType": "u1.large"}
            await w.put(app("c1", nodeGroups=[large, leaves]))

            async def rolls() -> bool:
                return len({m.name for m in await w.machines("c1")} - old) > 1

            await w.until(rolls)
            await w.put(app("c1", nodeGroups=[large]))

            async def gone() -> bool:
                return not any(m.name.startswith("c1-b-") for m in await w.machines("c1"))

            await w.until(gone)
            assert old & {m.name for m in await w.machines("c1")}
            await w.until(lambda: w.ready("c1", 3), 3600)

    run_virtual(story())


def test_replica_counts_never_roll_and_an_autoscaler_keeps_its_count() -> None:
    async def story() -> None:
        async with tenancy() as w:
            groups: dict[str, Any] = {
                "a": {"minReplicas": 1, "maxReplicas": 4},
                "b": {"replicas": 1},
            }
            await w.put(app("c1", nodeGroups=groups))
            await w.until(lambda: w.ready("c1", 2))
            kept = {m.name for m in await w.machines("c1")}
            change = {"spec": {"replicas": 3}}
            await w.kube.merge(MachineDeployment, "c1-a", change, SPACE)
            await w.until(lambda: w.ready("c1", 4))
            await w.put(app("c1", nodeGroups={**groups, "b": {"replicas": 2}}))
            await w.until(lambda: w.ready("c1", 5))
            assert kept < {m.name for m in await w.machines("c1")}
            found = await w.kube.get(MachineDeployment, "c1-a", SPACE)
            assert found.spec.replicas == 3

    run_virtual(story())


def test_an_upgrade_changes_the_control_plane_before_the_nodes() -> None:
    async def story() -> None:
        async with tenancy() as w:
            spec = {"nodeGroups": [{"name": "g", "replicas": 2}]}
            await w.put(app("c1", version="v1.34.1", **spec))
            await w.until(lambda: w.ready("c1", 2))
            before = {m.name for m in await w.machines("c1")}
            await w.put(app("c1", version="v1.35.0", **spec))

            async def upgraded() -> Any:
                machines = await w.machines("c1")
                if any(m.spec.version == "v1.35.0" for m in machines):
                    assert w.control_planes.versions["c1.tenant-demo"] == "v1.35.0"
                return await w.ready("c1", 2) and not before & {m.name for m in machines}

            await w.until(upgraded)
            found = await w.kube.get(Kubernetes, "c1", SPACE)
            assert found.status.version == "v1.35.0"
            claims = [g.spec.claim for g in await w.guests("c1")]
            assert {claim.template for claim in claims if claim is not None} == {9001}

    run_virtual(story())


def test_deleting_a_cluster_leaves_nothing() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(app("c1", nodeGroups=[{"name": "g", "replicas": 2}]))
            await w.until(lambda: w.ready("c1", 2))
            await w.kube.delete(Kubernetes, "c1", SPACE)

            async def gone() -> bool:
                return await w.kube.find(Kubernetes, "c1", SPACE) is None

            await w.until(gone)

            async def empty() -> bool:
                return not await left(w)

            await w.until(empty, 120)
            assert w.control_planes.stores == {}
            for region in ("north", "south"):
                assert w.two_regions.guests(region) == {}
                assert w.two_regions.isos(region) == []

    run_virtual(story())


async def left(w: TenantWorld) -> list[str]:
    """Every object of our kinds in the tenant's namespace."""
    found = []
    for served in await w.kube.discover():
        namespaced = served.resource.namespaced and "list" in served.verbs and served.preferred
        if namespaced and served.resource.plural not in {"events", "configmaps", "serviceaccounts"}:
            page = await w.kube.list(served.resource, SPACE)
            found += [f"{served.resource.kind}/{o['metadata']['name']}" for o in page.items]
    return found


def test_a_control_plane_sleeps_wakes_and_renews_its_certificates() -> None:
    async def story() -> None:
        async with tenancy() as w:
            spec: dict[str, Any] = {"nodeGroups": [{"name": "g", "replicas": 1}]}
            await w.put(app("c1", **spec))
            await w.until(lambda: w.ready("c1", 1))
            host = "c1.tenant-demo"
            await w.put(app("c1", controlPlane={"replicas": 0}, **spec))

            async def asleep() -> bool:
                return host not in w.control_planes.awake

            await w.until(asleep)
            assert host in w.control_planes.stores  # its data is kept
            assert len(await w.machines("c1")) == 1
            await w.put(app("c1", controlPlane={"replicas": 2}, **spec))
            await w.until(lambda: w.ready("c1", 1))
            before = w.control_planes.issued[host]
            notes = {"metadata": {"annotations": {"certs.kamaji.clastix.io/rotate": "now"}}}
            plane = next(k for k in registry.KINDS if k.__name__ == "TenantControlPlane")
            await w.kube.merge(plane, "c1", notes, SPACE)

            async def rotated() -> bool:
                return w.control_planes.issued[host] != before

            await w.until(rotated)
            await w.until(lambda: w.ready("c1", 1))
            cluster = await w.kube.get(Cluster, "c1", SPACE)
            assert cluster.spec.control_plane_endpoint.host == host

    run_virtual(story())
