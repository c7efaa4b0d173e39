"""Plans of random changes are compared with what then happens, on virtual time."""

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.cozystack import Kubernetes
from moxwell.api.ipam import IPAddress
from moxwell.controllers.tenancy.cluster.plan import RESOURCES
from moxwell.plan.report import DocumentPlan
from moxwell.testing.loop import run_virtual
from moxwell.testing.tenancy import SPACE, TenantWorld, app, tenancy

Json = dict[str, Any]
SHAPE: Json = {"instanceType": st.sampled_from(["u1.medium", "u1.large", "m1.xlarge"])}
MORE: Json = {
    "diskSize": st.sampled_from(["30Gi", "40Gi"]),
    "labels": st.just({"a": "b"}),
    "regions": st.sampled_from([["north"], ["south"], ["north", "south"]]),
}
FIXED = st.fixed_dictionaries({"replicas": st.integers(0, 3), **SHAPE}, optional=MORE)
SCALED = st.fixed_dictionaries(
    {"minReplicas": st.integers(0, 2), "maxReplicas": st.just(5), **SHAPE}, optional=MORE
)
SPEC = st.fixed_dictionaries(
    {
        "version": st.sampled_from(["v1.34.1", "v1.34.1", "v1.35.0"]),
        "nodeGroups": st.dictionaries(
            st.sampled_from(["a", "b", "c"]), FIXED | FIXED | SCALED, min_size=1
        ),
    }
)
Names = set[tuple[str, str]]


async def objects(w: TenantWorld) -> Names:
    found: Names = set()
    for kind, resource in RESOURCES.items():
        page = await w.kube.list(resource, SPACE)
        found |= {(kind, o["metadata"]["name"]) for o in page.items}
    return found


async def machines(w: TenantWorld) -> dict[str, tuple[str, str, str]]:
    """Machine -> region, host, address."""
    given = {
        a.spec.claim_ref.name.split("-net")[0]: a.spec.address
        for a in (await w.kube.list(IPAddress, SPACE)).items
    }
    return {
        g.name: (g.spec.region or "", g.spec.claim.host, given.get(g.name, ""))
        for g in await w.guests("c1")
        if g.spec.claim
    }


async def apply(w: TenantWorld, spec: Json) -> None:
    await w.put(app("c1", **spec))

    async def quiet() -> bool:
        groups = (await w.kube.list(MachineDeployment, SPACE)).items
        total = sum(1 if g.spec.replicas is None else g.spec.replicas for g in groups)
        if not await w.ready("c1", total):
            return False
        plan = (await w.planner.plan([app("c1", **spec)])).parts[0]
        return not plan.objects and all(not g.created and not g.deleted for g in plan.groups)

    await w.until(quiet, 7200)


async def check(w: TenantWorld, spec: Json) -> None:
    """Plan, apply, and compare."""
    plan = (await w.planner.plan([app("c1", **spec)])).parts[0]
    assert plan.notes == ()
    before, had = await objects(w), await machines(w)
    await apply(w, spec)
    after, has = await objects(w), await machines(w)
    changes: dict[str, Names] = {"create": set(), "update": set(), "delete": set()}
    for change in plan.objects:
        changes[change.action].add((change.kind, change.name))
    assert changes["create"] == after - before
    assert changes["delete"] == before - after
    new, gone = has.keys() - had.keys(), had.keys() - has.keys()
    assert sum(g.created for g in plan.groups) == len(new)
    assert sum(g.deleted for g in plan.groups) == len(gone)
    _compare_places(plan, {n: has[n] for n in new}, gone)


async def check_end(w: TenantWorld) -> None:
    """The plan of a deletion lists everything that is then deleted."""
    doc = {k: v for k, v in app("c1").items() if k != "spec"}
    plan = (await w.planner.plan([doc], delete=True)).parts[0]
    before, had = await objects(w), await machines(w)
    assert plan.action == "delete"
    assert {(o.kind, o.name) for o in plan.objects if o.kind in RESOURCES} == before
    assert {m.name for m in plan.machines} == had.keys()
    await w.kube.delete(Kubernetes, "c1", SPACE)

    async def gone() -> bool:
        return await w.kube.find(Kubernetes, "c1", SPACE) is None

    await w.until(gone, 3600)
    assert await objects(w) == set()
    assert await machines(w) == {}


def _compare_places(
    plan: DocumentPlan, new: dict[str, tuple[str, str, str]], gone: set[str]
) -> None:
    assert {m.name for m in plan.machines if m.action == "delete"} == gone
    created = [m for m in plan.machines if m.action == "create"]
    places = Counter((m.group, m.region, m.host) for m in created)
    assert places == Counter((_group(n), region, host) for n, (region, host, _) in new.items())
    likely = Counter(a for m in created for a in m.addresses)
    assert likely == Counter(address for _, _, address in new.values())


def _group(machine: str) -> str:
    """The group in a machine's name, before template hash and suffix."""
    return machine.rsplit("-", 2)[0]


@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],
)
@given(st.lists(SPEC, min_size=2, max_size=3))
def test_changes_happen_as_planned(specs: list[Json]) -> None:
    async def story() -> None:
        async with tenancy() as w:
            newest = "v1.34.1"
            for spec in specs:
                newest = max(newest, spec["version"])  # a control plane is never downgraded
                await check(w, {**spec, "version": newest})
            await check_end(w)

    run_virtual(story())


def test_a_plan_changes_nothing() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(app("c1", nodeGroups={"a": {"replicas": 1}}))
            await w.until(lambda: w.ready("c1", 1))
            before = await objects(w), await machines(w)
            spec = {"a": {"replicas": 3, "instanceType": "u1.large"}}
            plan = await w.planner.plan([app("c1", nodeGroups=spec)])
            (group,) = plan.parts[0].groups
            assert group.rolls
            assert (group.created, group.deleted) == (3, 1)
            assert before == (await objects(w), await machines(w))
            assert len(w.two_regions.guests("north")) + len(w.two_regions.guests("south")) == 1

    run_virtual(story())
