"""
Renders a guest's network as cloud-init network-config version 2 (netplan). Pure.

NICs are matched by MAC and renamed. DHCP is set explicitly for each family, and a default route is
written as a prefix, because the netplan of older images does not know ``to: default``.
"""

from typing import Any

import yaml

from moxwell.bootstrap.network import (
    GuestNetwork,
    Nic,
    RoutingRule,
    StaticRoute,
    Vrf,
    destination,
    gateway_routes,
)


def as_network_config(network: GuestNetwork) -> bytes:
    """The file ``network-config`` of the bootstrap ISO."""
    config: dict[str, Any] = {"version": 2, "renderer": "networkd"}
    config["ethernets"] = {nic.inside: _ethernet(nic) for nic in network.nics}
    if network.vrfs:
        config["vrfs"] = {vrf.name: _vrf(vrf) for vrf in network.vrfs}
    return yaml.safe_dump(config, sort_keys=False).encode()


def _ethernet(nic: Nic) -> dict[str, Any]:
    out: dict[str, Any] = {
        "match": {"macaddress": nic.mac.lower()},
        "set-name": nic.inside,
        "dhcp4": nic.dhcp4,
        "dhcp6": nic.dhcp6,
    }
    if nic.addresses:
        out["addresses"] = [a.cidr for a in nic.addresses]
    routes = [_route(r) for r in (*gateway_routes(nic), *nic.routes)]
    _put(out, "routes", routes)
    _put(out, "routing-policy", [_policy(p) for p in nic.policies])
    if nic.mtu:
        out["mtu"] = nic.mtu
    names: dict[str, Any] = {}
    _put(names, "addresses", list(nic.dns))
    _put(names, "search", list(nic.search))
    if names:
        out["nameservers"] = names
    return out


def _vrf(vrf: Vrf) -> dict[str, Any]:
    out: dict[str, Any] = {"table": vrf.table}
    _put(out, "interfaces", ["eth" + i.removeprefix("net") for i in vrf.interfaces])
    _put(out, "routes", [_route(r) for r in vrf.routes])
    _put(out, "routing-policy", [_policy(p, vrf.table) for p in vrf.policies])
    return out


def _route(route: StaticRoute) -> dict[str, Any]:
    out: dict[str, Any] = {"to": destination(route)}
    if route.via:
        out["via"] = route.via
    else:
        out["scope"] = "link"
    if route.metric is not None:
        out["metric"] = route.metric
    if route.table is not None:
        out["table"] = route.table
    return out


def _policy(policy: RoutingRule, table: int | None = None) -> dict[str, Any]:
    anywhere = "::/0" if policy.is6 else "0.0.0.0/0"
    out: dict[str, Any] = {}
    _put(out, "to", anywhere if policy.to == "default" else policy.to)
    _put(out, "from", anywhere if policy.from_ == "default" else policy.from_)
    chosen = policy.table if policy.table is not None else table
    if chosen is not None:
        out["table"] = chosen
    if policy.priority is not None:
        out["priority"] = policy.priority
    return out


def _put(out: dict[str, Any], name: str, value: Any) -> None:
    if value:
        out[name] = value
