"""
Whether the networks of management, storage and tenants are separate. Pure.

A network is a bridge with a VLAN tag, or without. Guests that share one with the addresses of hosts
or with a storage server reach those directly, whatever the firewall of a tenant says.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from moxwell.api.field_errors import listing
from moxwell.pve import property_strings
from moxwell.pve.guests import GuestConfig
from moxwell.verify.findings import Finding, remark, unread
from moxwell.verify.model import Observation, ObservedRegion, is_provisioned

NETWORK_DO = "give the tenant a network of its own: spec.network.vnet, or bridge and vlan"


class ConnectedNetwork(NamedTuple):
    """A bridge or VNet, and the VLAN tag or 0."""

    bridge: str
    vlan: int

    def __str__(self) -> str:
        return f"{self.bridge} with VLAN {self.vlan}" if self.vlan else self.bridge


def networks_of(config: GuestConfig) -> Iterator[ConnectedNetwork]:
    """The networks that a guest is connected to."""
    for key, value in config.raw.items():
        if key.startswith("net") and key[3:].isdigit():
            options = property_strings.parse(value)
            tag = str(options.get("tag", "0"))
            yield ConnectedNetwork(options.get("bridge", ""), int(tag) if tag.isdecimal() else 0)


def separate(seen: Observation) -> Iterator[Finding]:
    """Tenants, hosts and storages do not share networks."""
    for region in seen.regions.values():
        if not region.answers:
            continue
        yield from unread(region.name, region.denied, "networks")
        used = _by_tenant(seen, region)
        yield from _shared_by_tenants(region.name, used)
        yield from _with_hosts(region, used)


def _by_tenant(seen: Observation, region: ObservedRegion) -> dict[str, set[ConnectedNetwork]]:
    """The networks of the guests of each tenant that has a namespace."""
    found: dict[str, set[ConnectedNetwork]] = {}
    spaces = {tenant.status.namespace for tenant in seen.tenants if tenant.status.namespace}
    for machine in seen.machines:
        config = region.configs.get(machine.spec.virtual_machine_id or 0)
        ours = machine.spec.region == region.name and is_provisioned(machine)
        if config is not None and ours and machine.namespace in spaces:
            found.setdefault(machine.namespace, set()).update(networks_of(config))
    return found


def _shared_by_tenants(region: str, used: Mapping[str, set[ConnectedNetwork]]) -> Iterator[Finding]:
    every = sorted({network for networks in used.values() for network in networks})
    for network in every:
        names = sorted(name for name, networks in used.items() if network in networks)
        if len(names) > 1:
            text = f"{', '.join(names)} share the network {network} in {region}"
            yield remark("NetworkShared", f"{region}/{network}", text, NETWORK_DO)


def _with_hosts(
    region: ObservedRegion, used: Mapping[str, set[ConnectedNetwork]]
) -> Iterator[Finding]:
    """Tenants on the network of the hosts' own addresses, or of a storage server."""
    for tenant, networks in sorted(used.items()):
        for bridge in sorted(network.bridge for network in networks if not network.vlan):
            hosts = dict(_addresses_on(region, bridge))
            about = f"{region.name}/{tenant}/{bridge}"
            if hosts:
                where = listing([f"{host} has {cidr}" for host, cidr in hosts.items()])
                text = f"nodes of {tenant} are on {bridge} in {region.name}, where {where}"
                yield remark("ManagementNetworkShared", about, text, NETWORK_DO)
            for storage in _storages_on(region, hosts.values()):
                text = f"nodes of {tenant} are on the network of the storage {storage}"
                do, about_it = NETWORK_DO, f"{about}/{storage}"
                yield remark("StorageNetworkShared", about_it, f"{text} in {region.name}", do)


def _addresses_on(region: ObservedRegion, bridge: str) -> Iterator[tuple[str, str]]:
    for host, rows in sorted(region.interfaces.items()):
        yield from ((host, row.cidr) for row in rows if row.iface == bridge and row.cidr)


def _storages_on(region: ObservedRegion, cidrs: Iterable[str]) -> list[str]:
    """The storages with a server in one of the networks."""
    networks = [ipaddress.ip_network(cidr, strict=False) for cidr in cidrs]
    return [
        storage
        for storage, servers in sorted(region.storage_servers.items())
        if any(ipaddress.ip_address(server) in net for server in servers for net in networks)
    ]
