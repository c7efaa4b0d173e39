"""
The network devices of nodes that are made from a ProxmoxTemplate, and the IP pools for them. Pure.

As in karpenter-provider-proxmox, an ``address4`` or ``address6`` of a device that is the address of
a whole network, such as 172.16.0.0/24, means that each node gets an address of this network. For
each network there is one InClusterIPPool, which the Cluster owns.
"""

import hashlib
import ipaddress
from collections.abc import Iterator
from typing import Any

from moxwell.api.capi.core import Cluster
from moxwell.api.ipam import InClusterIPPool, PoolSpec
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate, TemplateNetwork
from moxwell.api.kinds import owner_reference
from moxwell.api.meta import ObjectMeta
from moxwell.runtime.key import Key

Json = dict[str, Any]


def node_pools(cluster: Cluster, template: ProxmoxTemplate) -> tuple[InClusterIPPool, ...]:
    """The pools of all devices of a template."""
    owner = owner_reference(cluster, controller=False)
    key = Key(cluster.namespace, cluster.name)
    specs = {pool_name(key, s): s for nic in template.spec.network for s in _subnets(nic)}
    return tuple(
        InClusterIPPool(
            metadata=ObjectMeta(name=name, namespace=key.namespace, owner_references=(owner,)),
            spec=spec,
        )
        for name, spec in specs.items()
    )


def network_devices(cluster: Key, template: ProxmoxTemplate) -> list[Json]:
    """The devices of a node: all that the template has, with the pools of their networks."""
    return [_device(cluster, n, nic) for n, nic in enumerate(template.spec.network)]


def pool_name(cluster: Key, spec: PoolSpec) -> str:
    """The name of a pool; templates with the same network share it."""
    text = f"{spec.addresses} {spec.gateway}"
    return f"{cluster.name}-nodes-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def _device(cluster: Key, number: int, nic: TemplateNetwork) -> Json:
    pools = [
        {"apiGroup": InClusterIPPool.resource.group, "kind": "InClusterIPPool",
         "name": pool_name(cluster, spec)}
        for spec in _subnets(nic)
    ]  # fmt: skip
    device: Json = {"name": f"net{number}"}
    if pools:
        device["ipPoolRef"] = pools
        device |= {"dnsServers": list(nic.dns_servers)} if nic.dns_servers else {}
    return device


def _subnets(nic: TemplateNetwork) -> Iterator[PoolSpec]:
    """The networks whose addresses the nodes get on a device."""
    for address, gateway in ((nic.address4, nic.gateway4), (nic.address6, nic.gateway6)):
        network = _network(address or "")
        if network:
            prefix = ipaddress.ip_network(network).prefixlen
            yield PoolSpec(addresses=(network,), prefix=prefix, gateway=gateway or "")


def _network(text: str) -> str:
    """A network in its usual form; empty if the text is the address of one host, or none."""
    try:
        return str(ipaddress.ip_network(text)) if "/" in text else ""
    except ValueError:  # dhcp, auto, or an address inside a network
        return ""
