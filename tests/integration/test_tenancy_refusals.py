"""What cannot work is refused by the API and by a plan alike; on virtual time."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.core import Machine
from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.app import defaults
from moxwell.errors import MoxwellError
from moxwell.plan.offline import offline_planner
from moxwell.pve.regions import Regions
from moxwell.testing.loop import run_virtual
from moxwell.testing.tenancy import NAMESPACES, NEWER, SPACE, TenantWorld, app, tenancy
from moxwell.testing.two_regions import configs

Json = dict[str, Any]
INFRA = "infrastructure.cluster.x-k8s.io/v1alpha2"


def story(run: Callable[[TenantWorld], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with tenancy() as w:
            await w.two_regions.clock.sleep(5)  # the bridges are read
            await run(w)

    run_virtual(whole())


def machine_template(**spec: Any) -> Json:
    meta = {"name": "t", "namespace": SPACE}
    body = {"template": {"spec": {"templateID": 9000, **spec}}}
    return {"apiVersion": INFRA, "kind": "ProxmoxMachineTemplate", "metadata": meta, "spec": body}


def group(**fields: Any) -> Json:
    return app("c1", nodeGroups=[{"name": "md0", "replicas": 1, **fields}])


REFUSED = [
    pytest.param(app("c1", regions=["nroth"]), "did you mean north", id="region"),
    pytest.param(group(instanceType="u1.lrge"), "did you mean u1.large", id="instance type"),
    pytest.param(
        app("c1", version="v1.36.0"), "templates exist for v1.34.1, v1.35.0", id="version"
    ),
    pytest.param(group(storage="cefh"), "did you mean ceph", id="storage"),
    pytest.param(group(bridge="vmbr7"), "did you mean vmbr0", id="bridge"),
    pytest.param(app("c" * 60), "too long", id="name"),
    pytest.param(app("c1", versoin="v1.35.0"), "did you mean version", id="field"),
    pytest.param(group(instanceTyp="u1.large"), "did you mean instanceType", id="nested field"),
    pytest.param(machine_template(storage="cefh"), "did you mean ceph", id="machine"),
    pytest.param(machine_template(numCore=2), "numCore", id="machine's field"),
]


@pytest.mark.parametrize(("manifest", "said"), REFUSED)
def test_the_api_and_a_plan_refuse_alike(manifest: Json, said: str) -> None:
    async def run(w: TenantWorld) -> None:
        with pytest.raises(MoxwellError, match=said):
            await w.planner.plan([manifest])
        strict = w.kube.with_strict_fields()
        found = {(s.resource.api_version, s.resource.kind): s for s in await w.kube.discover()}
        resource = found[manifest["apiVersion"], manifest["kind"]].resource
        with pytest.raises(MoxwellError, match=said):
            await strict.apply(manifest, resource, manager="test", force=True)
        assert (await w.kube.list(Kubernetes)).items == ()

    story(run)


def test_a_field_is_refused_without_strict_validation_too() -> None:
    async def run(w: TenantWorld) -> None:
        with pytest.raises(MoxwellError, match="did you mean version"):
            await w.kube.create(app("c1", versoin="v1.35.0"), Kubernetes.resource)

    story(run)


def test_a_region_that_does_not_answer_refuses_nothing() -> None:
    async def run(w: TenantWorld) -> None:
        for region in ("north", "south"):
            w.two_regions.fault(region, "cut-before")
        await w.two_regions.clock.sleep(120)
        await w.put(group(storage="perhaps", bridge="vmbr7"))
        with pytest.raises(MoxwellError, match="does not exist"):
            await w.put(app("c2", regions=["east"]))

    story(run)


def cluster_with(region: str) -> Json:
    meta = {"name": "own", "namespace": SPACE}
    zone = {"zone": "z1", "region": region}
    spec = {"externalManagedControlPlane": True, "zoneConfig": [zone]}
    return {"apiVersion": INFRA, "kind": "ProxmoxCluster", "metadata": meta, "spec": spec}


def test_a_proxmox_cluster_in_an_unknown_region_is_refused() -> None:
    async def run(w: TenantWorld) -> None:
        with pytest.raises(MoxwellError, match=r"zoneConfig\[z1\].region: region 'nort'"):
            await w.put(cluster_with("nort"))
        await w.put(cluster_with("north"))

    story(run)


def test_an_upgrade_that_cannot_work_does_not_start_and_a_bad_one_is_taken_back() -> None:
    async def run(w: TenantWorld) -> None:
        old = app("c1", version="v1.34.1", nodeGroups={"a": {"replicas": 2}})
        await w.put(old)
        await w.until(lambda: w.ready("c1", 2))
        for version, said in (("v1.33.0", "no downgrade"), ("v1.36.0", "skips minor versions")):
            with pytest.raises(MoxwellError, match=said):
                await w.put({**old, "spec": {**old["spec"], "version": version}})
        with pytest.raises(MoxwellError, match=r"no template .* has Kubernetes v1\.35\.9"):
            await w.put({**old, "spec": {**old["spec"], "version": "v1.35.9"}})
        await w.put({**old, "spec": {**old["spec"], "version": NEWER}})

        async def one_is_new() -> bool:
            return any(m.spec.version == NEWER for m in await w.machines("c1"))

        await w.until(one_is_new)
        found = await w.kube.get(KamajiControlPlane, "c1", SPACE)
        assert found.status.version == NEWER  # the control plane came first
        await w.put(old)
        await w.until(lambda: w.ready("c1", 2), 3600)
        assert {m.spec.version for m in await w.machines("c1")} == {"v1.34.1"}
        assert (await w.kube.get(KamajiControlPlane, "c1", SPACE)).spec.version == NEWER
        await w.put({**old, "spec": {**old["spec"], "version": NEWER}})
        await w.until(lambda: w.ready("c1", 2), 3600)
        assert {m.spec.version for m in await w.machines("c1")} == {NEWER}

    story(run)


def tenant(**spec: Any) -> Json:
    meta = {"name": "blue", "namespace": "default"}
    kind = Tenant.resource
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}


def in_blue(name: str, replicas: int, **group: Any) -> Json:
    tree = app(name, nodeGroups={"a": {"replicas": replicas, **group}})
    return {**tree, "metadata": {"name": name, "namespace": "tenant-blue"}}


def test_a_plan_of_a_tenant_with_its_clusters_knows_what_it_creates() -> None:
    async def run(w: TenantWorld) -> None:
        network = {"allowFrom": ["10.0.0.0/8"]}
        blue = tenant(network=network, resourceQuotas={"cpu": 6})
        plan = await w.planner.plan([blue, in_blue("c1", 2)])
        created = [(o.action, o.kind) for o in plan.parts[0].objects]
        assert created[:3] == [
            ("create", "SecurityGroup"),
            ("create", "SecurityGroup"),
            ("create", "Namespace"),
        ]
        assert plan.parts[1].notes == ()
        assert [m.why_not for m in plan.parts[1].machines] == ["", ""]
        with pytest.raises(MoxwellError, match="cpu: 4 asked, 4 used by others, limit 6"):
            await w.planner.plan([blue, in_blue("c1", 2), in_blue("c2", 2)])

    story(run)


def test_a_plan_uses_the_quota_that_it_changes() -> None:
    async def run(w: TenantWorld) -> None:
        await w.put(tenant(resourceQuotas={"cpu": 2}))

        async def limited() -> bool:
            found = await w.kube.find(NAMESPACES, "tenant-blue")
            return found is not None

        await w.until(limited)
        await w.two_regions.clock.sleep(1)
        with pytest.raises(MoxwellError, match="cpu: 4 asked"):
            await w.planner.plan([in_blue("c1", 2)])
        raised = await w.planner.plan([tenant(resourceQuotas={"cpu": 4}), in_blue("c1", 2)])
        assert raised.parts[1].groups[0].created == 2
        with pytest.raises(MoxwellError, match="cpu: 6 asked, 0 used by others, limit 4"):
            await w.planner.plan([tenant(resourceQuotas={"cpu": 4}), in_blue("c1", 3)])

    story(run)


def test_clusters_of_one_plan_compete_for_hosts() -> None:
    async def run(w: TenantWorld) -> None:
        big = {"resources": {"cpu": 2, "memory": "200Gi"}}
        both = [
            app(name, nodeGroups={"a": {"replicas": 2, **big}}, regions=["north"])
            for name in ("c1", "c2")
        ]
        alone = [(await w.planner.plan([doc])).parts[0] for doc in both]
        assert all(not m.why_not for part in alone for m in part.machines)
        first, second = (await w.planner.plan(both)).parts
        assert [m.host for m in first.machines] == [m.host for m in alone[0].machines]
        assert any("GiB" in m.why_not or "MiB" in m.why_not for m in second.machines)

    story(run)


def test_the_plan_of_a_deletion_names_everything_that_goes() -> None:
    async def run(w: TenantWorld) -> None:
        blue = tenant(network={"allowFrom": ["10.0.0.0/8"]})
        await w.put(blue)

        async def namespace() -> Any:
            found = await w.kube.find(Tenant, "blue", "default")
            return found and found.status.namespace

        await w.until(namespace)
        await w.put(in_blue("c1", 2))

        async def running() -> bool:
            machines = (await w.kube.list(Machine, "tenant-blue")).items
            return len(machines) == 2 and all(m.status.phase == "Running" for m in machines)

        await w.until(running)
        part = (await w.planner.plan([blue], delete=True)).parts[0]
        names = {(o.kind, o.name) for o in part.objects}
        assert {
            ("Namespace", "tenant-blue"),
            ("SecurityGroup", "north/mox-blue"),
            ("SecurityGroup", "south/mox-blue"),
            ("Kubernetes", "c1"),
            ("Cluster", "c1"),
            ("TenantControlPlane", "c1"),
            ("Secret", "c1-kubeconfig"),
        } <= names
        guests = {(r, v) for r in ("north", "south") for v in w.two_regions.guests(r)}
        assert {(m.region, m.vmid) for m in part.machines} == guests
        assert all(m.host and m.addresses and m.disks for m in part.machines)
        assert all(f"vm-{m.vmid}-" in disk for m in part.machines for disk in m.disks)
        text = str(part)
        assert "VMID" in text
        assert "disks" in text

    story(run)


def test_a_plan_without_a_daemon_refuses_the_same() -> None:
    async def run(w: TenantWorld) -> None:
        wires, clock = w.two_regions.transports, w.two_regions.clock
        regions = Regions(configs(*wires), clock, connect=lambda c: wires[c.region])
        for region in regions.values():
            await region.inventory.refresh()
        provided = defaults.defaults(regions, lab=True)
        good = app("c1", nodeGroups={"a": {"replicas": 1}})
        async with offline_planner(w.two_regions.store, regions, clock, lambda: provided) as alone:
            assert await alone.plan([good]) == await w.planner.plan([good])
            for case in REFUSED:
                manifest, said = case.values
                with pytest.raises(MoxwellError, match=str(said)):
                    await alone.plan([manifest])  # type: ignore[list-item]

    story(run)
