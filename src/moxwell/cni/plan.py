"""What a node needs for pods: the CNI configuration, routes and address translation. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

Json = dict[str, Any]
BRIDGE, VERSION = "moxwell0", "1.0.0"


@dataclass(frozen=True, slots=True)
class PodRoute:
    """The pods of another node are reached through its address."""

    network: str
    gateway: str

    @property
    def six(self) -> bool:
        return ":" in self.network


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """What a node has: its pod CIDRs, and routes to those of others."""

    networks: tuple[str, ...]
    routes: frozenset[PodRoute]


def plan_network(name: str, nodes: Iterable[Mapping[str, Any]]) -> PodNetwork | None:
    """The network of a node; None while it has no pod CIDR."""
    networks: tuple[str, ...] = ()
    routes: set[PodRoute] = set()
    for node in nodes:
        if node["metadata"]["name"] == name:
            networks = _pod_cidrs(node)
        else:
            routes.update(_routes(node))
    return PodNetwork(networks, frozenset(routes)) if networks else None


def _pod_cidrs(node: Mapping[str, Any]) -> tuple[str, ...]:
    spec = node.get("spec") or {}
    return tuple(spec.get("podCIDRs") or filter(None, [spec.get("podCIDR")]))


def _routes(node: Mapping[str, Any]) -> Iterable[PodRoute]:
    """One for each pod CIDR with an address of its family."""
    addresses = list(_internal_addresses(node))
    for network in _pod_cidrs(node):
        same = (a for a in addresses if a.version == ip_network(network).version)
        if gateway := next(same, None):
            yield PodRoute(network, str(gateway))


def _internal_addresses(node: Mapping[str, Any]) -> Iterable[IPv4Address | IPv6Address]:
    """Those that can be reached: a node writes its status itself, so any text may be there."""
    for row in (node.get("status") or {}).get("addresses") or ():
        try:
            address = ip_address(row["address"])
        except ValueError:
            continue
        special = address.is_loopback or address.is_multicast or address.is_unspecified
        if row.get("type") == "InternalIP" and not special:
            yield address


def cni_configuration(network: PodNetwork, mtu: int) -> str:
    """The configuration of the reference plugins bridge, host-local and portmap."""
    six = any(":" in each for each in network.networks)
    four = any(":" not in each for each in network.networks)
    routes = [{"dst": "0.0.0.0/0"}] * four + [{"dst": "::/0"}] * six
    bridge: Json = {
        "type": "bridge",
        "bridge": BRIDGE,
        "mtu": mtu,
        "isGateway": True,
        "hairpinMode": True,  # a pod may reach itself through its Service
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": each}] for each in network.networks],
            "routes": routes,
        },
    }
    portmap: Json = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = [bridge, portmap]
    return json.dumps({"cniVersion": VERSION, "name": "moxwell", "plugins": plugins}, indent=2)


def masquerade_rules(network: PodNetwork, cluster: str) -> list[tuple[str, tuple[str, ...]]]:
    """
    The rules of iptables for pods that leave the cluster: the program and the rule for each family.

    Between pods and nodes of the cluster addresses stay, so that policies and logs see them.
    """
    outside = {ip_network(each).version: each for each in cluster.split(",")}
    found: list[tuple[str, tuple[str, ...]]] = []
    for each in network.networks:
        version = ip_network(each).version
        program = "ip6tables" if version == 6 else "iptables"
        rule = ("-s", each, "!", "-d", outside.get(version, each), "-j", "MASQUERADE")
        found.append((program, rule))
    return found
