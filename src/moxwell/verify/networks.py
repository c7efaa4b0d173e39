"""
Whether the networks of management, storage and tenants are separate. Pure.

A network is a bridge with a VLAN tag, or without. Guests that share one with the addresses of hosts
or with a storage server reach those directly, whatever the firewall of a tenant says.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import NamedTuple

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
    untagged = {n.bridge: name for name, networks in used.items() for n in networks if not n.vlan}
    for host, rows in sorted(region.interfaces.items()):
        for row in rows:
            if row.iface not in untagged or not row.cidr:
                continue
            tenant, about = untagged[row.iface], f"{region.name}/{host}/{row.iface}"
            text = f"nodes of {tenant} are on {row.iface}, where {host} has {row.cidr}"
            yield remark("ManagementNetworkShared", about, text, NETWORK_DO)
            network = ipaddress.ip_network(row.cidr, strict=False)
            for storage, servers in sorted(region.storage_servers.items()):
                if any(ipaddress.ip_address(server) in network for server in servers):
                    text = f"nodes of {tenant} are on the network of the storage {storage}"
                    yield remark("StorageNetworkShared", f"{about}/{storage}", text, NETWORK_DO)
