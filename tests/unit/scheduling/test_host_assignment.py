"""Planned nodes to sizes, hosts and NUMA nodes: tables, and properties of random batches."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.scheduling.guest_offerings import LABELS, HostRoom, instance_types
from moxwell.scheduling.guest_sizes import family_sizes
from moxwell.scheduling.host_assignment import (
    AssignableHost,
    HostAssignments,
    NodeDemand,
    assign_hosts,
    guest_use,
    node_demand,
    tight_size,
)
from moxwell.scheduling.inventory_model import GIB, HostKey
from moxwell.scheduling.numa.guests import GuestCpuUse, free_memory, pinned_cpus
from moxwell.scheduling.numa.topology import HostCpu, HostNumaNode, HostTopology
from moxwell.scheduling.packing.cluster import ClusterSnapshot, ProvisioningPool
from moxwell.scheduling.packing.optimise import optimised
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.requirements import requirement
from moxwell.scheduling.resource_lists import less, requested, total
from moxwell.scheduling.well_known_labels import INSTANCE_TYPE, ZONE
from unit.scheduling.packing_scenes import pod

SIZES = family_sizes()


def topology(nodes: int, cpus: int, gib: int) -> HostTopology:
    """So many NUMA nodes with CPUs and memory each; a core is two CPUs."""
    every = [
        HostCpu(n * cpus + i, (n * cpus + i) // 2, n, n, n)
        for n in range(nodes)
        for i in range(cpus)
    ]
    return HostTopology(tuple(every), tuple(HostNumaNode(n, gib * 1024) for n in range(nodes)))


def host(name: str, cpus: int, gib: int, *, numa: int = 0, disk: int = 1000) -> AssignableHost:
    room = HostRoom(HostKey("r1", name), cpus, gib * GIB, disk * GIB)
    return AssignableHost(room, topology(numa, cpus // numa, gib // numa) if numa else None)


def demand(name: str, cpu: str, memory: str, *labels: tuple[str, str], **extra: Any) -> NodeDemand:
    wanted = tuple(requirement(key, "In", [value]) for key, value in labels)
    requests = requested({"cpu": cpu, "memory": memory, "pods": 3})
    return NodeDemand(name, requests, wanted, **extra)


@pytest.mark.parametrize(
    ("requests", "name"),
    [
        ({"cpu": "1"}, "f1.2VCPU-1GB"),
        ({"cpu": "2950m", "memory": "5Gi"}, "f1.4VCPU-6GB"),
        ({"cpu": "950m", "memory": "600Mi"}, "f1.1VCPU-1GB"),
        ({"cpu": "500m", "memory": "900Mi"}, "f1.1VCPU-2GB"),
        ({"cpu": "500m", "pods": 100}, "f1.1VCPU-3GB"),
        ({"cpu": "500m", "pods": 111}, None),
        ({"example.com/gpu": 1}, None),
        ({"ephemeral-storage": "50Gi"}, "f1.1VCPU-1GB"),
    ],
)
def test_the_smallest_size_that_holds_requests(requests: dict[str, Any], name: str | None) -> None:
    found = tight_size(requested(requests))
    assert (found and found.name) == name
    if found is not None:
        free = less(found.capacity, found.overhead.all)
        assert all(free[n] >= a for n, a in requested(requests).items())


def test_a_node_goes_where_it_fills_best() -> None:
    hosts = [host("large", 32, 128), host("small", 4, 8), host("middle", 8, 20)]
    found = assign_hosts([demand("n", "2", "5Gi")], SIZES, hosts)
    assert found.assigned["n"].size.name == "c1.4VCPU-8GB"
    assert found.assigned["n"].host.name == "small"


def test_a_tight_size_costs_less_than_a_family() -> None:
    hosts = [host("a", 32, 128)]
    wanted = [demand("n", "2500m", "9Gi")]
    fixed, tight = (
        assign_hosts(wanted, SIZES, hosts),
        assign_hosts(wanted, SIZES, hosts, tight=True),
    )
    assert fixed.assigned["n"].size.name == "t1.4VCPU-12GB"
    assert tight.assigned["n"].size.name == "f1.3VCPU-10GB"
    assert tight.price < fixed.price


def test_a_host_is_not_promised_twice() -> None:
    hosts = [host("a", 4, 8), host("b", 4, 8)]
    found = assign_hosts([demand(f"n{i}", "2", "5Gi") for i in range(3)], SIZES, hosts)
    assert sorted(a.host.name for a in found.assigned.values()) == ["a", "b"]
    assert found.refused == {
        "n2": "no host has room for c1.4VCPU-8GB, the cheapest size that holds its pods"
    }


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (demand("n", "200", "1Gi"), "no size is large enough for its pods"),
        (demand("n", "1", "1Gi", (ZONE, "z")), "its requirements exclude every size on every host"),
        (demand("n", "15", "28Gi"), "no host has NUMA nodes with enough free CPUs"),
    ],
)
def test_a_node_without_a_place_says_why(wanted: NodeDemand, why: str) -> None:
    busy = GuestCpuUse(1, 1024)
    hosts = [replace(host("a", 16, 40, numa=2), guests=(busy,))]
    assert assign_hosts([wanted], SIZES, hosts).refused["n"].startswith(why)


def test_requirements_choose_zone_and_type() -> None:
    hosts = [host("a", 16, 64), host("b", 16, 64)]
    wanted = demand("n", "1", "1Gi", (ZONE, "b"), (INSTANCE_TYPE, "s1.4VCPU-16GB"))
    (found,) = assign_hosts([wanted], SIZES, hosts).assigned.values()
    assert (found.host.name, found.size.name) == ("b", "s1.4VCPU-16GB")


def test_a_node_stays_inside_one_numa_node_where_it_can() -> None:
    hosts = [host("a", 16, 64, numa=2)]
    wanted = [demand(f"n{i}", "5", "10Gi", pinned=True) for i in range(2)]
    found = assign_hosts(wanted, SIZES, hosts, tight=True)
    placed = [each.numa for each in found.assigned.values()]
    assert [len(p.nodes) for p in placed if p is not None] == [1, 1]
    assert {p.nodes[0].host for p in placed if p is not None} == {0, 1}


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[NodeDemand], list[AssignableHost]]:
    hosts = [
        host(f"h{i}", draw(st.sampled_from([4, 8, 16, 32])), draw(st.sampled_from([16, 40, 128])),
             numa=draw(st.sampled_from([0, 1, 2])), disk=draw(st.sampled_from([50, 500])))
        for i in range(draw(st.integers(1, 4)))
    ]  # fmt: skip
    demands = []
    for number in range(draw(st.integers(1, 12))):
        labels = [(ZONE, f"h{draw(st.integers(0, 3))}")] if draw(st.integers(0, 3)) == 0 else []
        cpu = draw(st.sampled_from(["500m", "1", "2500m", "5", "11"]))
        memory = draw(st.sampled_from(["500Mi", "3Gi", "9Gi", "21Gi"]))
        demands.append(demand(f"n{number:02}", cpu, memory, *labels, pinned=draw(st.booleans())))
    return demands, hosts


def assert_nothing_is_overcommitted(
    found: HostAssignments, demands: list[NodeDemand], hosts: list[AssignableHost]
) -> None:
    by_name = {d.name: d for d in demands}
    for each in hosts:
        own = {n: a for n, a in found.assigned.items() if a.host == each.room.key}
        assert sum(a.size.cpus for a in own.values()) <= each.room.cpus
        assert sum(a.size.memory_bytes for a in own.values()) <= each.room.memory_bytes
        assert sum(a.size.disk_bytes for a in own.values()) <= each.room.disk_bytes
        if each.topology is None:
            continue
        uses = [guest_use(a.size, a.numa) for a in own.values()]
        assert min(free_memory(each.topology, uses).values()) >= 0
        pinned = [cpu for use in uses for cpu in use.pinned]
        assert len(pinned) == len(set(pinned)) == len(pinned_cpus(uses))
        for name, a in own.items():
            assert a.numa is not None
            assert len(a.numa.cpus) == (a.size.cpus if by_name[name].pinned else 0)
            assert sum(n.memory_mib for n in a.numa.nodes) * 2**20 == a.size.memory_bytes


@settings(max_examples=60, deadline=None)
@given(batches(), st.booleans())
def test_no_node_host_or_numa_node_is_overcommitted(
    batch: tuple[list[NodeDemand], list[AssignableHost]], tight: bool
) -> None:
    demands, hosts = batch
    found = assign_hosts(demands, SIZES, hosts, tight=tight)
    assert sorted([*found.assigned, *found.refused]) == sorted(d.name for d in demands)
    for each in demands:
        if (a := found.assigned.get(each.name)) is not None:
            free = less(a.size.capacity, a.size.overhead.all)
            assert all(free.get(n, 0) >= amount for n, amount in each.requests.items())
            zones = [r for r in each.requirements if r.key == ZONE]
            assert all(r.has(a.host.name) for r in zones)
    assert_nothing_is_overcommitted(found, demands, hosts)
    assert assign_hosts(demands[::-1], SIZES[::-1], hosts[::-1], tight=tight) == found


@st.composite
def pods_and_hosts(draw: st.DrawFn) -> tuple[list[PodDemand], list[AssignableHost]]:
    _, hosts = draw(batches())
    spread = {
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }  # fmt: skip
    found = []
    for number in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from([{}, {"topologySpreadConstraints": [spread]}]))
        cpu = draw(st.sampled_from(["250m", "1", "2500m"]))
        memory = draw(st.sampled_from(["256Mi", "1Gi", "5Gi"]))
        found.append(pod(f"p{number:02}", cpu, memory, labels={"app": "web"}, **kind))
    return found, hosts


@settings(max_examples=30, deadline=None)
@given(pods_and_hosts(), st.booleans())
def test_pods_to_nodes_to_hosts_to_numa_nodes(
    given_: tuple[list[PodDemand], list[AssignableHost]], tight: bool
) -> None:
    """Packed by price onto what the hosts offer, then assigned: nothing is overcommitted."""
    pods, hosts = given_
    types = instance_types(SIZES, (h.room for h in hosts))
    snapshot = ClusterSnapshot((ProvisioningPool("default", types),), rules=LABELS)
    packed = optimised(Solver(snapshot), pods)
    placed = [p.uid for c in packed.claims for p in c.pods]
    assert sorted([*placed, *packed.failures]) == sorted(p.uid for p in pods)
    demands = [node_demand(f"n{i:02}", claim) for i, claim in enumerate(packed.claims)]
    found = assign_hosts(demands, SIZES, hosts, tight=tight)
    assert_nothing_is_overcommitted(found, demands, hosts)
    for each, claim in zip(demands, packed.claims, strict=True):
        if (a := found.assigned.get(each.name)) is not None:
            free = less(a.size.capacity, a.size.overhead.all)
            used = total(dict(p.shape.requests) for p in claim.pods)
            assert all(free.get(n, 0) >= amount for n, amount in used.items())
    again = optimised(Solver(snapshot), pods[::-1])
    assert [c.pods for c in again.claims] == [c.pods for c in packed.claims]
