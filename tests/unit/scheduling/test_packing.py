"""The solver beyond the recorded cases: volumes, what-if runs, reasons, and laws."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.api.core.nodes import Taint
from moxwell.scheduling.packing.cluster import ClusterSnapshot
from moxwell.scheduling.packing.explain import PodExplanation, explain_pod
from moxwell.scheduling.packing.failures import LimitsReached, UntoleratedTaints
from moxwell.scheduling.packing.pod_volumes import StorageObjects, pod_volumes
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.results import SchedulingResult
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.requirements import requirement
from moxwell.scheduling.resource_lists import total
from moxwell.scheduling.well_known_labels import ZONE
from unit.scheduling.packing_scenes import ZONES, cluster, instance_type, node, pod, pool

HOST_SPREAD: dict[str, Any] = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
        }
    ],
    "labels": {"app": "x"},
}


def names(pods: tuple[PodDemand, ...]) -> list[str]:
    return [p.name for p in pods]


def test_pods_share_the_cheapest_machine_that_holds_them() -> None:
    found = Solver(cluster()).solve([pod("p1", "3"), pod("p2", "3")])
    (claim,) = found.claims
    assert [t.name for t in claim.instance_types] == ["t8", "t16"]
    assert claim.price == 0.8
    assert claim.requests == {"cpu": 6000, "memory": 2 * 2**30 * 1000, "pods": 2000}


def test_a_claim_says_why_earlier_pools_were_passed_over() -> None:
    first = pool("first", weight=9, taints=(Taint(key="db", effect="NoSchedule"),))
    small = pool("small", weight=5, limits={"cpu": 1000})
    found = Solver(cluster(first, small, pool("last"))).solve([pod("p", "2")])
    (claim,) = found.claims
    assert claim.pool == "last"
    tainted, limited = claim.passed_over
    assert tainted == ("first", UntoleratedTaints((Taint(key="db", effect="NoSchedule"),)))
    assert limited == ("small", LimitsReached("small"))


def test_a_pod_that_never_fits_names_the_constraint() -> None:
    found = Solver(cluster()).solve([pod("huge", "64"), pod("p")])
    assert "no instance type has enough resources" in str(found.failures["huge"])
    assert names(found.claims[0].pods) == ["p"]


def test_a_run_without_a_node_moves_its_pods_and_leaves_the_solver_as_it_was() -> None:
    bound = tuple(pod(f"p{i}", "1500m", on=f"n{i}") for i in range(3))
    solver = Solver(cluster(nodes=tuple(node(f"n{i}") for i in range(3)), pods=bound))
    for _ in range(2):
        found = solver.solve(bound[:1], removed=frozenset({"n0"}))
        assert {n: names(p) for n, p in found.existing.items()} == {"n1": ["p0"]}
    held = solver.solve(bound[:1], removed=frozenset({"n0"}), held=frozenset({"n1"}))
    assert list(held.existing) == ["n2"]


def test_limits_count_existing_nodes_but_not_removed_ones() -> None:
    snapshot = cluster(pool(limits={"cpu": 8000}), nodes=(node("n1"), node("n2")))
    solver = Solver(snapshot)
    demand = [pod("p", "2", **HOST_SPREAD), pod("q", "4", **HOST_SPREAD)]
    assert not solver.solve(demand).claims
    assert len(solver.solve(demand, removed=frozenset({"n1"})).claims) == 1


def test_decisions_explain_themselves() -> None:
    first = pool("first", weight=9, taints=(Taint(key="db", effect="NoSchedule"),))
    demand = [pod("huge", "18"), pod("p", "7"), pod("q", "7"), pod("old", "1")]
    snapshot = cluster(first, pool("last"), nodes=(node("n1", cpu=2),))
    found = Solver(snapshot).solve(demand)
    huge, new, _, old = (explain_pod(each, found) for each in demand)
    assert old == PodExplanation("default/old fits on the existing node n1.")
    assert new.sentence == (
        "default/p needs a new node of the node pool last together with 1 other pods: "
        "t16 at 1.6 per hour."
    )
    assert new.details[0] == "node pool first: did not tolerate taint (taint=db:NoSchedule)"
    assert huge.sentence.startswith("default/huge has no node: in the node pool first, did not")
    assert huge.details[-1] == "node pool last: the nearest type is t16, which lacks 2 cpu"
    assert "not part" in explain_pod(pod("other"), found).sentence


def storage(**objects: Any) -> StorageObjects:
    return StorageObjects(**objects)


def claim(**spec: Any) -> dict[str, Any]:
    meta = {"name": "c", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    return {"metadata": meta, "spec": spec}


def volume(*zones: list[str], **spec: Any) -> dict[str, Any]:
    terms = [
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(z)}]} for z in zones
    ]
    affinity = {"required": {"nodeSelectorTerms": terms}}
    return {"metadata": {}, "spec": {"nodeAffinity": affinity, "csi": {"driver": "d"}, **spec}}


def with_claims(*claims: str) -> dict[str, Any]:
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return {"metadata": {"name": "p", "namespace": "default"}, "spec": {"volumes": volumes}}


LATE = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "d"}


@pytest.mark.parametrize(
    "objects, refusal",
    [
        ({}, "not found"),
        ({"claims": {"default/c": claim()}}, "must define a storage class"),
        ({"claims": {"default/c": claim(volumeName="v")}}, 'persistentvolume "v" not found'),
        ({"claims": {"default/c": claim(storageClassName="s")}}, 'storageclass "s" not found'),
        (
            {"claims": {"default/c": claim(storageClassName="s")}, "classes": {"s": {}}},
            "must be bound",
        ),
        (
            {
                "claims": {"default/c": {"metadata": {"deletionTimestamp": "now"}}},
            },
            "is being deleted",
        ),
        ({"claims": {"default/c": claim(storageClassName="s")}, "classes": {"s": LATE}}, ""),
    ],
)
def test_a_claim_that_cannot_be_used_keeps_its_pod_waiting(
    objects: dict[str, Any], refusal: str
) -> None:
    found = pod_volumes(with_claims("c"), storage(**objects)).refusal
    assert refusal in found
    assert bool(refusal) == bool(found)


@pytest.mark.parametrize(
    ("objects", "driver"),
    [
        ({"volumes": {"v": {"metadata": {}, "spec": {"csi": {"driver": "d"}}}}}, "d"),
        (
            {"volumes": {"v": {"metadata": {}, "spec": {"awsElasticBlockStore": {}}}}},
            "ebs.csi.aws.com",
        ),
        ({"volumes": {"v": {"metadata": {}, "spec": {"gcePersistentDisk": {}}}}}, ""),
        ({"classes": {"s": LATE}}, "d"),
        (
            {"classes": {"s": LATE | {"provisioner": "kubernetes.io/cinder"}}},
            "cinder.csi.openstack.org",
        ),
        (
            {"classes": {"s": LATE | {"provisioner": "kubernetes.io/no-such"}}},
            "kubernetes.io/no-such",
        ),
    ],
)
def test_a_plugin_of_kubernetes_counts_as_the_driver_that_replaced_it(
    objects: dict[str, Any], driver: str
) -> None:
    bound = {"volumeName": "v"} if "volumes" in objects else {"storageClassName": "s"}
    found = pod_volumes(with_claims("c"), storage(claims={"default/c": claim(**bound)}, **objects))
    assert found.attachments == (((driver, "default/c"),) if driver else ())


def test_alternatives_of_two_volumes_are_combined_where_they_agree() -> None:
    objects = storage(
        claims={"default/c": claim(volumeName="v"), "default/d": claim(volumeName="w")},
        volumes={"v": volume(["a"], ["b"]), "w": volume(["b", "c"])},
    )
    found = pod_volumes(with_claims("c", "d"), objects)
    assert found.topologies == ((requirement(ZONE, "In", ["b"]),),)
    assert found.attachments == (("d", "default/c"), ("d", "default/d"))


def with_volumes(name: str, zone: str = "", count: int = 1) -> PodDemand:
    plain = pod(name)
    topologies = ((requirement(ZONE, "In", [zone]),),) if zone else ()
    volumes = tuple(("d", f"{name}-{i}") for i in range(count))
    shape = replace(plain.shape, volume_topologies=topologies, volumes=volumes)
    return replace(plain, shape=shape)


def test_a_pod_runs_where_its_volume_is() -> None:
    found = Solver(cluster(nodes=(node("n1", zone="a"),))).solve([with_volumes("p", "b")])
    (new,) = found.claims
    assert new.requirements.entries[ZONE].values == {"b"}


def test_attach_limits_hold_on_existing_and_on_new_nodes() -> None:
    limited = instance_type(4, volume_limits=(("d", 2),))
    full = node("n1", cpu=16, volume_limits=(("d", 1),))
    snapshot = cluster(pool(instance_types=(limited,)), nodes=(full,))
    found = Solver(snapshot).solve(
        [with_volumes("p", count=2), with_volumes("q"), with_volumes("r")]
    )
    assert {n: names(p) for n, p in found.existing.items()} == {"n1": ["q"]}
    assert sorted(names(c.pods) for c in found.claims) == [["p"], ["r"]]


@st.composite
def demands(draw: st.DrawFn) -> list[PodDemand]:
    found = []
    for number in range(draw(st.integers(1, 40))):
        spec: dict[str, Any] = {}
        if draw(st.booleans()):
            spec = dict(HOST_SPREAD)
        if draw(st.integers(0, 3)) == 0:
            spec["nodeSelector"] = {ZONE: draw(st.sampled_from(ZONES))}
        cpu = draw(st.sampled_from(["250m", "1", "1500m", "3", "7"]))
        found.append(pod(f"p{number:02}", cpu, draw(st.sampled_from(["1Gi", "6Gi"])), **spec))
    return found


def assert_holds(snapshot: ClusterSnapshot, found: SchedulingResult) -> None:
    """No node or option is overcommitted, and zones and host spread are kept."""
    for each in found.claims:
        for option in each.instance_types:
            room = option.allocatable
            assert all(room.get(n, 0) >= a for n, a in each.requests.items())
        zones = {v for p in each.pods for k, v in p.shape.node_selector if k == ZONE}
        assert len(zones) <= 1
    for name, pods in found.existing.items():
        (own,) = (n for n in snapshot.nodes if n.name == name)
        used = total(dict(p.shape.requests) for p in pods)
        assert all(own.allocatable[n] >= a for n, a in used.items())
    for together in (*(c.pods for c in found.claims), *found.existing.values()):
        # pods with a node selector: Karpenter merges groups that differ in its values only
        spread = [p for p in together if p.shape.spread and not p.shape.node_selector]
        assert len(spread) <= 1


@settings(max_examples=40, deadline=None)
@given(demands())
def test_every_pod_is_placed_once_and_nothing_is_overcommitted(pods: list[PodDemand]) -> None:
    snapshot = cluster(nodes=(node("n1", zone="a"), node("n2", zone="b", cpu=8)))
    solver = Solver(snapshot)
    found = solver.solve(pods)
    placed = [p.uid for c in found.claims for p in c.pods]
    placed += [p.uid for group in found.existing.values() for p in group]
    assert sorted([*placed, *found.failures]) == sorted(p.uid for p in pods)
    assert_holds(snapshot, found)
    again = Solver(snapshot).solve(pods[::-1])
    assert [names(c.pods) for c in again.claims] == [names(c.pods) for c in found.claims]
    assert solver.solve(pods).existing == found.existing
