"""Pods to types, hosts and NUMA nodes, decided together: tables, and properties of batches."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.scheduling.disruption.commands import NodeReplacement
from moxwell.scheduling.guest_offerings import LABELS, fine_sizes, fitted_sizes, instance_types
from moxwell.scheduling.guest_sizes import family_sizes
from moxwell.scheduling.host_room import HostRoom
from moxwell.scheduling.inventory_model import GIB, HostKey
from moxwell.scheduling.numa.guests import free_memory, pinned_cpus
from moxwell.scheduling.numa.host_numa import HostNuma, NodePolicy
from moxwell.scheduling.numa.topology import HostCpu, HostNumaNode, HostTopology
from moxwell.scheduling.packing.cluster import ClusterSnapshot, ProvisioningPool
from moxwell.scheduling.packing.explain import explain_pod
from moxwell.scheduling.packing.host_ledger import planned_slots
from moxwell.scheduling.packing.optimise import optimised
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.results import SchedulingResult, with_slots
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.requirements import requirement
from moxwell.scheduling.resource_lists import less
from moxwell.scheduling.well_known_labels import HOSTNAME, INSTANCE_TYPE, ZONE
from unit.scheduling.packing_scenes import pod

SIZES = family_sizes()
APP = {"labelSelector": {"matchLabels": {"app": "web"}}}
SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **APP}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOSTNAME, **APP}]
    }
}


def topology(nodes: int, cpus: int, gib: int) -> HostTopology:
    """So many NUMA nodes with CPUs and memory each; a core is two CPUs."""
    every = [
        HostCpu(n * cpus + i, (n * cpus + i) // 2, n, n, n)
        for n in range(nodes)
        for i in range(cpus)
    ]
    return HostTopology(tuple(every), tuple(HostNumaNode(n, gib * 1024) for n in range(nodes)))


def room(
    name: str,
    cpus: int,
    gib: int,
    *,
    numa: int = 0,
    policy: NodePolicy = NodePolicy.NUMA,
    disk: int = 1000,
    region: str = "r1",
) -> HostRoom:
    placed = HostNuma(topology(numa, cpus // numa, gib // numa), (), policy) if numa else None
    return HostRoom(HostKey(region, name), cpus, gib * GIB, disk * GIB, numa=placed)


def solver(rooms: Iterable[HostRoom], *requirements: Any, fitted: bool = False) -> Solver:
    known = tuple(rooms)
    sizes = (*SIZES, *fitted_sizes(known)) if fitted else SIZES
    pool = ProvisioningPool("default", instance_types(sizes, known), tuple(requirements))
    return Solver(ClusterSnapshot((pool,), rules=LABELS))


def apart(count: int, cpu: str = "3", memory: str = "5Gi") -> list[PodDemand]:
    """Pods that each need a node of their own."""
    return [pod(f"p{i}", cpu, memory, labels={"app": "web"}, affinity=APART) for i in range(count)]


def hosts_of(found: SchedulingResult) -> list[str]:
    return sorted(c.slot.host.name for c in found.claims if c.slot is not None)


@pytest.mark.parametrize(
    ("rooms", "hosts"),
    [
        ([room("a", 4, 8), room("b", 4, 8)], ["a", "b"]),
        ([room("a", 8, 16), room("b", 4, 8)], ["a", "a", "b"]),
        ([room("a", 8, 16, disk=40), room("b", 4, 8)], ["a", "b"]),
        ([room("a", 32, 32, numa=4)], ["a", "a", "a"]),
    ],
    ids=["full", "uneven", "disk", "numa"],
)
def test_claims_of_exact_packing_get_hosts_afterwards(
    rooms: list[HostRoom], hosts: list[str]
) -> None:
    """Packing looks at each offering alone, so that claims may be more than hosts can hold."""
    only = requirement(INSTANCE_TYPE, "In", ["c1.4VCPU-8GB"])
    found = solver(rooms, only).solve(apart(3))
    assert len(found.claims) == 3
    assert not hosts_of(found)
    planned = with_slots(found.claims)
    assert hosts_of(SchedulingResult(planned)) == hosts
    assert [c.types for c in planned] == [c.types for c in found.claims]


def test_a_replacement_takes_a_host_for_one_of_its_own_types() -> None:
    """Narrower options and requirements than those of the claim decide."""
    own_solver = solver([room("a", 32, 128), room("b", 32, 128)])
    (claim,) = own_solver.solve(apart(1)).claims
    names = [t.name for t in claim.instance_types]
    own = claim.options[names.index("s1.8VCPU-32GB")]
    only_b = own_solver.algebra.of([requirement(ZONE, "In", ["b"])])
    demands = [NodeReplacement(claim, only_b, (own,)).demand(n) for n in range(5)]
    slots = planned_slots(demands)
    assert [(s.host.name, s.type) for s in slots if s] == [("b", own)] * 4
    assert slots[4] is None


@pytest.mark.parametrize(
    ("rooms", "count", "hosts", "left_over"),
    [
        ([room("a", 4, 8), room("b", 4, 8)], 3, ["a", "b"], 1),
        ([room("a", 8, 16), room("b", 4, 8)], 3, ["a", "a", "b"], 0),
        ([room("a", 32, 128), room("b", 32, 128)], 4, ["a", "a", "b", "b"], 0),
        ([room("a", 8, 16, disk=40), room("b", 4, 8)], 3, ["a", "b"], 1),
        ([room("a", 32, 32, numa=4)], 5, ["a", "a", "a", "a"], 1),
    ],
    ids=["full", "uneven", "spread", "disk", "numa"],
)
def test_no_host_is_promised_twice(
    rooms: list[HostRoom], count: int, hosts: list[str], left_over: int
) -> None:
    found = optimised(
        solver(rooms, requirement(INSTANCE_TYPE, "In", ["c1.4VCPU-8GB"])), apart(count)
    )
    assert hosts_of(found) == hosts
    assert len(found.failures) == left_over
    for failure in found.failures.values():
        assert "no host has room for c1.4VCPU-8GB" in str(failure)


def test_claims_spread_over_regions_and_hosts() -> None:
    rooms = [room(f"h{i}", 16, 64, region=f"r{i % 2}") for i in range(4)]
    assert hosts_of(optimised(solver(rooms), apart(4))) == ["h0", "h1", "h2", "h3"]


def test_a_dearer_type_is_used_where_the_cheaper_has_no_host() -> None:
    """c1.4VCPU-8GB is the cheapest for the pod; the second host has memory for none of it."""
    rooms = [room("a", 4, 8), room("b", 8, 7)]
    found = optimised(solver(rooms, fitted=True), apart(2))
    names = {c.slot.host.name: c.instance_types[0].name for c in found.claims if c.slot}
    assert names == {"a": "c1.4VCPU-8GB", "b": "f1.8VCPU-7GB"}


def test_with_fine_sizes_a_node_is_hardly_larger_than_its_pods() -> None:
    rooms = (room("a", 16, 64),)
    pool = ProvisioningPool("default", instance_types((*SIZES, *fine_sizes()), rooms))
    fine = Solver(ClusterSnapshot((pool,), rules=LABELS))
    pods = [pod("p", "4900m", "9Gi")]
    (claim,) = optimised(fine, pods).claims
    assert claim.instance_types[0].name == "f1.6VCPU-12GB"
    assert claim.price < optimised(solver(rooms), pods).price


def test_a_claim_is_offered_only_types_that_a_host_can_hold_beside_the_others() -> None:
    rooms = [room("a", 8, 32), room("b", 4, 8)]
    found = optimised(solver(rooms), apart(2))
    offered = {c.slot.host.name: {t.name for t in c.instance_types} for c in found.claims if c.slot}
    assert "s1.8VCPU-32GB" in offered["a"]
    assert offered["b"] <= {"c1.4VCPU-8GB"} | offered["a"]
    assert "s1.8VCPU-32GB" not in offered["b"]


def test_a_claim_that_cannot_grow_on_its_host_moves_or_leaves_the_pod_to_another() -> None:
    rooms = [room("a", 2, 4), room("b", 8, 16)]
    pods = [pod(f"p{i}", "1500m", "1Gi") for i in range(3)]
    found = optimised(solver(rooms), pods)
    assert not found.failures
    assert sum(c.slot.guest.size.cpus for c in found.claims if c.slot) <= 8


def test_the_explanation_names_host_and_why_not_the_others() -> None:
    rooms = [room("a", 4, 8), room("b", 2, 4), room("c", 8, 16, region="r2")]
    (wanted,) = apart(1)
    found = explain_pod(wanted, optimised(solver(rooms), [wanted]))
    assert found.sentence == (
        "default/p0 needs a new node of the node pool default: c1.4VCPU-8GB at 0.10859 per hour "
        "on the host r1/a, or one of 3 other types."
    )
    assert "host r1/b: c1.4VCPU-8GB needs 4 CPUs, 2 are free" in found.details
    assert "host r2/c: r1/a ranks before it (NUMA nodes, spread, best fit)" in found.details
    assert any(d.startswith("type c1.2VCPU-4GB lacks ") for d in found.details)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[PodDemand], list[HostRoom]]:
    rooms = [
        room(f"h{i}", draw(st.sampled_from([4, 8, 16, 32])), draw(st.sampled_from([16, 40, 128])),
             numa=draw(st.sampled_from([0, 1, 2])), disk=draw(st.sampled_from([50, 500])),
             policy=draw(st.sampled_from([NodePolicy.NUMA, NodePolicy.STATIC])),
             region=draw(st.sampled_from(["r1", "r2"])))
        for i in range(draw(st.integers(1, 4)))
    ]  # fmt: skip
    kinds: list[dict[str, Any]] = [
        {}, {"topologySpreadConstraints": [SPREAD]}, {"affinity": APART},
        {"nodeSelector": {ZONE: "h1"}},
    ]  # fmt: skip
    found = []
    for number in range(draw(st.integers(1, 25))):
        cpu = draw(st.sampled_from(["250m", "1", "2500m", "7"]))
        memory = draw(st.sampled_from(["256Mi", "1Gi", "5Gi", "21Gi"]))
        kind = draw(st.sampled_from(kinds))
        found.append(pod(f"p{number:02}", cpu, memory, labels={"app": "web"}, **kind))
    return found, rooms


def assert_nothing_is_overcommitted(found: SchedulingResult, rooms: list[HostRoom]) -> None:
    for each in rooms:
        slots = [c.slot for c in found.claims if c.slot and c.slot.host == each.key]
        guests = [s.guest for s in slots]
        assert sum(g.size.cpus for g in guests) <= each.cpus
        assert sum(g.size.memory_bytes for g in guests) <= each.memory_bytes
        assert sum(g.size.disk_bytes for g in guests) <= each.disk_bytes
        if each.numa is None:
            continue
        uses = [g.use for g in guests]
        assert min(free_memory(each.numa.topology, uses).values()) >= 0
        pinned = [cpu for use in uses for cpu in use.pinned]
        assert len(pinned) == len(set(pinned)) == len(pinned_cpus(uses))
        static = each.numa.policy is NodePolicy.STATIC
        assert all(len(g.use.pinned) == (g.size.cpus if static else 0) for g in guests)


@settings(max_examples=60, deadline=None)
@given(batches(), st.booleans())
def test_no_node_host_or_numa_node_is_overcommitted(
    batch: tuple[list[PodDemand], list[HostRoom]], fitted: bool
) -> None:
    pods, rooms = batch
    found = optimised(solver(rooms, fitted=fitted), pods)
    placed = [p.uid for c in found.claims for p in c.pods]
    assert sorted([*placed, *found.failures]) == sorted(p.uid for p in pods)
    assert_nothing_is_overcommitted(found, rooms)
    for claim in found.claims:
        assert claim.slot is not None
        assert claim.slot.type in claim.options
        for each in claim.instance_types:
            free = less(each.capacity, each.overhead)
            assert all(free.get(n, 0) >= amount for n, amount in claim.requests.items())
        zones = {dict(p.shape.node_selector).get(ZONE) for p in claim.pods} - {None}
        assert zones <= {claim.slot.host.name}
        assert sum(bool(p.shape.anti_affinity) for p in claim.pods) < 2
    again = optimised(solver(rooms[::-1], fitted=fitted), pods[::-1])
    assert [(c.pods, c.slot) for c in again.claims] == [(c.pods, c.slot) for c in found.claims]
