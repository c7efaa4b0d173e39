"""
Pod CIDRs and addresses that a hostile node registers, and the routes of the other nodes.

The credentials of a kubelet suffice to register a Node with any pod CIDR. It gets no traffic of
others with it, and ends the program of no other node.
"""

from ipaddress import IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.cni.plan import PodNetwork, PodRoute, plan_network

CLUSTER = "10.244.0.0/16"
VICTIM = PodRoute("10.244.1.0/24", "10.0.0.2")


def node(name: str, cidr: str, address: str, created: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"podCIDRs": [cidr]},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


OWN = node("own", "10.244.0.0/24", "10.0.0.1", "2026-01-01T00:00:00Z")
OTHER = node("z-other", "10.244.1.0/24", "10.0.0.2", "2026-01-01T00:00:01Z")


def routes_with(cidr: str) -> PodNetwork | None:
    hostile = node("a-hostile", cidr, "10.0.0.66", "2026-01-01T00:00:02Z")
    return plan_network("own", [hostile, OWN, OTHER], CLUSTER)


@pytest.mark.parametrize(
    "cidr",
    [
        pytest.param("0.0.0.0/0", id="the default route"),
        pytest.param("10.96.0.0/16", id="the Services"),
        pytest.param("10.0.0.2/32", id="the address of a node"),
        pytest.param("10.244.0.0/16", id="all pods"),
        pytest.param("10.244.1.0/24", id="the pods of another node"),
        pytest.param("10.244.1.7/32", id="one pod of another node"),
        pytest.param("10.244.0.0/23", id="the pods of two nodes"),
        pytest.param("10.244.0.9/32", id="a pod of the node itself"),
        pytest.param("::/0", id="the default route of the other family"),
        pytest.param("nonsense", id="no network"),
        pytest.param("10.244.1.5/24", id="an address in a network of another node"),
    ],
)
def test_a_node_takes_no_traffic_of_others(cidr: str) -> None:
    assert routes_with(cidr) == PodNetwork(("10.244.0.0/24",), frozenset({VICTIM}))


def test_a_node_gets_the_traffic_of_its_own_pods() -> None:
    found = routes_with("10.244.2.0/24")
    assert found is not None
    assert found.routes == {VICTIM, PodRoute("10.244.2.0/24", "10.0.0.66")}


NETWORKS = st.builds(
    lambda at, size: str(IPv4Network((at << 8, size), strict=False)),
    st.integers(0x0AF300, 0x0AF503),
    st.integers(15, 26),
)


@given(st.lists(NETWORKS, max_size=12))
def test_routes_never_overlap_and_never_leave_the_cluster(cidrs: list[str]) -> None:
    others = [
        node(f"n{at}", cidr, "10.0.0.9", f"2026-01-01T00:01:{at:02}Z")
        for at, cidr in enumerate(cidrs)
    ]
    found = plan_network("own", [*others, OWN, OTHER], CLUSTER)
    assert found is not None
    assert VICTIM in found.routes
    texts = (*found.networks, *(route.network for route in found.routes))
    networks = [IPv4Network(each) for each in texts]
    assert all(each.subnet_of(IPv4Network(CLUSTER)) for each in networks)
    for at, each in enumerate(networks):
        assert not any(each.overlaps(other) for other in networks[:at])
