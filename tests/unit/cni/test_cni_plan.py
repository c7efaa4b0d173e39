"""The network of a node: routes to other nodes, the CNI configuration, address translation."""

import json
from typing import Any

import pytest

from moxwell.cni.plan import (
    PodNetwork,
    PodRoute,
    cni_configuration,
    masquerade_rules,
    plan_network,
)

Node = dict[str, Any]
CLUSTER = "10.244.0.0/16,fd00::/48"


def node(name: str, cidrs: list[str], *addresses: str, kind: str = "InternalIP") -> Node:
    rows = [{"type": kind, "address": address} for address in addresses]
    spec = {"podCIDRs": cidrs} if cidrs else {}
    return {"metadata": {"name": name}, "spec": spec, "status": {"addresses": rows}}


OWN = node("a", ["10.244.0.0/24"], "10.0.0.1")
NODES: dict[str, tuple[list[Node], PodNetwork | None]] = {
    "a node without pod addresses": ([node("a", [], "10.0.0.1")], None),
    "the node does not exist": ([node("b", ["10.244.1.0/24"], "10.0.0.2")], None),
    "alone": ([OWN], PodNetwork(("10.244.0.0/24",), frozenset())),
    "another node": (
        [OWN, node("b", ["10.244.1.0/24"], "10.0.0.2")],
        PodNetwork(("10.244.0.0/24",), frozenset({PodRoute("10.244.1.0/24", "10.0.0.2")})),
    ),
    "another node without an address": (
        [OWN, node("b", ["10.244.1.0/24"], "b.example", kind="Hostname")],
        PodNetwork(("10.244.0.0/24",), frozenset()),
    ),
    "another node with addresses that lead nowhere": (
        [
            OWN,
            node("b", ["10.244.1.0/24"], "none", "10.0.0.2/24", "127.0.0.1", "0.0.0.0", "10.0.0.2"),
        ],
        PodNetwork(("10.244.0.0/24",), frozenset({PodRoute("10.244.1.0/24", "10.0.0.2")})),
    ),
    "two families": (
        [
            node("a", ["10.244.0.0/24", "fd00::/64"], "10.0.0.1", "fd01::1"),
            node("b", ["10.244.1.0/24", "fd00:0:0:1::/64"], "10.0.0.2", "fd01::2"),
        ],
        PodNetwork(
            ("10.244.0.0/24", "fd00::/64"),
            frozenset(
                {PodRoute("10.244.1.0/24", "10.0.0.2"), PodRoute("fd00:0:0:1::/64", "fd01::2")}
            ),
        ),
    ),
}


@pytest.mark.parametrize(("nodes", "network"), NODES.values(), ids=NODES)
def test_routes_lead_to_the_pods_of_other_nodes(
    nodes: list[Node], network: PodNetwork | None
) -> None:
    assert plan_network("a", nodes, CLUSTER) == network


def test_the_old_field_of_a_single_family_is_read() -> None:
    old = {"metadata": {"name": "a"}, "spec": {"podCIDR": "10.244.0.0/24"}}
    assert plan_network("a", [old], CLUSTER) == PodNetwork(("10.244.0.0/24",), frozenset())


def test_the_plugins_get_the_pod_addresses_of_the_node() -> None:
    network = PodNetwork(("10.244.0.0/24", "fd00::/64"), frozenset())
    bridge, portmap = json.loads(cni_configuration(network, 1450))["plugins"]
    assert (bridge["type"], bridge["mtu"], portmap["type"]) == ("bridge", 1450, "portmap")
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.244.0.0/24"}], [{"subnet": "fd00::/64"}]]
    assert bridge["ipam"]["routes"] == [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]


def test_addresses_are_translated_outside_the_cluster_only() -> None:
    network = PodNetwork(("10.244.3.0/24",), frozenset())
    rule = ("-s", "10.244.3.0/24", "!", "-d", "10.244.0.0/16", "-j", "MASQUERADE")
    assert masquerade_rules(network, "10.244.0.0/16") == [("iptables", rule)]
