"""Quotas of tenants hold on every way to a machine, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.errors import Denied, MoxwellError
from moxwell.testing.loop import run_virtual
from moxwell.testing.tenancy import NAMESPACES, TenantWorld, tenancy

Json = dict[str, Any]
SPACE = "tenant-red"
APPS = "apps.cozystack.io/v1alpha1"


def tenant(name: str = "red", namespace: str = "default", **spec: Any) -> Json:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": APPS, "kind": "Tenant", "metadata": meta, "spec": spec}


def cluster(name: str, namespace: str = SPACE, **groups: Any) -> Json:
    meta, rows = {"name": name, "namespace": namespace}, groups or {"a": {"replicas": 1}}
    spec = {"nodeGroups": rows}
    return {"apiVersion": APPS, "kind": "Kubernetes", "metadata": meta, "spec": spec}


async def settled(w: TenantWorld, name: str = "red", namespace: str = "default") -> Any:
    found = await w.kube.find(Tenant, name, namespace)
    return found and found.status.namespace


async def placed(w: TenantWorld) -> list[ProxmoxMachine]:
    machines = (await w.kube.list(ProxmoxMachine)).items
    return [m for m in machines if m.spec.virtual_machine_id is not None]


def cpus(machines: list[ProxmoxMachine]) -> int:
    return sum((m.spec.num_cores or 1) * (m.spec.num_sockets or 1) for m in machines)


async def started(w: TenantWorld, **quotas: Any) -> None:
    await w.put(tenant(resourceQuotas=quotas))
    await w.until(lambda: settled(w))


def story(run: Callable[[TenantWorld], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with tenancy() as w:
            await run(w)

    run_virtual(whole())


def test_twelve_vcpus_do_not_run_under_a_quota_of_four() -> None:
    async def run(w: TenantWorld) -> None:
        await started(w, cpu=4)
        with pytest.raises(Denied, match=r"cpu: 12 asked, 0 used by others, limit 4"):
            await w.put(cluster("c1", a={"replicas": 3, "instanceType": "u1.large"}))
        await w.put(cluster("c1", a={"replicas": 2, "instanceType": "u1.medium"}))
        with pytest.raises(Denied, match=r"cpu: 2 asked, 4 used by others, limit 4"):
            await w.put(cluster("c2"))
        with pytest.raises(Denied, match=r"cpu: 6 asked, 0 used by others, limit 4"):
            await w.put(cluster("c1", a={"replicas": 3, "instanceType": "u1.medium"}))

    story(run)


@pytest.mark.parametrize(
    ("quotas", "said"),
    [
        ({"memory": "8Gi"}, r"memory: 16Gi asked"),
        ({"storage": "30Gi"}, r"storage: 40Gi asked"),
        ({"nodes": 1}, r"nodes: 2 asked, 0 used by others, limit 1"),
        ({"clusters": 0}, r"clusters: 1 asked, 0 used by others, limit 0"),
    ],
)
def test_each_quota_is_refused_with_figures(quotas: Json, said: str) -> None:
    async def run(w: TenantWorld) -> None:
        await started(w, **quotas)
        with pytest.raises(Denied, match=said):
            await w.put(cluster("c1", a={"replicas": 2}))
        with pytest.raises(MoxwellError, match=said):
            await w.planner.plan([cluster("c1", a={"replicas": 2})])

    story(run)


def test_two_clusters_at_once_do_not_both_get_the_last_room() -> None:
    async def run(w: TenantWorld) -> None:
        await started(w, cpu=2)
        put = [w.put(cluster(name)) for name in ("c1", "c2", "c3")]
        results = await asyncio.gather(*put, return_exceptions=True)
        assert sum(isinstance(r, Denied) for r in results) == 2
        assert len((await w.kube.list(Kubernetes, SPACE)).items) == 1

    story(run)


def test_a_path_around_admission_ends_at_the_machine_controller() -> None:
    """Somebody scales the MachineDeployment itself, as an autoscaler does."""

    async def run(w: TenantWorld) -> None:
        await started(w, cpu=4)
        await w.put(cluster("c1", a={"minReplicas": 1, "maxReplicas": 9}))

        async def scaled() -> bool:
            return await w.kube.find(MachineDeployment, "c1-a", SPACE) is not None

        await w.until(scaled)
        await w.kube.merge(MachineDeployment, "c1-a", {"spec": {"replicas": 6}}, SPACE)

        async def refused() -> list[str]:
            machines = (await w.kube.list(ProxmoxMachine, SPACE)).items
            found = [c for m in machines for c in m.status.conditions if c.type == "Ready"]
            rows = [c.message for c in found if c.reason == "QuotaExceeded"]
            return rows if len(rows) == 4 else []

        messages = await w.until(refused)
        said = "the quota of tenant-red is exceeded (cpu: 2 asked, 4 used by others, limit 4)"
        assert set(messages) == {said}
        assert cpus(await placed(w)) == 4
        await asyncio.sleep(300)
        assert cpus(await placed(w)) == 4
        await w.put(tenant(resourceQuotas={"cpu": 12}))
        await w.until(lambda: _placed(w, 6))

    story(run)


async def _placed(w: TenantWorld, count: int) -> bool:
    return len(await placed(w)) == count


def test_a_nested_tenant_does_not_escape_the_quota_of_its_parent() -> None:
    async def run(w: TenantWorld) -> None:
        await started(w, cpu=4)
        await w.put(tenant("sub", SPACE))
        space = await w.until(lambda: settled(w, "sub", SPACE))
        assert space == "tenant-red-sub"
        with pytest.raises(Denied, match=r"quota of tenant-red is exceeded \(cpu: 6 asked"):
            await w.put(cluster("c1", space, a={"replicas": 3}))
        await w.put(cluster("c1", space, a={"replicas": 1}))
        with pytest.raises(Denied, match=r"cpu: 4 asked, 2 used by others, limit 4"):
            await w.put(cluster("c2", a={"replicas": 2}))

    story(run)


def test_a_rollout_needs_room_for_one_more_machine() -> None:
    async def run(w: TenantWorld) -> None:
        await started(w, cpu=4)
        await w.put(cluster("c1", a={"replicas": 2}))
        await w.until(lambda: _placed(w, 2))
        with pytest.raises(Denied, match=r"cpu: 6 asked, 0 used by others, limit 4"):
            await w.put(cluster("c1", a={"replicas": 2, "diskSize": "40Gi"}))
        await w.put(cluster("c1", a={"replicas": 1}))
        await w.put(cluster("c1", a={"replicas": 1, "diskSize": "40Gi"}))

    story(run)


def test_a_lowered_quota_allows_what_reduces_usage_only() -> None:
    async def run(w: TenantWorld) -> None:
        await started(w, cpu=8)
        await w.put(cluster("c1", a={"replicas": 4}))
        await w.put(tenant(resourceQuotas={"cpu": 2}))

        async def lowered() -> bool:
            found = await w.kube.get(NAMESPACES, SPACE)
            return '"2"' in found["metadata"]["annotations"]["moxwell.dev/quota"]

        await w.until(lowered)
        await w.put(cluster("c1", a={"replicas": 3}))
        with pytest.raises(Denied, match="limit 2"):
            await w.put(cluster("c1", a={"replicas": 4}))

    story(run)


SIZES = st.sampled_from(["u1.medium", "u1.large", "c1.xlarge"])
ASKED = st.tuples(
    st.sampled_from(["c1", "c2", "c3"]),
    st.fixed_dictionaries({"replicas": st.integers(0, 4), "instanceType": SIZES}),
)
SCALED = st.tuples(st.sampled_from(["c1", "c2", "c3"]), st.integers(0, 6))


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
)
@given(changes=st.lists(ASKED | SCALED, min_size=3, max_size=8), limit=st.integers(2, 12))
def test_no_order_of_changes_goes_past_a_quota(changes: list[Any], limit: int) -> None:
    async def run(w: TenantWorld) -> None:
        await started(w, cpu=limit)
        most = 0
        for name, what in changes:
            try:
                if isinstance(what, int):
                    change = {"spec": {"replicas": what}}
                    await w.kube.merge(MachineDeployment, f"{name}-a", change, SPACE)
                else:
                    await w.put(cluster(name, a=what))
            except MoxwellError:
                continue
            for _ in range(20):
                await asyncio.sleep(1)
                most = max(most, cpus(await placed(w)))
        assert most <= limit

    story(run)
