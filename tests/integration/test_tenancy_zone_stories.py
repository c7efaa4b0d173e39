"""Node groups in zones, plans without a daemon, and the order in which groups change."""

from typing import Any

from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.cozystack import Kubernetes
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.plan.offline import offline_planner
from moxwell.pve.regions import Regions
from moxwell.testing.loop import run_virtual
from moxwell.testing.tenancy import SPACE, TenantWorld, app, tenancy
from moxwell.testing.two_regions import configs

Json = dict[str, Any]


async def places(w: TenantWorld, group: str) -> list[str]:
    return sorted(
        f"{g.spec.region}/{g.spec.claim.host}"
        for g in await w.guests("c1")
        if g.spec.claim and g.name.startswith(f"c1-{group}-")
    )


def test_a_group_stays_in_its_zones() -> None:
    async def story() -> None:
        async with tenancy() as w:
            groups: Json = {
                "a": {"replicas": 3, "regions": ["north"], "zones": ["pve1", "pve3"]},
                "b": {"replicas": 2, "zones": ["pve2"]},
                "c": {"replicas": 4},
            }
            spec: Json = {"nodeGroups": groups}
            plan = (await w.planner.plan([app("c1", **spec)])).parts[0]
            await w.put(app("c1", **spec))
            await w.until(lambda: w.ready("c1", 9), 3600)
            assert set(await places(w, "a")) == {"north/pve1", "north/pve3"}
            assert await places(w, "b") == ["north/pve2", "south/pve2"]
            regions = [p.split("/")[0] for p in await places(w, "c")]
            assert regions == ["north", "north", "south", "south"]
            for name in groups:
                rows = [m for m in plan.machines if m.group == f"c1-{name}"]
                predicted = sorted(f"{m.region}/{m.host}" for m in rows)
                assert predicted == await places(w, name)

    run_virtual(story())


def test_a_plan_without_a_daemon_is_the_same() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(app("c1", nodeGroups={"a": {"replicas": 1}}))
            await w.until(lambda: w.ready("c1", 1))
            found = await w.kube.get(MachineDeployment.resource, "c1-a", SPACE)
            meta = {"name": "c1-a", "namespace": SPACE}
            head = {"apiVersion": found["apiVersion"], "kind": "MachineDeployment"}
            more = {**head, "metadata": meta, "spec": {**found["spec"], "replicas": 4}}
            wires = w.two_regions.transports
            regions = Regions(
                configs(*wires), w.two_regions.clock, connect=lambda c: wires[c.region]
            )
            for region in regions.values():
                await region.inventory.refresh()
            async with offline_planner(
                w.two_regions.store, regions, w.two_regions.clock, lambda: Defaults(regions=())
            ) as planner:
                alone = await planner.plan([more])
                gone = await planner.plan([{**head, "metadata": meta}], delete=True)
            assert alone == await w.planner.plan([more])
            assert alone.parts[0].groups[0].created == 3
            assert [m.action for m in gone.parts[0].machines] == ["delete"]
            assert len(await w.guests("c1")) == 1

    run_virtual(story())


def test_a_group_without_capacity_does_not_block_the_next() -> None:
    async def story() -> None:
        async with tenancy() as w:
            huge = {"replicas": 1, "resources": {"cpu": 2, "memory": "900Gi"}}
            spec: Json = {"nodeGroups": {"a": huge, "b": {"replicas": 2}}}
            await w.put(app("c1", **spec))

            async def b_is_there() -> bool:
                return len(await places(w, "b")) == 2

            await w.until(b_is_there, 300)
            assert await places(w, "a") == []

    run_virtual(story())


async def _reported(w: TenantWorld, text: str) -> bool:
    found = await w.kube.get(Kubernetes, "c1", SPACE)
    return any(text in c.message for c in found.status.conditions)


def test_a_waiting_group_is_reported() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(app("c1", nodeGroups={"a": {"replicas": 1}, "b": {"replicas": 1}}))
            await w.until(lambda: w.ready("c1", 2))
            larger = {"replicas": 1, "diskSize": "40Gi"}
            await w.put(app("c1", nodeGroups={"a": larger, "b": larger}))
            await w.until(lambda: _reported(w, "c1-b waits for c1-a"), 60)
            await w.until(lambda: w.ready("c1", 2), 3600)

    run_virtual(story())


def test_a_replica_count_waits_for_no_rollout() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(app("c1", nodeGroups={"a": {"replicas": 2}, "b": {"replicas": 1}}))
            await w.until(lambda: w.ready("c1", 3))
            rolling = {"replicas": 2, "diskSize": "40Gi"}
            await w.put(app("c1", nodeGroups={"a": rolling, "b": {"replicas": 1}}))

            async def behind(fewer_than: int) -> bool:
                group = await w.kube.get(MachineDeployment, "c1-a", SPACE)
                return 0 < (group.status.up_to_date_replicas or 0) < fewer_than

            await w.until(lambda: behind(2), 600)
            await w.put(app("c1", nodeGroups={"a": rolling, "b": {"replicas": 2}}))

            async def grown() -> bool:
                group = await w.kube.get(MachineDeployment, "c1-b", SPACE)
                return (group.status.replicas or 0) == 2

            await w.until(grown, 600)
            assert await behind(2), "the rollout of a is still under way"
            await w.until(lambda: w.ready("c1", 4), 3600)

    run_virtual(story())
