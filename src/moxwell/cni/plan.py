"""What a node needs for pods: the CNI configuration, routes and address translation. Pure."""

import json
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

Json = dict[str, Any]
Network = IPv4Network | IPv6Network
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


def plan_network(name: str, nodes: Iterable[Mapping[str, Any]], cluster: str) -> PodNetwork | None:
    """
    The network of a node; None while it has no pod CIDR.

    A kubelet may register its Node with any pod CIDR, for instance with that of another node or
    with the default route. So the pod CIDRs of others count within those of the ``cluster`` only,
    and where two overlap, that of the older node.
    """
    known = {node["metadata"]["name"]: node for node in nodes}
    own = known.pop(name, None)
    networks = _pod_cidrs(own) if own is not None else ()
    taken = _TakenNetworks(cluster)
    for network in networks:
        taken.take(network)
    routes = [route for node in sorted(known.values(), key=_age) for route in _routes(node, taken)]
    shown = tuple(str(network) for network in networks)
    return PodNetwork(shown, frozenset(routes)) if networks else None


def _age(node: Mapping[str, Any]) -> tuple[str, str]:
    meta = node["metadata"]
    return str(meta.get("creationTimestamp") or ""), str(meta["name"])


class _TakenNetworks:
    """The networks in use, which do not overlap, in order."""

    def __init__(self, cluster: str) -> None:
        self._cluster = tuple(_range(ip_network(each)) for each in cluster.split(","))
        self._taken: list[tuple[int, int, int]] = []

    def has_free(self, network: Network) -> bool:
        """Whether a network is within the cluster and overlaps none."""
        version, first, last = _range(network)
        at = bisect_left(self._taken, (version, first, last))
        inside = any(
            version == v and low <= first and last <= high for v, low, high in self._cluster
        )
        near = self._taken[max(0, at - 1) : at + 1]
        return inside and not any(
            version == v and low <= last and first <= high for v, low, high in near
        )

    def take(self, network: Network) -> None:
        """Remember a network; its neighbours in the order are the only ones that may overlap."""
        insort(self._taken, _range(network))


def _range(network: Network) -> tuple[int, int, int]:
    """The family, the first and the last address."""
    return network.version, int(network.network_address), int(network.broadcast_address)


def _pod_cidrs(node: Mapping[str, Any]) -> tuple[Network, ...]:
    """Those of a node; an address within a network stands for the network, as in kube-apiserver."""
    spec = node.get("spec") or {}
    found: list[Network] = []
    for text in spec.get("podCIDRs") or filter(None, [spec.get("podCIDR")]):
        with suppress(ValueError):
            found.append(ip_network(text, strict=False))
    return tuple(found)


def _routes(node: Mapping[str, Any], taken: _TakenNetworks) -> Iterable[PodRoute]:
    """One for each free pod CIDR with an address of its family."""
    addresses = list(_internal_addresses(node))
    for network in _pod_cidrs(node):
        gateway = next((a for a in addresses if a.version == network.version), None)
        if taken.has_free(network):
            taken.take(network)
            if gateway is not None:
                yield PodRoute(str(network), str(gateway))


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
