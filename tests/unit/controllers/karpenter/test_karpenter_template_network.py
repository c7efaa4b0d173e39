"""Nodes of a ProxmoxTemplate get the addresses of the networks of its devices."""

from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Cluster
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.karpenter.proxmox.template_network import network_devices, node_pools
from moxwell.runtime.key import Key

CLUSTER = Cluster(metadata=ObjectMeta(name="prod", namespace="team", uid="u"))
KEY = Key("team", "prod")


def template(*network: dict[str, Any]) -> ProxmoxTemplate:
    image = {"url": "https://images.example/a.img", "imageName": "a.img"}
    spec = {"sourceImage": image, "storageIDs": ["local"], "network": list(network)}
    return msgspec.convert({"metadata": {"name": "noble"}, "spec": spec}, ProxmoxTemplate)


PRIVATE = {
    "bridge": "vmbr1",
    "address4": "172.16.0.0/24",
    "address6": "fd60:172:16::/64",
    "gateway4": "172.16.0.1",
    "dnsServers": ["1.1.1.1"],
}


def test_a_network_becomes_a_pool_and_every_device_stays() -> None:
    given = template({"bridge": "vmbr0"}, PRIVATE)
    four, six = node_pools(CLUSTER, given)
    assert (four.spec.addresses, four.spec.prefix) == (("172.16.0.0/24",), 24)
    assert (four.spec.gateway, six.spec.gateway) == ("172.16.0.1", "")
    assert (six.spec.addresses, six.spec.prefix) == (("fd60:172:16::/64",), 64)
    assert {p.namespace for p in (four, six)} == {"team"}
    assert [o.uid for o in four.metadata.owner_references] == ["u"]
    first, second = network_devices(KEY, given)
    assert first == {"name": "net0"}
    assert [ref["name"] for ref in second["ipPoolRef"]] == [four.name, six.name]
    assert second["dnsServers"] == ["1.1.1.1"]


@pytest.mark.parametrize("address", ["172.16.0.5/24", "dhcp", "auto", "172.16.0.0", ""])
def test_other_addresses_are_no_networks(address: str) -> None:
    nic = {"bridge": "vmbr1"} | ({"address4": address} if address else {})
    assert node_pools(CLUSTER, template(nic)) == ()
    assert network_devices(KEY, template(nic)) == [{"name": "net0"}]


def test_templates_with_the_same_network_share_its_pool() -> None:
    pools = node_pools(CLUSTER, template(PRIVATE, PRIVATE))
    assert len(pools) == 2
    other = {**PRIVATE, "gateway4": "172.16.0.254"}
    assert node_pools(CLUSTER, template(other))[0].name != pools[0].name
